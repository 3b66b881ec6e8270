"""Completions for a batch of boards, verified and rewarded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from training.instances import InstanceSet
from training.judge import Verdict, judge
from training.language.prompts import render
from training.learning.rewards import reward
from training.phases.context import Run
from training.sampling.vllm_sampler import Completion, VllmSampler

NO_VARIANCE = 1e-6  # standard deviation of rewards below which a group teaches nothing


@dataclass(frozen=True)
class Rollout:
    """P boards, n completions each.

    Attributes:
      boards: P boards.
      prompts: token ids of each.
      groups: n completions of each.
      verdict: what became of the P * n answers, in order.
      rewards: float32 (P, n).
    """

    boards: InstanceSet
    prompts: list[list[int]]
    groups: list[list[Completion]]
    verdict: Verdict
    rewards: np.ndarray

    @property
    def completions(self) -> list[Completion]:
        """All P * n, group by group."""
        return [completion for group in self.groups for completion in group]

    @property
    def teaches(self) -> np.ndarray:
        """bool (P,): the group's rewards differ, so that its advantages are not all zero."""
        return self.rewards.std(axis=1) > NO_VARIANCE


def roll_out(
    run: Run, sampler: VllmSampler, boards: InstanceSet, *, seed: int, seconds: dict[str, float]
) -> Rollout:
    """Sample, parse, verify and reward; adds to `seconds` what sampling and verifying took."""
    completions_each = run.config.grpo.completions
    with run.clock(seconds, "rollout"):
        style = run.config.prompt.style
        prompts = [run.policy.encode_prompt(render(grid, style)) for grid in boards.grids]
        groups = sampler.sample(
            prompts,
            n=completions_each,
            temperature=run.config.sampling.temperature,
            max_tokens=run.config.prompt.max_tokens,
            stop_token_ids=run.policy.stop_ids,
            seed=seed,
        )
    with run.clock(seconds, "verify"):
        texts = [run.policy.decode(one.token_ids) for group in groups for one in group]
        repeated = boards.take(np.repeat(np.arange(len(boards)), completions_each))
        verdict = judge(repeated, texts, run.config.prompt)
        rewards = np.asarray(reward(verdict.outcomes, run.config.reward))
    return Rollout(boards, prompts, groups, verdict, rewards.reshape(len(boards), -1))


def metrics_of(rollout: Rollout) -> dict[str, Any]:
    """What `metrics.jsonl` says of a rollout, over all and by map size."""
    completions, rewards = rollout.completions, rollout.rewards
    outcomes = rollout.verdict.outcomes
    valid = np.asarray(outcomes.valid)
    sizes = np.repeat(np.asarray(rollout.boards.instances.size), rewards.shape[1])
    return {
        "reward_mean": round(float(rewards.mean()), 6),
        "valid_rate": round(float(outcomes.valid.mean()), 6),
        "optimal_rate": round(float(outcomes.optimal_sum_of_costs.mean()), 6),
        "parsed_rate": round(float(outcomes.parsed.mean()), 6),
        "zero_variance_share": round(float((~rollout.teaches).mean()), 6),
        "completion_length": round(
            float(np.mean([len(completion.token_ids) for completion in completions])), 6
        ),
        # What sampled tokens cost in nats, on average, estimates the entropy without bias.
        "entropy": round(
            -float(np.mean(np.concatenate([completion.logprobs for completion in completions]))), 6
        ),
        "truncated_share": round(float(np.mean([one.truncated for one in completions])), 6),
        "by_size": {
            str(size): {
                "count": int((sizes == size).sum()),
                "valid": int(outcomes.valid[sizes == size].sum()),
                "optimal": int(outcomes.optimal_sum_of_costs[sizes == size].sum()),
                "reward": round(float(rewards.reshape(-1)[sizes == size].mean()), 6),
                "learnability": _learnability(valid, sizes == size, rewards.shape),
            }
            for size in np.unique(sizes).tolist()
        },
    }


def _learnability(valid: np.ndarray, chosen: np.ndarray, shape: tuple[int, ...]) -> float:
    """Mean over groups of p (1 - p), p the group's valid rate: how much a group can teach."""
    rates = valid.reshape(shape).mean(axis=1)[chosen.reshape(shape)[:, 0]]
    return round(float(np.mean(rates * (1 - rates))), 6)
