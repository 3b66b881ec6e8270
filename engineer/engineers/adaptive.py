"""Engineers that follow the latest evidence by a formula."""

from dataclasses import dataclass

from engineer.engineers.base import Task
from engineer.engineers.computed import (
    ComputedEngineer,
    compose_configuration,
    equal_shares,
    moved_knobs,
    same_knobs,
    split_data,
    valid_rates,
    variance,
)
from engineer.engineers.rule import difficulty_step
from engineer.space import Configuration

FLOOR = 0.05
"""The least share of a group, so that no group is forgotten or disappears from the evidence."""


@dataclass(frozen=True)
class FailureProportionalEngineer(ComputedEngineer):
    """Gives shares in proportion to the failure rates on the validation set; other knobs stay.

    A group without validation answers counts as the mean of the others. Where nothing fails the
    shares stay.

    Args:
        floor: least share of each group, see `split_data`.
    """

    floor: float = FLOOR
    name: str = "failure_proportional"

    def configuration_for(self, task: Task) -> Configuration:
        """Give more data where more fails."""
        view = task.view
        failing = {
            group: None if rate is None else 1.0 - rate for group, rate in valid_rates(view).items()
        }
        shares = split_data(failing, view, self.floor)
        return compose_configuration(view.domain, shares, same_knobs(view))


@dataclass(frozen=True)
class ThresholdEngineer(ComputedEngineer):
    """Controls each group's difficulty by two thresholds on its valid rate.

    This is the controller of automatic domain randomisation (Akkaya et al. 2019). Above the upper
    threshold the group's knobs go up, and below the lower one down. Between them, and without
    validation answers, they stay. Shares are equal, so that the engineer controls nothing else.

    Args:
        lower: valid rate below which a group gets easier.
        upper: valid rate above which it gets harder.
        steps: number of grid steps by which knobs move.
    """

    lower: float = 0.2
    upper: float = 0.8
    steps: int = 1
    name: str = "threshold"

    def __post_init__(self) -> None:
        if not 0.0 <= self.lower <= self.upper <= 1.0:
            raise ValueError(
                f"lower and upper must satisfy 0 <= lower <= upper <= 1, got {self.lower:g} and"
                f" {self.upper:g}"
            )
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1, got {self.steps}")

    def configuration_for(self, task: Task) -> Configuration:
        """Make easy groups harder and hard groups easier."""
        view = task.view
        steps = {
            group: 0 if rate is None else self.steps * ((rate > self.upper) - (rate < self.lower))
            for group, rate in valid_rates(view).items()
        }
        shares = equal_shares(view.domain.space)
        return compose_configuration(view.domain, shares, moved_knobs(view, steps))


@dataclass(frozen=True)
class LearnabilityEngineer(ComputedEngineer):
    """Gives shares in proportion to learnability p(1-p); other knobs move by the rule's steps.

    See Tzannetos et al. 2023 and Rutherford et al. 2024. Learnability is what the training
    measured, the mean of p(1-p) over prompts: the variance that the policy gradient of groups of
    rollouts feeds on. A group that was not trained on has the p(1-p) of its validation rate
    instead. That is never smaller than the mean over its instances, so it errs towards trying the
    group. A group with neither counts as the mean of the others. Where nothing can be learned the
    shares stay.

    Args:
        floor: least share of each group, see `split_data`.
    """

    floor: float = FLOOR
    name: str = "learnability"

    def configuration_for(self, task: Task) -> Configuration:
        """Give more data where answers vary, and move knobs towards where they would."""
        view = task.view
        training = view.evidence.training
        measured = training.learnability if training else {}
        weights = {
            group: measured.get(group, None if rate is None else variance(rate))
            for group, rate in valid_rates(view).items()
        }
        steps = {
            group: difficulty_step(percent)
            for group, tally in view.evidence.validation.items()
            if (percent := tally.valid_percent) is not None
        }
        shares = split_data(weights, view, self.floor)
        return compose_configuration(view.domain, shares, moved_knobs(view, steps))
