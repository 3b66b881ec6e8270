"""A simple rule that writes the next configuration: train where answers vary, step by step.

GRPO learns from groups whose rewards differ, and instances that are solved with probability p give
p(1-p) of that: most at one half, nothing at 0 and 1. The rule reads only what the compact context
displays (whole per cents and the current knobs), so that a small model can learn it from contexts.
"""

from collections.abc import Mapping, Sequence

from engineer.domain import Domain, InfeasibleError
from engineer.evidence import StageEvidence
from engineer.space import Configuration, KnobSpace, Values, apportion

# Per cents valid. Both are tens, so that the leading digit of what is displayed decides.
EASY = 60  # from here on a group gets harder
HARD = 20  # below, it gets easier


def learnability(valid_percent: int) -> int:
    """p(1-p) in units of 1e-4, p the valid rate: 2500 at one half, 0 at the ends."""
    return valid_percent * (100 - valid_percent)


def difficulty_step(valid_percent: int) -> int:
    """Steps of the grid by which the knobs move: up when easy, down when hard, else none."""
    return int(valid_percent >= EASY) - int(valid_percent < HARD)


def next_configuration(
    evidence: StageEvidence, current: Configuration, domain: Domain
) -> Configuration:
    """Apply the rule. A group without validation answers keeps its knobs.

    Shares: one step of the grid moves from the least learnable group that can spare it to the most
    learnable one; with shares off the grid, or below the bounds, after rounding them. The other
    knobs: moved by `difficulty_step` from the current value, within the bounds, and then to the
    nearest ones of which instances can be made.
    """
    space = domain.space
    rates = {
        group: tally.valid_percent if (tally := evidence.validation.get(group)) else None
        for group in space.groups
    }
    before = knobs_or_zero(current, space)
    shares = _shift(
        [before[group][space.share] for group in space.groups],
        [None if rate is None else learnability(rate) for rate in rates.values()],
        space,
    )
    values: Values = {}
    for (group, rate), share in zip(rates.items(), shares, strict=True):
        step = 0 if rate is None else difficulty_step(rate)
        knobs = {space.share: space.from_units(share)} | {
            knob: moved(space, knob, before[group][knob], step) for knob in space.difficulty_knobs
        }
        values[group] = feasible_or_same(domain, group, knobs)
    return space.make(values)


def knobs_or_zero(current: Configuration, space: KnobSpace) -> Values:
    """The knobs of all groups of a space; of those that a configuration lacks, zeros."""
    given = current.values()
    return {group: given.get(group, dict.fromkeys(space.knobs, 0.0)) for group in space.groups}


def moved(space: KnobSpace, knob: str, value: float, steps: int) -> float:
    """A knob moved by so many steps of the grid, within its limits."""
    low, high = (space.to_units(limit) for limit in space.limits(knob))
    return space.from_units(min(max(space.to_units(value) + steps, low), high))


def feasible_or_same(domain: Domain, group: str, knobs: Mapping[str, float]) -> dict[str, float]:
    """The nearest knobs of which instances can be made, or the same ones where none are."""
    try:
        return dict(domain.nearest(group, knobs))
    except InfeasibleError:
        return dict(knobs)


def _shift(ratios: Sequence[float], values: Sequence[int | None], space: KnobSpace) -> list[int]:
    """Shares in steps of the grid, one of them moved to where most can be learned."""
    one = int(len(ratios) <= space.units)  # no group is dropped while there are steps for all
    floor = max(one, space.to_units(space.min_share))
    shares = apportion(ratios, space.units, floor)
    known = [(value, -place) for place, value in enumerate(values) if value is not None]
    spare = [(value, place) for value, place in known if shares[-place] > floor]
    if known and spare and max(known)[0] > min(spare)[0]:
        shares[-max(known)[1]] += 1
        shares[-min(spare)[1]] -= 1
    return shares
