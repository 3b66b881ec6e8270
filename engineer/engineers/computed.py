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


def variance(rate: float) -> float:
    """Return p(1-p), the variance of a binary reward with rate p."""
    return rate * (1.0 - rate)


def split_shares(
    weights: Mapping[str, float | None], view: StageView, floor: float = 0.0
) -> dict[str, float]:
    """Return shares on the grid in proportion to weights.

    Args:
        weights: The weight of each group, >= 0. Unknown weights (None) become the mean of the
            others. If no weight is positive, the current shares are kept.
        view: The results of the run so far.
        floor: Minimum share of each group in addition to `min_share`, reduced if the floors of all
            groups exceed 1. A floor above 0 is at least one grid step.

    Returns:
        The share of each group, which sum to 1.
    """
    space = view.domain.space
    known_weights = {group: weight for group, weight in weights.items() if weight is not None}
    mean = math.fsum(known_weights.values()) / len(known_weights) if known_weights else 0.0
    targets = [known_weights.get(group, mean) for group in space.groups]
    if not math.fsum(targets) > 0.0:
        current_knobs = space.knobs_of(view.current)
        targets = [current_knobs[group][space.share] for group in space.groups]
    min_units = space.to_units(space.min_share)
    if floor > 0.0:
        equal_share = space.units // len(space.groups)
        min_units = max(min_units, min(max(1, space.to_units(floor)), equal_share))
    return ratios_by_group(space, apportion(targets, space.units, min_units))


def ratios_by_group(space: KnobSpace, steps: Sequence[int]) -> dict[str, float]:
    """Return grid steps as ratios by group."""
    return {group: space.from_units(n) for group, n in zip(space.groups, steps, strict=True)}


def move_knobs(view: StageView, edits: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """Return the current difficulty knobs, moved by a number of edits per group."""
    space = view.domain.space
    current_knobs = space.knobs_of(view.current)
    knobs: dict[str, dict[str, float]] = {}
    for group in space.groups:
        steps = edits.get(group, 0) * space.edit_steps
        knobs[group] = {
            knob: space.move_knob(knob, current_knobs[group][knob], steps)
            for knob in space.difficulty_knobs
        }
    return knobs


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
