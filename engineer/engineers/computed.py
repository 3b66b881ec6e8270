"""Base class and helpers of engineers that compute a configuration instead of writing text."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from engineer.context.view import StageView
from engineer.domain import Domain
from engineer.engineers.base import Proposal, Task
from engineer.space import Configuration, KnobSpace, answer_text, apportion


class ComputedEngineer(ABC):
    """Base class of engineers whose answer is a function of the task's view and seed."""

    @abstractmethod
    def _configuration(self, task: Task) -> Configuration: ...

    def propose(self, task: Task) -> Proposal:
        """Return the configuration as the canonical answer."""
        start = time.perf_counter()
        text = answer_text(self._configuration(task))
        return Proposal(text, time.perf_counter() - start)


def valid_rates(view: StageView) -> dict[str, float | None]:
    """Return the valid rate of each group, None without validation answers."""
    rates = view.evidence.valid_rates()
    return {group: rates.get(group) for group in view.domain.space.groups}


def variance(rate: float) -> float:
    """Return p(1-p), the variance of a binary reward with rate p."""
    return rate * (1.0 - rate)


def split_data(
    weights: Mapping[str, float | None], view: StageView, floor: float = 0.0
) -> dict[str, float]:
    """Return shares on the grid in proportion to weights.

    Groups with unknown weights get the mean of the others. If no weight is positive, the current
    shares are kept. Each group gets at least the larger of `min_share` and the floor, as far as the
    sum allows; a floor above 0 is at least one grid step.
    """
    space = view.domain.space
    values = [weight for weight in weights.values() if weight is not None]
    mean = math.fsum(values) / len(values) if values else 0.0
    targets = [mean if (w := weights[group]) is None else w for group in space.groups]
    if not math.fsum(targets) > 0.0:
        before = space.knobs_of(view.current)
        targets = [before[group][space.share] for group in space.groups]
    least = space.to_units(space.min_share)
    if floor > 0.0:
        least = max(least, min(max(1, space.to_units(floor)), space.units // len(space.groups)))
    return by_group(space, apportion(targets, space.units, least))


def by_group(space: KnobSpace, steps: Sequence[int]) -> dict[str, float]:
    """Convert grid steps to ratios by group."""
    return {group: space.from_units(n) for group, n in zip(space.groups, steps, strict=True)}


def moved_knobs(view: StageView, steps: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """Return the current difficulty knobs, moved by a number of edits per group."""
    space = view.domain.space
    before = space.knobs_of(view.current)
    return {
        group: {
            knob: space.moved(knob, before[group][knob], steps.get(group, 0) * space.edit_steps)
            for knob in space.difficulty_knobs
        }
        for group in space.groups
    }


def compose_configuration(
    view: StageView,
    shares: Mapping[str, float],
    knobs: Mapping[str, Mapping[str, float]] | None = None,
) -> Configuration:
    """Return a configuration with shares and difficulty knobs by group; None: current knobs."""
    knobs = moved_knobs(view, {}) if knobs is None else knobs
    return make_configuration(view.domain, shares, knobs)


def make_configuration(
    domain: Domain, shares: Mapping[str, float], knobs: Mapping[str, Mapping[str, float]]
) -> Configuration:
    """Return a configuration with shares and the nearest feasible difficulty knobs by group."""
    share = domain.space.share
    return domain.space.make(
        {
            group: domain.nearest_or_same(group, {share: shares[group], **knobs[group]})
            for group in domain.space.groups
        }
    )
