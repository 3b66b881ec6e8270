"""From any text to a configuration within bounds: every repair has a name, every refusal a reason.

    parse -> schema -> clamp -> normalise -> minimum share -> round -> feasibility -> diff

Structure is never guessed and numbers are mended: what is missing, unknown, given twice or no
finite number rejects the answer, what is out of range is repaired. An answer stays `accepted` as
long as all that happened to it is `round`, or `normalise` by no more than one step of the grid a
share: shares say proportions, and those it keeps.
"""

import functools
import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

from engineer.configuration import KNOBS, Bounds, Frozen, LakeConfiguration, SizeKnobs, apportion
from engineer.quoting import quote
from engineer.rule import Feasibility, largest_feasible

RepairName = Literal["clamp", "normalise", "minimum_share", "round", "feasibility"]

# (size, hole_ratio, wait_ratio, num_agents) to the share of random boards that such a set can use,
# None where that isn't known.
Acceptance = Callable[[int, float, float, int], float | None]

MIN_ACCEPTANCE = 1e-3
"""Share of random boards that a configuration must be able to use, unless told otherwise."""

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
    configuration: LakeConfiguration | None
    repairs: tuple[Repair, ...]
    reason: str
    diff: tuple[Change, ...]


class _RefusedError(Exception):
    """Ends a review with a reason."""


class _Members(list[tuple[str, Any]]):
    """A JSON object as its members, so that a key given twice is seen."""


def review(
    text: str,
    current: LakeConfiguration,
    *,
    bounds: Bounds,
    num_agents: int,
    feasibility: Feasibility,
    acceptance: Acceptance | None = None,
    min_acceptance: float = MIN_ACCEPTANCE,
) -> Decision:
    """Turn an engineer's answer into a decision. Never raises for any text; linear in its length.

    Steps, in order:
        parse: the last complete JSON object with map sizes as keys, anywhere in the text outside of
            `<think>` blocks.
        schema: exactly the experiment's sizes, each with exactly three finite numbers.
        clamp: every knob into 0..1 or its own maximum. A value above 1 is never read as per cents.
        normalise: data ratios scaled to sum to 1, on the grid (largest remainder).
        minimum_share: data ratios below `bounds.min_share` lifted to it.
        round: other numbers to the nearest point of the grid.
        feasibility: where boards of a size with a share can't be made, the largest hole_ratio that
            can; then, where too few random boards fit, the wait_ratio nearest to what was asked for
            for which enough do, and with none of them the next lower hole_ratio.
        diff: against `current`.

    Args:
        text: a model's whole answer.
        current: the configuration in force.
        bounds: what may be asked for.
        num_agents: agents on the boards to be generated.
        feasibility: (size, hole_ratio, num_agents) to a sentence that says why no board exists, or
            None; `jaxlake.infeasibility`.
        acceptance: (size, hole_ratio, wait_ratio, num_agents) to the share of random boards that
            such a set can use, or None where that isn't known; `jaxlake.generator.acceptance`.
            Without it only `feasibility` is asked.
        min_acceptance: least share that will do.
    """
    repairs: list[Repair] = []
    try:
        knobs = _clamp(_schema(_parse(text), bounds), bounds, repairs)
        _share(knobs, bounds, repairs)
        _round(knobs, bounds, repairs)
        _make_feasible(knobs, bounds, num_agents, feasibility, repairs)
        if acceptance is not None:
            enough = functools.partial(_enough, acceptance, min_acceptance, num_agents)
            _make_likely(knobs, bounds, enough, repairs)
    except _RefusedError as refusal:
        return Decision(
            kind="rejected",
            configuration=None,
            repairs=tuple(repairs),
            reason=str(refusal),
            diff=(),
        )
    configuration = LakeConfiguration(sizes={s: SizeKnobs(**knobs[s]) for s in bounds.sizes})
    names = list(dict.fromkeys(repair.name for repair in repairs))
    return Decision(
        kind="accepted" if all(_is_small(one, bounds) for one in repairs) else "repaired",
        configuration=configuration,
        repairs=tuple(repairs),
        reason=f"used after {', '.join(names)}" if names else "used as written",
        diff=_diff(current, configuration),
    )


def _is_small(repair: Repair, bounds: Bounds) -> bool:
    if repair.name == "round":
        return True
    return repair.name == "normalise" and abs(repair.old - repair.new) <= bounds.step + _SAME


def _parse(text: str) -> _Members:
    answer = text.rpartition("</think>")[2].partition("<think>")[0]
    found: _Members | None = None
    problem = "the answer holds no complete JSON object with map sizes as keys"
    for candidate in _objects(answer):
        try:
            members = _DECODER.decode(candidate)
        except (ValueError, RecursionError) as error:
            if _SIZE_KEY.search(candidate):
                message = error.msg if isinstance(error, json.JSONDecodeError) else "too deep"
                problem = f"the answer's JSON can't be read: {message} in {quote(candidate, 80)}"
            continue
        if any(_NUMBER.fullmatch(key) for key, _ in members):
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
_NUMBER = re.compile(r"[0-9]+")
_SIZE_KEY = re.compile(r'"[0-9]+"\s*:')
_DECODER = json.JSONDecoder(object_pairs_hook=_Members, parse_int=_integer)


def _schema(members: _Members, bounds: Bounds) -> dict[int, dict[str, float]]:
    problems: list[str] = []
    sizes = {str(size): size for size in bounds.sizes}
    listed = ", ".join(sizes)
    given = _unique(members, sizes, f"map size {{}} is not one of {listed}", "map size", problems)
    knobs: dict[int, dict[str, float]] = {}
    for name, size in sizes.items():
        if name not in given:
            problems.append(f"map size {name} is missing")
            continue
        knobs[size] = _size_schema(name, given[name], problems)
    if problems:
        more = len(problems) - _MAX_PROBLEMS
        tail = f" (and {more} more)" if more > 0 else ""
        raise _RefusedError("; ".join(problems[:_MAX_PROBLEMS]) + tail)
    return knobs


def _size_schema(size: str, value: object, problems: list[str]) -> dict[str, float]:
    if not isinstance(value, _Members):
        problems.append(f"map size {size} must be an object with {', '.join(KNOBS)}")
        return {}
    unknown = f"{size}.{{}} is not one of {', '.join(KNOBS)}"
    given = _unique(value, dict.fromkeys(KNOBS, 0), unknown, f"in map size {size},", problems)
    numbers: dict[str, float] = {}
    for knob in KNOBS:
        number = given.get(knob)
        if knob not in given:
            problems.append(f"{size}.{knob} is missing")
        elif not isinstance(number, float):
            problems.append(f"{size}.{knob} must be a number, got {_shown(number)}")
        elif not math.isfinite(number):
            problems.append(f"{size}.{knob} must be a finite number, got {number}")
        else:
            numbers[knob] = number
    return numbers


def _unique(
    members: _Members, known: dict[str, int], unknown: str, what: str, problems: list[str]
) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for key, value in members:
        if key not in known:
            problems.append(unknown.format(quote(key, 24)))
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


def _clamp(
    asked: dict[int, dict[str, float]], bounds: Bounds, repairs: list[Repair]
) -> dict[int, dict[str, float]]:
    high = {
        "data_ratio": 1.0,
        "hole_ratio": bounds.max_hole_ratio,
        "wait_ratio": bounds.max_wait_ratio,
    }
    clamped: dict[int, dict[str, float]] = {}
    for size, knobs in asked.items():
        clamped[size] = {}
        for knob, value in knobs.items():
            # Adding zero turns a negative zero into zero.
            inside = min(max(value, 0.0), high[knob]) + 0.0
            _note(repairs, "clamp", size, knob, value, inside)
            clamped[size][knob] = inside
    return clamped


def _share(knobs: dict[int, dict[str, float]], bounds: Bounds, repairs: list[Repair]) -> None:
    asked = [knobs[size]["data_ratio"] for size in bounds.sizes]
    total = math.fsum(asked)
    if total <= 0.0:
        raise _RefusedError("data_ratio is 0 for every map size, some size needs a share")
    plain = apportion(asked, bounds.units)
    lifted = apportion(asked, bounds.units, bounds.to_units(bounds.min_share))
    scaled: RepairName = "round" if abs(total - 1.0) <= _SAME else "normalise"
    for size, old, middle, new in zip(bounds.sizes, asked, plain, lifted, strict=True):
        _note(repairs, scaled, size, "data_ratio", old, bounds.from_units(middle))
        _note(
            repairs,
            "minimum_share",
            size,
            "data_ratio",
            bounds.from_units(middle),
            bounds.from_units(new),
        )
        knobs[size]["data_ratio"] = bounds.from_units(new)


def _round(knobs: dict[int, dict[str, float]], bounds: Bounds, repairs: list[Repair]) -> None:
    for size in bounds.sizes:
        for knob in ("hole_ratio", "wait_ratio"):
            old = knobs[size][knob]
            new = bounds.from_units(bounds.to_units(old))
            _note(repairs, "round", size, knob, old, new)
            knobs[size][knob] = new


def _make_feasible(
    knobs: dict[int, dict[str, float]],
    bounds: Bounds,
    num_agents: int,
    feasibility: Feasibility,
    repairs: list[Repair],
) -> None:
    for size in bounds.sizes:
        if knobs[size]["data_ratio"] == 0.0:
            continue
        old = knobs[size]["hole_ratio"]
        new = largest_feasible(
            size, old, bounds=bounds, num_agents=num_agents, feasibility=feasibility
        )
        if new is None:
            raise _RefusedError(
                feasibility(size, 0.0, num_agents) or f"map size {size} is infeasible"
            )
        _note(repairs, "feasibility", size, "hole_ratio", old, new)
        knobs[size]["hole_ratio"] = new


def _enough(
    acceptance: Acceptance,
    least: float,
    num_agents: int,
    size: int,
    hole_ratio: float,
    wait_ratio: float,
) -> bool:
    rate = acceptance(size, hole_ratio, wait_ratio, num_agents)
    return rate is None or rate >= least


def _make_likely(
    knobs: dict[int, dict[str, float]],
    bounds: Bounds,
    enough: Callable[[int, float, float], bool],
    repairs: list[Repair],
) -> None:
    most_waits = bounds.to_units(bounds.max_wait_ratio)
    for size in bounds.sizes:
        if knobs[size]["data_ratio"] == 0.0:
            continue
        holes, waits = (bounds.to_units(knobs[size][knob]) for knob in ("hole_ratio", "wait_ratio"))
        near = [n for _, n in sorted((abs(n - waits), n) for n in range(most_waits + 1))]
        choices = (
            (bounds.from_units(fewer), bounds.from_units(other))
            for fewer in range(holes, -1, -1)
            for other in near
        )
        found = next((choice for choice in choices if enough(size, *choice)), None)
        if found is None:
            raise _RefusedError(f"map size {size}: next to no board can be made of any kind")
        for knob, new in zip(("hole_ratio", "wait_ratio"), found, strict=True):
            _note(repairs, "feasibility", size, knob, knobs[size][knob], new)
            knobs[size][knob] = new


def _note(
    repairs: list[Repair], name: RepairName, size: int, knob: str, old: float, new: float
) -> None:
    if abs(old - new) > _SAME:
        repairs.append(Repair(name=name, field=f"{size}.{knob}", old=old, new=new))


def _diff(current: LakeConfiguration, new: LakeConfiguration) -> tuple[Change, ...]:
    changes = []
    for size, knobs in new.sizes.items():
        before = current.sizes.get(size)
        for knob in KNOBS:
            old = None if before is None else getattr(before, knob)
            value = getattr(knobs, knob)
            if old is None or abs(old - value) > _SAME:
                changes.append(Change(field=f"{size}.{knob}", old=old, new=value))
    return tuple(changes)
