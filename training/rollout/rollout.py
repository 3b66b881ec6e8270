"""Rollouts: sampled and scored completions of a batch of instances."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from training.environments.protocol import Instances, Scores
from training.learner.grpo import has_reward_variance
from training.run.active_run import ActiveRun
from training.run.records import GroupMetrics
from training.run.throughput import UpdateWork
from training.sampling.sampler import Completion, Sampler, SamplingRequest, Tokens
from training.schema import RewardConfig


@dataclass(frozen=True)
class Rollout:
    """P instances, which are boards on the lake, with n completions each."""

    boards: Instances  # (P,)
    prompts: Sequence[Tokens]  # token ids of P prompts
    completions: list[Completion]  # P * n, ordered by prompt
    scores: Scores  # P * n, in the order of `completions`
    rewards: np.ndarray  # float32 (P, n)
    overlong: np.ndarray  # float32 (P, n), length penalties already subtracted from `rewards`
    groups: np.ndarray  # int or str (P,), group of each instance

    def replace_prompts(
        self, indices: np.ndarray, donor: "Rollout", replacements: np.ndarray
    ) -> "Rollout":
        """Return this rollout with some prompts replaced by prompts of another rollout.

        Args:
            indices: int (count,), indices of the prompts to replace.
            donor: A rollout with the same number of completions per prompt.
            replacements: int (count,), indices of the replacements in `donor`.
        """
        prompt_rows = np.arange(len(self.prompts))
        prompt_rows[indices] = len(prompt_rows) + replacements
        num_completions = self.rewards.shape[1]
        rows = (prompt_rows[:, None] * num_completions + np.arange(num_completions)).reshape(-1)
        scores = zip(self.scores, donor.scores, strict=True)
        prompts = [*self.prompts, *donor.prompts]
        completions = [*self.completions, *donor.completions]
        return Rollout(
            self.boards.concatenate(donor.boards).take(prompt_rows),
            [prompts[source] for source in prompt_rows],
            [completions[row] for row in rows],
            Scores(*(np.concatenate(arrays)[rows] for arrays in scores)),
            np.concatenate([self.rewards, donor.rewards])[prompt_rows],
            np.concatenate([self.overlong, donor.overlong])[prompt_rows],
            np.concatenate([self.groups, donor.groups])[prompt_rows],
        )


def rollout_request(run: ActiveRun, boards: Instances, *, seed: int) -> SamplingRequest:
    """Return the request for completions of the prompts of these instances."""
    prompts = run.environment.prompts(boards)
    return SamplingRequest(
        prompts=[run.policy.encode_prompt(text) for text in prompts],
        n=run.config.grpo.completions,
        temperature=run.config.sampling.temperature,
        max_tokens=run.config.prompt.max_tokens,
        stop_token_ids=run.policy.stop_ids,
        seed=seed,
    )


def roll_out(
    run: ActiveRun,
    sampler: Sampler,
    boards: Instances,
    request: SamplingRequest,
    *,
    seconds: dict[str, float],
    work: UpdateWork | None = None,
) -> Rollout:
    """Sample, verify and reward answers to instances.

    Wall-clock times and generated tokens are added to `seconds` and `work`.
    """
    with run.add_seconds(seconds, "rollout"):
        completion_groups = sampler.sample(request)
    completions = [completion for group in completion_groups for completion in group]
    if work is not None:
        work.generated_tokens += sum(len(completion.token_ids) for completion in completions)
    with run.add_seconds(seconds, "verify"):
        texts = [
            run.policy.decode(completion.token_ids, prompt)
            for prompt, group in zip(request.prompts, completion_groups, strict=True)
            for completion in group
        ]
        repeated_boards = boards.take(np.repeat(np.arange(len(boards)), request.n))
        scores = run.environment.judge(repeated_boards, texts).scores
        shape = (len(boards), request.n)
        lengths = np.reshape([len(completion.token_ids) for completion in completions], shape)
        penalties = overlong_penalty(lengths, run.config.prompt.max_tokens, run.config.reward)
        rewards = scores.rewards.reshape(shape) - penalties
        groups = run.environment.groups(boards)
    return Rollout(boards, request.prompts, completions, scores, rewards, penalties, groups)


def overlong_penalty(lengths: np.ndarray, max_tokens: int, settings: RewardConfig) -> np.ndarray:
    """Return DAPO's soft overlong penalty (Yu et al. 2025, eq. 13) of each answer.

    The penalty rises linearly over the last `overlong_buffer` tokens before the limit, from 0 to
    `overlong_penalty`. Lengths and the limit are in tokens. The result is float32 in the shape of
    `lengths`.
    """
    if not settings.overlong_buffer:
        return np.zeros(lengths.shape, np.float32)
    excess = np.clip(lengths - (max_tokens - settings.overlong_buffer), 0, settings.overlong_buffer)
    return (settings.overlong_penalty * excess / settings.overlong_buffer).astype(np.float32)


def rollout_metrics(run: ActiveRun, rollout: Rollout) -> dict[str, Any]:
    """Return a rollout's metrics for `metrics.jsonl`, over all completions and by group."""
    completions, scores, rewards = rollout.completions, rollout.scores, rollout.rewards
    # The domain's first score, if it has any: optimality on the lake.
    score_keys = [label.key for label in run.environment.domain.scores[:1]]
    sampled_logprobs = np.concatenate([completion.logprobs for completion in completions])
    rates = np.reshape(scores.valid, rewards.shape).mean(axis=1)  # (P,)
    lengths = np.array([len(completion.token_ids) for completion in completions])
    truncation_mask = np.array([completion.truncated for completion in completions])
    metrics_by_group = {}
    for group in np.unique(rollout.groups).tolist():
        group_mask = rollout.groups == group
        rows = np.repeat(group_mask, rewards.shape[1])
        metrics_by_group[str(group)] = GroupMetrics(
            count=int(rows.sum()),
            valid=int(scores.valid[rows].sum()),
            scores=dict.fromkeys(score_keys, int(scores.best[rows].sum())),
            failures=_count_failures(scores.failures[rows]),
            reward=_round(rewards.reshape(-1)[rows].mean()),
            # p (1 - p), where p is a prompt's valid rate
            learnability=_round(np.mean(rates[group_mask] * (1 - rates[group_mask]))),
            readable=int(scores.parsed[rows].sum()),
            truncated=int(truncation_mask[rows].sum()),
            tokens=_round(lengths[rows].mean()),
            prompts=int(group_mask.sum()),
            without_success=int((rates[group_mask] == 0).sum()),
        )
    penalty = {"overlong_penalty": _round(rollout.overlong.mean())}
    return (penalty if run.config.reward.overlong_buffer else {}) | {
        "reward_mean": _round(rewards.mean()),
        "valid_rate": _round(scores.valid.mean()),
        "optimal_rate": _round(scores.best.mean()),
        "parsed_rate": _round(scores.parsed.mean()),
        "zero_variance_share": _round((~has_reward_variance(rewards)).mean()),
        "completion_length": _round(lengths.mean()),
        # The mean negative log-probability of sampled tokens is an unbiased entropy estimate.
        "entropy": _round(-np.mean(sampled_logprobs)),
        "truncated_share": _round(truncation_mask.mean()),
        "by_group": metrics_by_group,
    }


def _count_failures(failures: np.ndarray) -> dict[str, int]:
    """Count first failures by kind."""
    return dict(sorted(Counter(key for key in failures.tolist() if key is not None).items()))


def _round(value: Any) -> float:
    return round(float(value), 6)
