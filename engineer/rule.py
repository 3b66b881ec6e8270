"""A simple rule that writes the next configuration: train where answers vary, step by step.

GRPO learns from groups whose rewards differ, and a map size that is solved with probability p gives
p(1-p) of that: most at one half, nothing at 0 and 1. The rule reads only what the compact context
displays (whole per cents and the current knobs), so that a small model can learn it from contexts.
"""

from collections.abc import Callable, Sequence

from engineer.configuration import Bounds, LakeConfiguration, SizeKnobs, apportion
from engineer.evidence import SizeEvidence, StageEvidence

Feasibility = Callable[[int, float, int], str | None]

# Per cents valid. Both are tens, so that the leading digit of what is displayed decides.
EASY = 60  # from here on a size gets harder
HARD = 20  # below, it gets easier


def learnability(valid_percent: int) -> int:
    """p(1-p) in units of 1e-4, p the valid rate: 2500 at one half, 0 at the ends."""
    return valid_percent * (100 - valid_percent)


def difficulty_step(valid_percent: int) -> int:
    """Steps of the grid by which holes and waits move: up when easy, down when hard, else none."""
    return int(valid_percent >= EASY) - int(valid_percent < HARD)


def largest_feasible(
    size: int, hole_ratio: float, *, bounds: Bounds, num_agents: int, feasibility: Feasibility
) -> float | None:
    """The largest hole ratio on the grid, at most `hole_ratio`, with which boards can be made.

    None if even a board without holes can't hold the agents.
    """
    for steps in range(bounds.to_units(hole_ratio), -1, -1):
        ratio = bounds.from_units(steps)
        if feasibility(size, ratio, num_agents) is None:
            return ratio
    return None


def next_configuration(
    evidence: StageEvidence,
    current: LakeConfiguration,
    *,
    bounds: Bounds,
    num_agents: int,
    feasibility: Feasibility,
) -> LakeConfiguration:
    """Apply the rule. A size without validation answers keeps its knobs.

    data_ratio: one step of the grid moves from the least learnable size that can spare it to the
    most learnable one; with shares off the grid, or below the bounds, after rounding them.
    hole_ratio, wait_ratio: moved by `difficulty_step` from the current value, within the bounds,
    and hole_ratio no higher than boards can be made with.
    """
    rates = {size: _valid_percent(evidence.validation.get(size)) for size in bounds.sizes}
    nothing = SizeKnobs(data_ratio=0.0, hole_ratio=0.0, wait_ratio=0.0)
    shares = _shift(
        [current.sizes.get(size, nothing).data_ratio for size in bounds.sizes],
        [None if rate is None else learnability(rate) for rate in rates.values()],
        bounds,
    )
    sizes = {}
    for (size, rate), share in zip(rates.items(), shares, strict=True):
        knobs = current.sizes.get(size, nothing)
        step = 0 if rate is None else difficulty_step(rate)
        holes = _move(knobs.hole_ratio, step, bounds.max_hole_ratio, bounds)
        feasible = largest_feasible(
            size, holes, bounds=bounds, num_agents=num_agents, feasibility=feasibility
        )
        sizes[size] = SizeKnobs(
            data_ratio=bounds.from_units(share),
            hole_ratio=holes if feasible is None else feasible,
            wait_ratio=_move(knobs.wait_ratio, step, bounds.max_wait_ratio, bounds),
        )
    return LakeConfiguration(sizes=sizes)


def _shift(ratios: Sequence[float], values: Sequence[int | None], bounds: Bounds) -> list[int]:
    """Shares in steps of the grid, one of them moved to where most can be learned."""
    one = int(len(ratios) <= bounds.units)  # no size is dropped while there are steps for all
    floor = max(one, bounds.to_units(bounds.min_share))
    shares = apportion(ratios, bounds.units, floor)
    known = [(value, -place) for place, value in enumerate(values) if value is not None]
    spare = [(value, place) for value, place in known if shares[-place] > floor]
    if known and spare and max(known)[0] > min(spare)[0]:
        shares[-max(known)[1]] += 1
        shares[-min(spare)[1]] -= 1
    return shares


def _valid_percent(tally: SizeEvidence | None) -> int | None:
    return tally.percent(tally.valid) if tally is not None and tally.count else None


def _move(ratio: float, steps: int, maximum: float, bounds: Bounds) -> float:
    moved = bounds.to_units(ratio) + steps
    return bounds.from_units(min(max(moved, 0), bounds.to_units(maximum)))
