"""Multi-armed bandits over the groups, stage by stage; difficulty knobs stay.

Both papers sample the group of each prompt at each update and reward it with the mean absolute
advantage of its rollouts. Here a bandit decides once per stage, about the shares of all groups, and
is recomputed from the view each time.

For a binary reward and GRPO's normalisation that is 2 sqrt(p(1-p)). For the stage that just ended,
p(1-p) is the learnability measured in training, or else that of the validation rate. Of earlier
stages a view holds valid rates only: there p is the mean of the rates before and after the stage.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from engineer.context.view import StageView
from engineer.engineers.base import Task
from engineer.engineers.computed import (
    ComputedEngineer,
    compose_configuration,
    split_data,
    variance,
)
from engineer.space import Configuration

STAGE_INSTANCES = 256
"""The size that earlier stages are taken to have if the latest one had no training."""


@dataclass(frozen=True)
class SecBanditEngineer(ComputedEngineer):
    """Self-Evolving Curriculum (Chen et al. 2025, arXiv 2505.14970).

    Q starts at 0 and follows the rewards by TD(0), Q <- (1 - alpha) Q + alpha r. Shares are the
    Boltzmann distribution softmax(Q / tau). A group without a reward in a stage keeps its Q.
    """

    alpha: float = 0.5  # learning rate of Q, above 0 and at most 1; 0.5 in the paper's experiments
    tau: float = 0.4  # temperature; 0.2 to 1 in the paper, 0.4 for its mathematics
    name: str = "sec_bandit"

    def __post_init__(self) -> None:
        if not 0.0 < self.alpha <= 1.0:
            raise ValueError(f"alpha must lie in 0..1 and above 0, got {self.alpha:g}")
        _check_temperature(self.tau)

    def values(self, view: StageView) -> dict[str, float]:
        """Return Q of each group after the stage that just ended."""
        values = dict.fromkeys(view.domain.space.groups, 0.0)
        for rewards in stage_rewards(view):
            for group, reward in rewards.items():
                values[group] += self.alpha * (reward - values[group])
        return values

    def _configuration(self, task: Task) -> Configuration:
        return _boltzmann(task.view, self.values(task.view), self.tau)


@dataclass(frozen=True)
class DumpBanditEngineer(ComputedEngineer):
    """DUMP, distribution-level curriculum learning (Wang et al. 2025, arXiv 2504.09710).

    Shares are softmax(UCB / tau) with UCB = L + sqrt(2 ln(N + 1) / (n + 1)): L is the group's mean
    reward over the latest stages, n the number of instances of the group that were trained on so
    far, and N that of all groups. A group without a reward has L = 0.

    Only the size of the stage that just ended is known. Earlier stages are taken to be as large.
    """

    tau: float = 0.1  # temperature, as in the authors' code
    window: int = 1  # latest stages whose rewards count; the paper keeps a group's last 300 answers
    name: str = "dump_bandit"

    def __post_init__(self) -> None:
        _check_temperature(self.tau)
        if self.window < 1:
            raise ValueError(f"window must be at least 1, got {self.window}")

    def values(self, view: StageView) -> dict[str, float]:
        """Return the upper confidence bound of each group."""
        space, training = view.domain.space, view.evidence.training
        size = training.instances if training else STAGE_INSTANCES
        trained_on = [past.configuration for past in view.history]
        if training:
            trained_on.append(view.trained or view.current)
        shares = [space.knobs_of(configuration) for configuration in trained_on]
        counts = {
            group: size * math.fsum(knobs[group][space.share] for knobs in shares)
            for group in space.groups
        }
        total = math.fsum(counts.values())
        latest = stage_rewards(view)[-self.window :]
        bounds = {}
        for group, count in counts.items():
            rewards = [stage[group] for stage in latest if group in stage]
            mean = math.fsum(rewards) / len(rewards) if rewards else 0.0
            bounds[group] = mean + math.sqrt(2.0 * math.log(total + 1.0) / (count + 1.0))
        return bounds

    def _configuration(self, task: Task) -> Configuration:
        return _boltzmann(task.view, self.values(task.view), self.tau)


def stage_rewards(view: StageView) -> list[dict[str, float]]:
    """Return the rewards by group, one dictionary per stage, the one that just ended last.

    A group of which a stage says nothing is missing in that stage's dictionary.
    """
    stages: list[dict[str, float]] = []
    for past in view.history:
        found: dict[str, list[float]] = {}
        for rates in (past.valid_before, past.valid_after):
            for group, rate in rates.items():
                found.setdefault(group, []).append(rate)
        stages.append({g: variance(math.fsum(rates) / len(rates)) for g, rates in found.items()})
    validated = view.evidence.valid_rates()
    training = view.evidence.training
    stages.append(
        {group: variance(rate) for group, rate in validated.items()}
        | (training.learnability if training else {})
    )
    groups = view.domain.space.groups
    return [
        {group: 2.0 * math.sqrt(stage[group]) for group in groups if group in stage}
        for stage in stages
    ]


def _boltzmann(view: StageView, values: Mapping[str, float], tau: float) -> Configuration:
    most = max(values.values())
    weights = {group: math.exp((value - most) / tau) for group, value in values.items()}
    return compose_configuration(view, split_data(weights, view))


def _check_temperature(tau: float) -> None:
    if not tau > 0.0:
        raise ValueError(f"tau must be above 0, got {tau:g}")
