"""A simple rule that designs configurations: train where answers vary, and move step by step.

GRPO learns from groups of rollouts whose rewards differ. Instances that are solved with probability
p contribute p(1-p) to that: most at one half, nothing at 0 and 1. The rule reads only what the
compact context displays (whole per cents and the current knobs), so that a small model can learn it
from contexts.
"""

from dataclasses import dataclass

from engineer.context.view import StageView
from engineer.engineers.base import Task
from engineer.engineers.computed import (
    ComputedEngineer,
    by_group,
    compose_configuration,
    moved_knobs,
)
from engineer.space import Configuration, apportion

# Both thresholds are tens, so that the first digit of a displayed per cent decides.
EASY = 60
"""Valid rate in per cents from which on a group gets harder."""
HARD = 20
"""Valid rate in per cents below which a group gets easier."""


def percent_learnability(valid_percent: int) -> int:
    """Return p(1-p) in units of 1e-4 for a valid rate p in per cents: 2500 at one half."""
    return valid_percent * (100 - valid_percent)


def difficulty_step(valid_percent: int) -> int:
    """Return by how many grid steps the knobs move: 1 if easy, -1 if hard, else 0."""
    return int(valid_percent >= EASY) - int(valid_percent < HARD)


def difficulty_steps(view: StageView) -> dict[str, int]:
    """Return `difficulty_step` of each group that has validation answers."""
    return {group: difficulty_step(percent) for group, percent in _percents(view).items()}


def _percents(view: StageView) -> dict[str, int]:
    return {
        group: percent
        for group, tally in view.evidence.validation.items()
        if (percent := tally.valid_percent) is not None
    }


def next_configuration(view: StageView) -> Configuration:
    """Apply the rule.

    Shares: one grid step of data moves from the least learnable group that can spare it to the most
    learnable group. Shares off the grid or below the bounds are rounded first. Other knobs: each
    moves by `difficulty_step` from its current value, within the bounds, and then to the nearest
    knobs of which instances can be made. A group without validation answers keeps its knobs.
    """
    space, percents = view.domain.space, _percents(view)
    before = space.knobs_of(view.current)
    one = int(len(space.groups) <= space.units)  # no group is dropped while there are steps for all
    floor = max(one, space.to_units(space.min_share))
    shares = apportion([before[group][space.share] for group in space.groups], space.units, floor)
    # Negative places break ties: the smallest group takes, the largest one gives.
    known = [
        (percent_learnability(percents[group]), -place)
        for place, group in enumerate(space.groups)
        if group in percents
    ]
    spare = [(value, place) for value, place in known if shares[-place] > floor]
    if known and spare and max(known)[0] > min(spare)[0]:
        shares[-max(known)[1]] += 1
        shares[-min(spare)[1]] -= 1
    knobs = moved_knobs(view, difficulty_steps(view))
    return compose_configuration(view, by_group(space, shares), knobs)


@dataclass(frozen=True)
class RuleEngineer(ComputedEngineer):
    """Applies the rule to the evidence; its answer is the same for every attempt."""

    name: str = "rule"

    def _configuration(self, task: Task) -> Configuration:
        return next_configuration(task.view)
