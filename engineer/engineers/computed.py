"""What the engineers that compute a configuration, instead of writing text, have in common.

They read the view and not the prompt, cost no tokens, and are reviewed like all others.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping

from engineer.context.view import View
from engineer.domain import Domain
from engineer.engineers.base import Proposal, Task
from engineer.rule import feasible_or_same, knobs_or_zero, moved
from engineer.space import Configuration, KnobSpace, answer_text, apportion


class ComputedEngineer(ABC):
    """An engineer whose answer is a function of the task's view and seed."""

    @abstractmethod
    def configuration_for(self, task: Task) -> Configuration:
        """The configuration that it proposes."""

    def propose(self, task: Task) -> Proposal:
        """Write the configuration as the canonical answer."""
        start = time.perf_counter()
        text = answer_text(self.configuration_for(task))
        return Proposal(text, time.perf_counter() - start)


def valid_rates(view: View) -> dict[str, float | None]:
    """The valid rate of each group of the space; None where there are no validation answers."""
    tallies = {group: view.evidence.validation.get(group) for group in view.domain.space.groups}
    return {
        group: tally.valid / tally.count if tally and tally.count else None
        for group, tally in tallies.items()
    }


def variance(rate: float) -> float:
    """p(1-p), what a binary reward of that rate varies by."""
    return rate * (1.0 - rate)


def split(weights: Mapping[str, float | None], view: View, floor: float = 0.0) -> dict[str, float]:
    """Shares on the grid in proportion to weights.

    A group whose weight isn't known counts as the mean of the others. Where no weight is positive
    there is nothing to go by and the shares in force stay.

    Args:
        weights: by group of the space, finite, >= 0.
        view: the space and the shares in force.
        floor: least share of each group if more than `min_share`, as far as all groups can have it;
            at least a step of the grid unless it is 0.
    """
    space = view.domain.space
    known = [weight for weight in weights.values() if weight is not None]
    mean = math.fsum(known) / len(known) if known else 0.0
    wanted = [mean if (w := weights[group]) is None else w for group in space.groups]
    if not math.fsum(wanted) > 0.0:
        before = knobs_or_zero(view.current, space)
        wanted = [before[group][space.share] for group in space.groups]
    steps = apportion(wanted, space.units, _least(space, floor))
    return {group: space.from_units(n) for group, n in zip(space.groups, steps, strict=True)}


def equal_shares(space: KnobSpace) -> dict[str, float]:
    """Shares on the grid that differ by one step at most, the larger ones first."""
    steps = apportion([1.0] * len(space.groups), space.units, space.to_units(space.min_share))
    return {group: space.from_units(n) for group, n in zip(space.groups, steps, strict=True)}


def _least(space: KnobSpace, floor: float) -> int:
    wanted = max(1, space.to_units(floor)) if floor > 0.0 else 0
    fits = space.units // len(space.groups)
    return max(space.to_units(space.min_share), min(wanted, fits))


def moved_knobs(view: View, steps: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """The difficulty knobs in force, each group's moved by so many steps of the grid."""
    space = view.domain.space
    before = knobs_or_zero(view.current, space)
    return {
        group: {
            knob: moved(space, knob, before[group][knob], steps.get(group, 0))
            for knob in space.difficulty_knobs
        }
        for group in space.groups
    }


def same_knobs(view: View) -> dict[str, dict[str, float]]:
    """The difficulty knobs in force, on the grid."""
    return moved_knobs(view, {})


def compose(
    domain: Domain, shares: Mapping[str, float], knobs: Mapping[str, Mapping[str, float]]
) -> Configuration:
    """A configuration of shares and difficulty knobs by group.

    Knobs go to the nearest ones of which instances can be made, where there are any.
    """
    space = domain.space
    return space.make(
        {
            group: feasible_or_same(domain, group, {space.share: shares[group], **knobs[group]})
            for group in space.groups
        }
    )
