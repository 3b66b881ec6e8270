"""Engineers that compute a configuration from the evidence by a formula."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from engineer.context.view import StageView
from engineer.engineers.base import Task
from engineer.engineers.computed import (
    ComputedEngineer,
    compose_configuration,
    moved_knobs,
    split_data,
    valid_rates,
    variance,
)
from engineer.space import Configuration

FLOOR = 0.05
"""Minimum share of a group, so that no group is forgotten or missing from the evidence."""
HARD, EASY = 0.2, 0.6
"""Valid rates below which knobs go down, and from which they go up."""


@dataclass(frozen=True)
class LearnabilityEngineer(ComputedEngineer):
    """Splits data in proportion to learnability p(1-p), and moves knobs by the valid rate.

    See Tzannetos et al. 2023 and Rutherford et al. 2024. Learnability is measured in training, as
    the mean over updates of the mean p(1-p) per update. Groups without training use the p(1-p) of
    their validation rate, an upper bound of the mean over instances.
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


@dataclass(frozen=True)
class SecBanditEngineer(ComputedEngineer):
    """Self-Evolving Curriculum (Chen et al. 2025, arXiv 2505.14970), with one decision per stage.

    The paper samples the group of each prompt at each update, rewarded by the mean absolute
    advantage of its rollouts. Here the bandit sets the shares of all groups once per stage, and is
    recomputed from the view each time. Difficulty knobs do not change.

    Q starts at 0 and follows the rewards by TD(0), Q <- (1 - alpha) Q + alpha r. Shares are the
    Boltzmann distribution softmax(Q / tau). Groups without a reward in a stage keep their Q.
    """

    alpha: float = 0.5  # learning rate of Q in (0, 1]; 0.5 in the paper's experiments
    tau: float = 0.4  # temperature; 0.2 to 1 in the paper, 0.4 in its mathematics experiments
    name: str = "sec_bandit"

    def __post_init__(self) -> None:
        if not 0.0 < self.alpha <= 1.0:
            raise ValueError(f"alpha must lie in 0..1 and above 0, got {self.alpha:g}")
        if not self.tau > 0.0:
            raise ValueError(f"tau must be above 0, got {self.tau:g}")

    def values(self, view: StageView) -> dict[str, float]:
        """Return Q of each group after the stage that just ended."""
        values = dict.fromkeys(view.domain.space.groups, 0.0)
        for rewards in _stage_rewards(view):
            for group, reward in rewards.items():
                values[group] += self.alpha * (reward - values[group])
        return values

    def _configuration(self, task: Task) -> Configuration:
        values = self.values(task.view)
        largest = max(values.values())
        weights = {group: math.exp((value - largest) / self.tau) for group, value in values.items()}
        return compose_configuration(task.view, split_data(weights, task.view))


def _stage_rewards(view: StageView) -> list[dict[str, float]]:
    """Return the rewards by group, one dictionary per stage, oldest first.

    With binary rewards and GRPO's normalisation the mean absolute advantage is 2 sqrt(p(1-p)). For
    the latest stage, p(1-p) is the learnability measured in training, or else the one of the
    validation rate. For earlier stages, p is the mean of the valid rates before and after the
    stage. Groups without evidence in a stage are missing.
    """
    stages: list[dict[str, float]] = []
    for past in view.history:
        both = (past.valid_before, past.valid_after)
        stages.append({g: variance(_mean(both, g)) for rates in both for g in rates})
    training = view.evidence.training
    measured = training.learnability if training else {}
    validated = {group: variance(rate) for group, rate in view.evidence.valid_rates().items()}
    stages.append(validated | measured)
    groups = view.domain.space.groups
    return [
        {group: 2.0 * math.sqrt(stage[group]) for group in groups if group in stage}
        for stage in stages
    ]


def _mean(sides: tuple[Mapping[str, float], ...], group: str) -> float:
    rates = [rates[group] for rates in sides if group in rates]
    return math.fsum(rates) / len(rates)
