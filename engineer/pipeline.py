"""From any text to a configuration within bounds: every repair has a name, every refusal a reason.

    parse -> schema -> clamp -> normalise -> minimum share -> round -> bounded step -> feasibility
      -> diff

Structure is never guessed and numbers are mended: what is missing, unknown, given twice or no
finite number rejects the answer, what is out of range is repaired. An answer stays `accepted` as
long as all that happened to it is `round`, or `normalise` by no more than one step of the grid a
share: shares say proportions, and those it keeps.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, SerializeAsAny

from engineer.domain import Domain, InfeasibleError
from engineer.quoting import quote
from engineer.space import Configuration, Frozen, KnobSpace, Ratio, Values, apportion

RepairName = Literal["clamp", "normalise", "minimum_share", "round", "bounded_step", "feasibility"]

# A configuration is two objects deep. Taller ones are not read; a little more gives better reasons.
_MAX_HEIGHT = 4
_MAX_PROBLEMS = 3
_SAME = 1e-9


class Repair(Frozen):
    """One number that was changed. `field` reads like `3.hole_ratio`."""

    name: RepairName
    field: str
    old: float
    new: float


class Change(Frozen):
    """One knob that differs from the current configuration; `old` is None for a new size."""

    field: str
    old: float | None
    new: float


class Decision(Frozen):
    """What became of one answer.

    accepted: used as written, or after `round` and a `normalise` of at most a step a share.
    repaired: used after other repairs as well.
    rejected: not used; `configuration` is None and `reason` says why.
    """

    kind: Literal["accepted", "repaired", "rejected"]
    configuration: SerializeAsAny[Configuration] | None
    repairs: tuple[Repair, ...]
    reason: str
    diff: tuple[Change, ...]


class Guard(Frozen):
    """What one stage may not do to the configuration in force, besides leaving the space."""

    max_step: Ratio | None = Field(
        default=None,
        description="largest change of any knob, in whole steps of the grid and at least one of"
        " them; None: any change",
    )
    floors: dict[str, Ratio] = Field(
        default_factory=dict, description="by protected group: the least share it keeps"
    )


class _RefusedError(Exception):
    """Ends a review with a reason."""


class _Members(list[tuple[str, Any]]):
    """A JSON object as its members, so that a key given twice is seen."""


def review(
    text: str, current: Configuration, domain: Domain, guard: Guard | None = None
) -> Decision:
    """Turn an engineer's answer into a decision. Never raises for any text; linear in its length.

    Steps, in order:
        parse: the last complete JSON object with groups as keys, anywhere in the text after its
            last `</think>`, up to a `<think>` that isn't ended.
        schema: exactly the experiment's groups, each with exactly its knobs, all finite numbers.
        clamp: every knob into 0..1 or its own maximum. A value above 1 is never read as per cents.
        normalise: shares scaled to sum to 1, on the grid (largest remainder).
        minimum_share: shares below `min_share`, or below a floor of the guard, lifted to it.
        round: other knobs to the nearest point of the grid.
        bounded_step: knobs that move further than the guard allows stop there.
        feasibility: the nearest knobs of which instances can be made (`Domain.nearest`). This comes
            last and counts more than the guard: what can't be made can't be trained on.
        diff: against `current`.

    Args:
        text: a model's whole answer.
        current: the configuration in force.
        domain: the environment.
        guard: how far this stage may go; None: anywhere in the space.
    """
    guard = guard or Guard()
    space = domain.space
    repairs: list[Repair] = []
    try:
        values = _clamp(_schema(_parse(text, space), space), space, repairs)
        _share(values, space, guard, repairs)
        _round(values, space, repairs)
        if guard.max_step is not None:
            _bound_steps(values, current, space, guard, repairs)
        _make_feasible(values, domain, repairs)
    except _RefusedError as refusal:
        return Decision(
            kind="rejected",
            configuration=None,
            repairs=tuple(repairs),
            reason=str(refusal),
            diff=(),
        )
    configuration = space.make(values)
    names = list(dict.fromkeys(repair.name for repair in repairs))
    return Decision(
        kind="accepted" if all(_is_small(one, space) for one in repairs) else "repaired",
        configuration=configuration,
        repairs=tuple(repairs),
        reason=f"used after {', '.join(names)}" if names else "used as written",
        diff=_diff(current, configuration),
    )


def _is_small(repair: Repair, space: KnobSpace) -> bool:
    if repair.name == "round":
        return True
    return repair.name == "normalise" and abs(repair.old - repair.new) <= space.step + _SAME


def _parse(text: str, space: KnobSpace) -> _Members:
    answer = text.rpartition("</think>")[2].partition("<think>")[0]
    found: _Members | None = None
    names = "|".join(re.escape(group) for group in space.groups)
    if all(group.isdecimal() for group in space.groups):
        names = "[0-9]+"  # an unknown number is named as such
    key = re.compile(names)
    quoted_key = re.compile(rf'"(?:{names})"\s*:')
    problem = f"the answer holds no complete JSON object with {space.group_label}s as keys"
    for candidate in _objects(answer):
        try:
            members = _DECODER.decode(candidate)
        except (ValueError, RecursionError) as error:
            if quoted_key.search(candidate):
                message = error.msg if isinstance(error, json.JSONDecodeError) else "too deep"
                problem = f"the answer's JSON can't be read: {message} in {quote(candidate, 80)}"
            continue
        if any(key.fullmatch(name) for name, _ in members):
            found = members
    if found is None:
        raise _RefusedError(problem)
    return found


def _objects(text: str) -> Iterator[str]:
    """Balanced `{...}` of small height, in the order of their ends.

    Quotation marks are not looked at: prose may hold any number of them, and a string with a brace
    in it is no part of a configuration. Each character lies in at most `_MAX_HEIGHT` of the
    objects.
    """
    open_objects: list[list[int]] = []  # start, height of the tallest object inside
    for brace in _BRACES.finditer(text):
        if brace.group() == "{":
            open_objects.append([brace.start(), 0])
        elif open_objects:
            start, inside = open_objects.pop()
            height = inside + 1
            if open_objects:
                open_objects[-1][1] = max(open_objects[-1][1], height)
            if height <= _MAX_HEIGHT:
                yield text[start : brace.end()]


def _integer(digits: str) -> float:
    # int() refuses thousands of digits with an error; as a float they are infinite, which schema
    # names.
    return float(digits)


_BRACES = re.compile(r"[{}]")
_DECODER = json.JSONDecoder(object_pairs_hook=_Members, parse_int=_integer)


def _schema(members: _Members, space: KnobSpace) -> Values:
    problems: list[str] = []
    label = space.group_label
    given = _unique(members, space.groups, f"{label} ", label, problems)
    values: Values = {}
    for group in space.groups:
        if group not in given:
            problems.append(f"{label} {group} is missing")
            continue
        values[group] = _group_schema(group, given[group], space, problems)
    if problems:
        more = len(problems) - _MAX_PROBLEMS
        tail = f" (and {more} more)" if more > 0 else ""
        raise _RefusedError("; ".join(problems[:_MAX_PROBLEMS]) + tail)
    return values


def _group_schema(
    group: str, value: object, space: KnobSpace, problems: list[str]
) -> dict[str, float]:
    listed = ", ".join(space.knobs)
    if not isinstance(value, _Members):
        problems.append(f"{space.group_label} {group} must be an object with {listed}")
        return {}
    what = f"in {space.group_label} {group},"
    given = _unique(value, space.knobs, f"{group}.", what, problems)
    numbers: dict[str, float] = {}
    for knob in space.knobs:
        number = given.get(knob)
        if knob not in given:
            problems.append(f"{group}.{knob} is missing")
        elif not isinstance(number, float):
            problems.append(f"{group}.{knob} must be a number, got {_shown(number)}")
        elif not math.isfinite(number):
            problems.append(f"{group}.{knob} must be a finite number, got {number}")
        else:
            numbers[knob] = number
    return numbers


def _unique(
    members: _Members, known: tuple[str, ...], prefix: str, what: str, problems: list[str]
) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for key, value in members:
        if key not in known:
            problems.append(f"{prefix}{quote(key, 24)} is not one of {', '.join(known)}")
        elif key in given:
            problems.append(f"{what} {key} is given more than once")
        else:
            given[key] = value
    return given


def _shown(value: object) -> str:
    if isinstance(value, _Members):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return quote(value, 24)
    return json.dumps(value)


def _clamp(asked: Values, space: KnobSpace, repairs: list[Repair]) -> Values:
    high = {knob: space.maximum(knob) for knob in space.difficulty_knobs} | {space.share: 1.0}
    clamped: Values = {}
    for group, knobs in asked.items():
        clamped[group] = {}
        for knob, value in knobs.items():
            # Adding zero turns a negative zero into zero.
            inside = min(max(value, 0.0), high[knob]) + 0.0
            _note(repairs, "clamp", group, knob, value, inside)
            clamped[group][knob] = inside
    return clamped


def _share(values: Values, space: KnobSpace, guard: Guard, repairs: list[Repair]) -> None:
    knob = space.share
    asked = [values[group][knob] for group in space.groups]
    total = math.fsum(asked)
    if total <= 0.0:
        raise _RefusedError(
            f"{knob} is 0 for every {space.group_label}, some {space.group_label} needs a share"
        )
    plain = apportion(asked, space.units)
    lifted = apportion(asked, space.units, _floors(space, guard))
    scaled: RepairName = "round" if abs(total - 1.0) <= _SAME else "normalise"
    for group, old, middle, new in zip(space.groups, asked, plain, lifted, strict=True):
        _note(repairs, scaled, group, knob, old, space.from_units(middle))
        _note(
            repairs, "minimum_share", group, knob, space.from_units(middle), space.from_units(new)
        )
        values[group][knob] = space.from_units(new)


def _floors(space: KnobSpace, guard: Guard) -> list[int]:
    """The least share of each group in steps; the guard's as far as all fit into the whole."""
    least = space.to_units(space.min_share)
    asked = [guard.floors.get(group, 0.0) for group in space.groups]
    floors = [max(least, math.ceil(floor * space.units - _SAME)) for floor in asked]
    if sum(floors) <= space.units:
        return floors
    spare = space.units - least * len(floors)
    wanted = [floor - least for floor in floors]
    return [least + part for part in apportion(wanted, spare)]


def _round(values: Values, space: KnobSpace, repairs: list[Repair]) -> None:
    for group in space.groups:
        for knob in space.difficulty_knobs:
            old = values[group][knob]
            new = space.from_units(space.to_units(old))
            _note(repairs, "round", group, knob, old, new)
            values[group][knob] = new


def _bound_steps(
    values: Values,
    current: Configuration,
    space: KnobSpace,
    guard: Guard,
    repairs: list[Repair],
) -> None:
    assert guard.max_step is not None
    most = max(1, math.floor(guard.max_step * space.units + _SAME))
    before = current.values()
    for group in space.groups:
        for knob in space.difficulty_knobs:
            if group not in before:
                continue
            here = space.to_units(before[group][knob])
            asked = space.to_units(values[group][knob])
            # Whoever stands above the maximum comes down to it at once.
            least = min(here - most, space.to_units(space.maximum(knob)))
            new = space.from_units(min(max(asked, least), here + most))
            _note(repairs, "bounded_step", group, knob, values[group][knob], new)
            values[group][knob] = new
    _bound_shares(values, before, space, guard, most, repairs)


def _bound_shares(
    values: Values,
    before: Values,
    space: KnobSpace,
    guard: Guard,
    most: int,
    repairs: list[Repair],
) -> None:
    """Shares within `most` steps of those in force, as near as can be to what was asked."""
    knob, floors = space.share, _floors(space, guard)
    held = [before.get(group, {}).get(knob, 0.0) for group in space.groups]
    if not any(held):
        return  # none of these groups is in force
    here = apportion(held, space.units, floors)
    asked = [space.to_units(values[group][knob]) for group in space.groups]
    low = [max(n - most, floor) for n, floor in zip(here, floors, strict=True)]
    high = [n + most for n in here]
    shares = [min(max(n, a), b) for n, a, b in zip(asked, low, high, strict=True)]
    # The shares in force lie between both limits and make up the whole, so this ends.
    while (missing := space.units - sum(shares)) != 0:
        step = 1 if missing > 0 else -1
        limit = high if step > 0 else low
        room = [i for i, share in enumerate(shares) if share != limit[i]]
        place = max(room, key=lambda i: (step * (asked[i] - shares[i]), -i))
        shares[place] += step
    for group, share in zip(space.groups, shares, strict=True):
        new = space.from_units(share)
        _note(repairs, "bounded_step", group, knob, values[group][knob], new)
        values[group][knob] = new


def _make_feasible(values: Values, domain: Domain, repairs: list[Repair]) -> None:
    for group, knobs in values.items():
        if knobs[domain.space.share] == 0.0:
            continue
        try:
            nearest = domain.nearest(group, knobs)
        except InfeasibleError as error:
            raise _RefusedError(str(error)) from None
        for knob in domain.space.difficulty_knobs:
            _note(repairs, "feasibility", group, knob, knobs[knob], nearest[knob])
            knobs[knob] = nearest[knob]


def _note(
    repairs: list[Repair], name: RepairName, group: str, knob: str, old: float, new: float
) -> None:
    if old != new:
        repairs.append(Repair(name=name, field=f"{group}.{knob}", old=old, new=new))


def _diff(current: Configuration, new: Configuration) -> tuple[Change, ...]:
    changes = []
    before = current.values()
    for group, knobs in new.values().items():
        for knob, value in knobs.items():
            old = before.get(group, {}).get(knob)
            if old != value:
                changes.append(Change(field=f"{group}.{knob}", old=old, new=value))
    return tuple(changes)
