"""Engineers that follow the latest evidence by a formula."""

from dataclasses import dataclass

from engineer.engineers.base import Task
from engineer.engineers.computed import (
    ComputedEngineer,
    compose,
    equal_shares,
    moved_knobs,
    same_knobs,
    split,
    valid_rates,
    variance,
)
from engineer.rule import difficulty_step
from engineer.space import Configuration

FLOOR = 0.05
"""The least share of a group, so that none is forgotten or drops out of sight."""


@dataclass(frozen=True)
class FailureProportionalEngineer(ComputedEngineer):
    """Shares in proportion to the failure rates on the validation set; other knobs stay.

    A group without validation answers counts as the mean of the others; where nothing fails the
    shares stay.

    Args:
        floor: least share of each group, see `split`.
    """

    floor: float = FLOOR
    name: str = "failure_proportional"

    def configuration_for(self, task: Task) -> Configuration:
        """More data where more fails."""
        view = task.view
        failing = {
            group: None if rate is None else 1.0 - rate for group, rate in valid_rates(view).items()
        }
        return compose(view.domain, split(failing, view, self.floor), same_knobs(view))


@dataclass(frozen=True)
class ThresholdEngineer(ComputedEngineer):
    """A controller with two thresholds on each group's valid rate, as automatic domain
    randomisation has (Akkaya et al. 2019).

    Above the upper one the group's knobs go up, below the lower one down, between them and without
    validation answers they stay. Shares are equal, so that knobs are all that it controls.

    Args:
        lower: valid rate below which a group gets easier.
        upper: valid rate above which it gets harder.
        steps: steps of the grid by which knobs move.
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
        """Harder where it is easy, easier where it is hard."""
        view = task.view
        moves = {
            group: 0 if rate is None else self.steps * ((rate > self.upper) - (rate < self.lower))
            for group, rate in valid_rates(view).items()
        }
        return compose(view.domain, equal_shares(view.domain.space), moved_knobs(view, moves))


@dataclass(frozen=True)
class LearnabilityEngineer(ComputedEngineer):
    """Shares in proportion to learnability p(1-p) (Tzannetos et al. 2023, Rutherford et al. 2024);
    other knobs by the step of `engineer.rule`.

    Learnability is what the training measured, the mean of p(1-p) over prompts: it is the variance
    that the policy gradient of groups of rollouts feeds on. A group that was not trained on has the
    p(1-p) of its validation rate instead, which is never smaller than the mean over its instances
    would be and so errs towards trying it. A group with neither counts as the mean of the others;
    where nothing can be learned the shares stay.

    Args:
        floor: least share of each group, see `split`.
    """

    floor: float = FLOOR
    name: str = "learnability"

    def configuration_for(self, task: Task) -> Configuration:
        """More data where answers vary, knobs towards where they would."""
        view = task.view
        training = view.evidence.training
        measured = training.learnability if training else {}
        weights = {
            group: measured.get(group, None if rate is None else variance(rate))
            for group, rate in valid_rates(view).items()
        }
        percents = {group: tally.valid_percent for group, tally in view.evidence.validation.items()}
        moves = {
            group: difficulty_step(percent)
            for group, percent in percents.items()
            if percent is not None
        }
        return compose(view.domain, split(weights, view, self.floor), moved_knobs(view, moves))
