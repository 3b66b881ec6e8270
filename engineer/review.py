"""Convert an engineer's answer into a configuration within bounds, or reject it with a reason.

    parse -> schema -> clamp -> normalise -> minimum share -> round -> bounded step -> feasibility
      -> diff

An answer is a JSON object with all knobs, or rows of relative edits (`engineer.edits`). The review
rejects answers with missing, unknown, repeated or non-finite entries. It repairs numbers that are
out of range. Answers that only need rounding to the grid count as `accepted`. Answers whose shares
do not sum to 1 count as `repaired`.
"""

import json
import math
import re
from collections.abc import Iterator
from itertools import product
from typing import Any, Literal

from pydantic import Field, SerializeAsAny

from engineer.domain import Domain, InfeasibleError
from engineer.edits import JSON_EDITS, EditError, apply_edits, read_edits
from engineer.quoting import quote
from engineer.space import (
    KNOB_EDITS,
    Configuration,
    FrozenModel,
    KnobSpace,
    KnobValues,
    Ratio,
    apportion,
)
from jaxlake.language.thinking import split_thinking

RepairName = Literal["clamp", "normalise", "minimum_share", "round", "bounded_step", "feasibility"]

_MAX_NESTING = 4
"""Maximum nesting of objects. Valid answers have two levels. The limit is higher, so that the
reason for a rejection can describe deeper objects."""
_MAX_PROBLEMS = 3
"""Maximum number of problems in the reason for a rejection."""
_TOLERANCE = 1e-9


class Repair(FrozenModel):
    """A number that the review changed; `field` is a name such as `3.hole_ratio`."""

    name: RepairName
    field: str
    old: float
    new: float


class Change(FrozenModel):
    """One knob that differs from the current configuration; `old` is None for a new group."""

    field: str
    old: float | None
    new: float


class Review(FrozenModel):
    """The result of a review.

    accepted: the answer is used as written, or after `round`.
    repaired: the answer is used after other repairs, such as normalised shares.
    unchanged: the answer is usable and equals the current configuration.
    rejected: the answer is not used; `configuration` is None and `reason` explains why.
    """

    kind: Literal["accepted", "repaired", "unchanged", "rejected"]
    configuration: SerializeAsAny[Configuration] | None
    repairs: tuple[Repair, ...]
    reason: str
    diff: tuple[Change, ...]


class StepLimit(FrozenModel):
    """Limits on the change of a configuration in one stage."""

    max_step: Ratio | None = Field(
        default=None,
        description="largest change of any knob, rounded down to whole grid steps and at least one"
        " step; None: any change",
    )


class _RejectedError(Exception):
    """The answer is rejected; the message states the reason."""


class _Members(list[tuple[str, Any]]):
    """The members of a JSON object as pairs, including repeated keys."""


class _Draft:
    """The knobs of an answer during its review, and the repairs so far."""

    def __init__(self, values: KnobValues, space: KnobSpace, repairs: list[Repair]) -> None:
        self.values, self.space, self.repairs = values, space, repairs

    def set_knob(self, name: RepairName, group: str, knob: str, value: float) -> None:
        """Set a knob, and record a repair if its value changes."""
        old = self.values[group][knob]
        if old != value:
            self.repairs.append(Repair(name=name, field=f"{group}.{knob}", old=old, new=value))
        self.values[group][knob] = value + 0.0  # turns -0.0 into 0.0

    def knob_values(self, knob: str) -> list[float]:
        """Return the values of a knob, in group order."""
        return [self.values[group][knob] for group in self.space.groups]


def review_answer(
    text: str, current: Configuration, domain: Domain, step_limit: StepLimit | None = None
) -> Review:
    """Review an engineer's answer, in time linear in its length.

    The answer is the last complete JSON object with groups as keys after the last thinking block.
    Without such an object, it is the last block of edit rows, applied to `current`.
    `docs/design_phase.md` describes the repairs and rejections of each step. Feasibility
    (`Domain.nearest`) comes last and takes precedence over the step limit.

    Args:
        text: The answer, which may be any text.
        current: The current configuration.
        domain: The environment.
        step_limit: Limits on the change; None allows any change within the space.

    Returns:
        The `Review`; invalid answers are rejected without raising.
    """
    step_limit = step_limit or StepLimit()
    space = domain.space
    repairs: list[Repair] = []
    try:
        draft = _Draft(_read_answer(text, current, domain), space, repairs)
        for group, knob in product(space.groups, space.knobs):
            # Values above 1 are clamped, not interpreted as percentages.
            high = 1.0 if knob == space.share else space.maximum(knob)
            draft.set_knob("clamp", group, knob, min(max(draft.values[group][knob], 0.0), high))
        _repair_shares(draft)
        for group, knob in product(space.groups, space.difficulty_knobs):
            nearest = space.from_units(space.to_units(draft.values[group][knob]))
            draft.set_knob("round", group, knob, nearest)
        if step_limit.max_step is not None:
            _bound_steps(draft, current, step_limit.max_step)
        _make_feasible(draft, domain)
    except _RejectedError as rejection:
        return Review(
            kind="rejected",
            configuration=None,
            repairs=tuple(repairs),
            reason=str(rejection),
            diff=(),
        )
    configuration = space.make(draft.values)
    repair_names = list(dict.fromkeys(repair.name for repair in repairs))
    diff = _list_changes(current, configuration)
    kind: Literal["accepted", "repaired", "unchanged"] = "unchanged"
    if diff:
        kind = "accepted" if all(name == "round" for name in repair_names) else "repaired"
    return Review(
        kind=kind,
        configuration=configuration,
        repairs=tuple(repairs),
        reason=f"used after {', '.join(repair_names)}" if repair_names else "used as written",
        diff=diff,
    )


def _read_answer(text: str, current: Configuration, domain: Domain) -> KnobValues:
    """Return the requested knobs of an answer in either format."""
    answer, unfinished = split_thinking(text)
    if unfinished and not answer.strip():
        raise _RejectedError("the thinking block is never closed")
    members, problem = _parse_last_object(answer, domain.space)
    if members is not None:
        return _read_members(members, current, domain.space)
    try:
        edits = read_edits(answer, domain)
    except EditError as error:
        raise _RejectedError(str(error)) from None
    if edits is None:
        raise _RejectedError(problem)
    return apply_edits(edits, current, domain.space)


def _parse_last_object(answer: str, space: KnobSpace) -> tuple[_Members | None, str]:
    """Return the last object with groups as keys, or None, and the problem if there is none."""
    last_members: _Members | None = None
    names = "|".join(re.escape(group) for group in space.groups)
    if all(group.isdecimal() for group in space.groups):
        names = "[0-9]+"  # also matches unknown numbers, which are then reported by name
    key_pattern = re.compile(names)
    quoted_key = re.compile(rf'"(?:{names})"\s*:')
    problem = (
        f"the answer holds no complete JSON object with {space.group_label}s as keys, and no edits"
    )
    for candidate in _find_objects(answer):
        try:
            members = _DECODER.decode(candidate)
        except (ValueError, RecursionError) as error:
            if quoted_key.search(candidate):
                message = error.msg if isinstance(error, json.JSONDecodeError) else "too deep"
                problem = f"the answer's JSON can't be read: {message} in {quote(candidate, 80)}"
            continue
        if any(key_pattern.fullmatch(name) for name, _ in members):
            last_members = members
    return last_members, problem


def _find_objects(text: str) -> Iterator[str]:
    """Yield balanced `{...}` of limited nesting, ordered by their ends.

    Quotation marks are ignored: prose may contain any number of them, and no string of a
    configuration contains braces. Each character is part of at most `_MAX_NESTING` objects.
    """
    open_objects: list[list[int]] = []  # pairs of the start and the nesting depth inside
    for brace in _BRACES.finditer(text):
        if brace.group() == "{":
            open_objects.append([brace.start(), 0])
        elif open_objects:
            start, inner_depth = open_objects.pop()
            depth = inner_depth + 1
            if open_objects:
                open_objects[-1][1] = max(open_objects[-1][1], depth)
            if depth <= _MAX_NESTING:
                yield text[start : brace.end()]


_BRACES = re.compile(r"[{}]")
# int() raises for thousands of digits; float() returns infinity, which `_read_group` reports.
_DECODER = json.JSONDecoder(object_pairs_hook=_Members, parse_int=float)


def _read_members(members: _Members, current: Configuration, space: KnobSpace) -> KnobValues:
    """Return the requested knobs of an object with numbers or edits such as `+1`."""
    problems: list[str] = []
    label = space.group_label
    fields = _unique_members(members, space.groups, f"{label} ", label, problems)
    values: KnobValues = {}
    edits: dict[str, dict[str, int]] = {}
    for group in space.groups:
        if group not in fields:
            problems.append(f"{label} {group} is missing")
            continue
        values[group], edits[group] = _read_group(group, fields[group], space, problems)
    if problems:
        num_omitted = len(problems) - _MAX_PROBLEMS
        note = f" (and {num_omitted} more)" if num_omitted > 0 else ""
        raise _RejectedError("; ".join(problems[:_MAX_PROBLEMS]) + note)
    edited_values = apply_edits(edits, current, space)
    return {group: edited_values[group] | values[group] for group in space.groups}


def _read_group(
    group: str, value: object, space: KnobSpace, problems: list[str]
) -> tuple[dict[str, float], dict[str, int]]:
    """Return the numbers of a group, and the edits of all its knobs (0 for numbers)."""
    if not isinstance(value, _Members):
        names = ", ".join(space.knobs)
        problems.append(f"{space.group_label} {group} must be an object with {names}")
        return {}, {}
    owner = f"in {space.group_label} {group},"
    fields = _unique_members(value, space.knobs, f"{group}.", owner, problems)
    numbers: dict[str, float] = {}
    edits = dict.fromkeys(space.knobs, 0)
    for knob in space.knobs:
        entry = fields.get(knob)
        if knob not in fields:
            problems.append(f"{group}.{knob} is missing")
        elif isinstance(entry, str) and entry in JSON_EDITS:
            edits[knob] = JSON_EDITS[entry]
        elif not isinstance(entry, float):
            allowed = ", ".join(map(json.dumps, KNOB_EDITS))
            text = _describe_value(entry)
            problems.append(f"{group}.{knob} must be a number, {allowed}, got {text}")
        elif not math.isfinite(entry):
            problems.append(f"{group}.{knob} must be a finite number, got {entry}")
        else:
            numbers[knob] = entry
    return numbers, edits


def _unique_members(
    members: _Members, names: tuple[str, ...], prefix: str, owner: str, problems: list[str]
) -> dict[str, Any]:
    """Return the members by name, and add unknown and repeated names to the problems."""
    fields: dict[str, Any] = {}
    for key, value in members:
        if key not in names:
            problems.append(f"{prefix}{quote(key, 24)} is not one of {', '.join(names)}")
        elif key in fields:
            problems.append(f"{owner} {key} is given more than once")
        else:
            fields[key] = value
    return fields


def _describe_value(value: object) -> str:
    if isinstance(value, list):
        return "an object" if isinstance(value, _Members) else "a list"
    return quote(value, 24) if isinstance(value, str) else json.dumps(value)


def _repair_shares(draft: _Draft) -> None:
    """Normalise and round the shares, and raise them to the minimum."""
    space, knob = draft.space, draft.space.share
    targets = draft.knob_values(knob)
    total = math.fsum(targets)
    if total <= 0.0:
        raise _RejectedError(
            f"{knob} is 0 for every {space.group_label}, some {space.group_label} needs a share"
        )
    normalised_units = apportion(targets, space.units)
    final_units = apportion(targets, space.units, space.to_units(space.min_share))
    name: RepairName = "round" if abs(total - 1.0) <= _TOLERANCE else "normalise"
    for i, group in enumerate(space.groups):
        draft.set_knob(name, group, knob, space.from_units(normalised_units[i]))
        draft.set_knob("minimum_share", group, knob, space.from_units(final_units[i]))


def _bound_steps(draft: _Draft, current: Configuration, max_step: float) -> None:
    space, current_values = draft.space, current.values()
    max_steps = max(1, math.floor(max_step * space.units + _TOLERANCE))
    for group, knob in product(space.groups, space.difficulty_knobs):
        if group in current_values:
            current_units = space.to_units(current_values[group][knob])
            # A knob above its maximum may fall to the maximum in one stage.
            low = min(current_units - max_steps, space.to_units(space.maximum(knob)))
            high = current_units + max_steps
            units = min(max(space.to_units(draft.values[group][knob]), low), high)
            draft.set_knob("bounded_step", group, knob, space.from_units(units))
    _bound_shares(draft, current_values, max_steps)


def _bound_shares(draft: _Draft, current_values: KnobValues, max_steps: int) -> None:
    """Limit the change of each share to `max_steps` and stay close to the requested shares."""
    space, knob = draft.space, draft.space.share
    current_shares = [current_values.get(group, {}).get(knob, 0.0) for group in space.groups]
    if not any(current_shares):
        return  # the current configuration has none of these groups
    min_units = space.to_units(space.min_share)
    current_units = apportion(current_shares, space.units, min_units)
    targets = [space.to_units(share) for share in draft.knob_values(knob)]
    lows = [max(units - max_steps, min_units) for units in current_units]
    highs = [units + max_steps for units in current_units]
    shares = [min(max(target, lows[i]), highs[i]) for i, target in enumerate(targets)]
    # This terminates, because the current shares lie within the limits and have the right sum.
    while (deficit := space.units - sum(shares)) != 0:
        step, limits = (1, highs) if deficit > 0 else (-1, lows)
        movable = [i for i, share in enumerate(shares) if share != limits[i]]
        farthest = max(movable, key=lambda i: (step * (targets[i] - shares[i]), -i))
        shares[farthest] += step
    for group, share in zip(space.groups, shares, strict=True):
        draft.set_knob("bounded_step", group, knob, space.from_units(share))


def _make_feasible(draft: _Draft, domain: Domain) -> None:
    for group, knobs in draft.values.items():
        if knobs[domain.space.share] == 0.0:
            continue
        try:
            nearest_knobs = domain.nearest(group, knobs)
        except InfeasibleError as error:
            raise _RejectedError(str(error)) from None
        for knob in domain.space.difficulty_knobs:
            draft.set_knob("feasibility", group, knob, nearest_knobs[knob])


def _list_changes(current: Configuration, configuration: Configuration) -> tuple[Change, ...]:
    current_values = current.values()
    return tuple(
        Change(field=f"{group}.{knob}", old=old, new=value)
        for group, knobs in configuration.values().items()
        for knob, value in knobs.items()
        if (old := current_values.get(group, {}).get(knob)) != value
    )
