"""Engineers that follow the latest evidence by a formula."""

from dataclasses import dataclass

from engineer.engineers.base import Task
from engineer.engineers.computed import (
    ComputedEngineer,
    by_group,
    compose_configuration,
    moved_knobs,
    split_data,
    valid_rates,
    variance,
)
from engineer.space import Configuration, apportion

FLOOR = 0.05
"""The least share of a group, so that no group is forgotten or disappears from the evidence."""
LOWER, UPPER = 0.2, 0.8
"""The valid rates below and above which the threshold engineer moves a group's knobs."""
HARD, EASY = 0.2, 0.6
"""The valid rates below and from which the learnability engineer moves them."""


@dataclass(frozen=True)
class FailureProportionalEngineer(ComputedEngineer):
    """Gives shares in proportion to the failure rates on the validation set; other knobs stay."""

    name: str = "failure_proportional"

    def _configuration(self, task: Task) -> Configuration:
        rates = valid_rates(task.view)
        failing = {group: None if rate is None else 1.0 - rate for group, rate in rates.items()}
        return compose_configuration(task.view, split_data(failing, task.view, FLOOR))


@dataclass(frozen=True)
class ThresholdEngineer(ComputedEngineer):
    """Controls each group's difficulty by two thresholds on its valid rate.

    This is the controller of automatic domain randomisation (Akkaya et al. 2019). Above the upper
    threshold the group's knobs go up by one edit, and below the lower one down. Between them,
    and without validation answers, they stay. Shares are equal (they differ by one step at most,
    larger ones first), so that the engineer controls nothing else.
    """

    name: str = "threshold"

    def _configuration(self, task: Task) -> Configuration:
        space = task.view.domain.space
        rates = valid_rates(task.view).items()
        steps = {g: (rate > UPPER) - (rate < LOWER) for g, rate in rates if rate is not None}
        equal = apportion([1.0] * len(space.groups), space.units, space.to_units(space.min_share))
        knobs = moved_knobs(task.view, steps)
        return compose_configuration(task.view, by_group(space, equal), knobs)


@dataclass(frozen=True)
class LearnabilityEngineer(ComputedEngineer):
    """Gives shares in proportion to learnability p(1-p), and moves knobs by the valid rate.

    See Tzannetos et al. 2023 and Rutherford et al. 2024. Learnability is what the training
    measured, the mean over updates of an update's mean p(1-p); a group that was not trained on has
    the p(1-p) of its validation rate instead, which is never smaller than the mean over its
    instances.
    """

    name: str = "learnability"

    def _configuration(self, task: Task) -> Configuration:
        view, training = task.view, task.view.evidence.training
        measured = training.learnability if training else {}
        rates = valid_rates(view)
        weights = {
            group: measured.get(group, None if rate is None else variance(rate))
            for group, rate in rates.items()
        }
        steps = {g: (rate >= EASY) - (rate < HARD) for g, rate in rates.items() if rate is not None}
        knobs = moved_knobs(view, steps)
        return compose_configuration(view, split_data(weights, view, FLOOR), knobs)
