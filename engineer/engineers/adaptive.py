"""Engineers that compute a configuration from the evidence by published formulas."""

import math
from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean

from engineer.context.view import StageView
from engineer.engineers.base import Task
from engineer.engineers.computed import (
    ComputedEngineer,
    make_configuration,
    move_knobs,
    split_shares,
    variance,
)
from engineer.space import Configuration

FLOOR = 0.05
"""Minimum share of a group, so that no group is forgotten or missing from the evidence."""
HARD, EASY = 0.2, 0.6
"""Groups with a valid rate below HARD get easier, and groups at EASY or above get harder."""


@dataclass(frozen=True)
class LearnabilityEngineer(ComputedEngineer):
    """Splits data in proportion to learnability p(1-p), and moves knobs by the valid rate.

    See Tzannetos et al. 2023 and Rutherford et al. 2024. The learnability of a group is the mean
    p(1-p) of its training prompts, averaged over updates. Groups without training use the p(1-p)
    of their valid rate, an upper bound of the mean over instances.
    """

    name: str = "learnability"

    def _configuration(self, task: Task) -> Configuration:
        view, learnability = task.view, _current_learnability(task.view)
        rates = view.evidence.valid_rates()
        weights = {group: learnability.get(group) for group in view.domain.space.groups}
        edits = {group: (rate >= EASY) - (rate < HARD) for group, rate in rates.items()}
        shares = split_shares(weights, view, FLOOR)
        return make_configuration(view.domain, shares, move_knobs(view, edits))


@dataclass(frozen=True)
class SecBanditEngineer(ComputedEngineer):
    """Self-Evolving Curriculum (Chen et al. 2025, arXiv 2505.14970), with one decision per stage.

    In the paper, a bandit samples the group of each prompt at each update. Its reward is the mean
    absolute advantage of the rollouts. Here the bandit sets the shares of all groups once per
    stage, and its state is recomputed from the history. Difficulty knobs do not change.

    Q starts at 0 and follows the rewards by TD(0), Q <- (1 - alpha) Q + alpha r. Shares are the
    Boltzmann distribution softmax(Q / tau). Groups without a reward in a stage keep their Q.
    """

    alpha: float = 0.5  # learning rate of Q in (0, 1]; 0.5 in the paper's experiments
    tau: float = 0.4  # temperature; 0.2 to 1 in the paper, 0.4 in its mathematics experiments
    name: str = "sec_bandit"

    def __post_init__(self) -> None:
        if not 0.0 < self.alpha <= 1.0:
            raise ValueError(f"alpha must be in (0, 1], got {self.alpha:g}")
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
        highest = max(values.values())
        weights = {group: math.exp((value - highest) / self.tau) for group, value in values.items()}
        shares = split_shares(weights, task.view)
        return make_configuration(task.view.domain, shares, move_knobs(task.view, {}))


def _current_learnability(view: StageView) -> dict[str, float]:
    """Return p(1-p) in training by group, or of the valid rate for groups without training."""
    training = view.evidence.training
    rate_variances = {group: variance(rate) for group, rate in view.evidence.valid_rates().items()}
    return rate_variances | (training.learnability if training else {})


def _stage_rewards(view: StageView) -> list[dict[str, float]]:
    """Return the rewards by group, one dictionary per stage, oldest first.

    With binary rewards and GRPO's normalisation, the mean absolute advantage is 2 sqrt(p(1-p)). In
    the latest stage, p(1-p) is the learnability in training, or the p(1-p) of the valid rate for
    groups without training. In earlier stages, p is the mean of the valid rates before and after
    the stage. Groups without evidence in a stage are missing.
    """
    learnability: list[dict[str, float]] = []
    for past_stage in view.history:
        rates: dict[str, list[float]] = defaultdict(list)
        for rates_by_group in (past_stage.valid_before, past_stage.valid_after):
            for group, rate in rates_by_group.items():
                rates[group].append(rate)
        learnability.append({group: variance(fmean(values)) for group, values in rates.items()})
    learnability.append(_current_learnability(view))
    groups = view.domain.space.groups
    return [
        {group: 2.0 * math.sqrt(stage[group]) for group in groups if group in stage}
        for stage in learnability
    ]
