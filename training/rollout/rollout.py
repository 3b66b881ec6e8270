"""A rollout: completions for a batch of boards, verified and rewarded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxlake import Failure
from training.learner.grpo import has_reward_variance
from training.rollout.instances import InstanceSet, join_boards
from training.rollout.judging import Verdict, judge
from training.rollout.rewards import overlong_penalty, reward
from training.rollout.sampler import Completion, Sampler
from training.run.active_run import ActiveRun
from training.run.records import SizeMetrics
from training.run.throughput import UpdateWork
from training.schema import Reward


@dataclass(frozen=True)
class Rollout:
    """P boards with n completions each."""

    boards: InstanceSet  # P
    prompts: list[list[int]]  # token ids of P prompts
    completions: list[Completion]  # P * n, those of the first prompt first
    verdict: Verdict  # of the P * n answers, in the same order
    rewards: np.ndarray  # float32 (P, n)
    overlong: np.ndarray  # float32 (P, n), what was taken from the rewards for length

    def with_groups(self, places: np.ndarray, other: Rollout, groups: np.ndarray) -> Rollout:
        """Put `groups` of another rollout, with its boards, in the `places` of some of these.

        Both are int (count,), numbers of groups from 0.
        """
        source = np.arange(len(self.prompts))
        source[places] = len(source) + groups
        count = self.rewards.shape[1]
        answers = (source[:, None] * count + np.arange(count)).reshape(-1)
        outcomes = (self.verdict.outcomes, other.verdict.outcomes)
        prompts = [*self.prompts, *other.prompts]
        completions = [*self.completions, *other.completions]
        read = [*self.verdict.answers, *other.verdict.answers]
        return Rollout(
            join_boards([self.boards, other.boards]).take(source),
            [prompts[group] for group in source],
            [completions[row] for row in answers],
            Verdict(
                [read[row] for row in answers],
                jax.tree.map(lambda *leaves: np.concatenate(leaves)[answers], *outcomes),
            ),
            np.concatenate([self.rewards, other.rewards])[source],
            np.concatenate([self.overlong, other.overlong])[source],
        )


def question_of(run: ActiveRun, boards: InstanceSet, *, seed: int) -> dict[str, Any]:
    """Return what a sampler is asked for a rollout, as the arguments of `Sampler.sample`."""
    return {
        "prompts": [run.policy.encode_board(board) for board in boards],
        "n": run.config.grpo.completions,
        "temperature": run.config.sampling.temperature,
        "max_tokens": run.config.prompt.max_tokens,
        "stop_token_ids": run.policy.stop_ids,
        "seed": seed,
    }


def roll_out(
    run: ActiveRun,
    sampler: Sampler,
    boards: InstanceSet,
    *,
    seed: int,
    seconds: dict[str, float],
    work: UpdateWork | None = None,
) -> Rollout:
    """Let the policy answer each board `grpo.completions` times, verify and reward the answers.

    The seed decides what is sampled. The time that each took is added to `seconds`, and what was
    generated to `work`.
    """
    count = run.config.grpo.completions
    with run.clock(seconds, "rollout"):
        question = question_of(run, boards, seed=seed)
        groups = sampler.sample(**question)
    completions = [completion for group in groups for completion in group]
    if work is not None:
        work.generated_tokens += sum(len(one.token_ids) for one in completions)
    with run.clock(seconds, "verify"):
        texts = [run.policy.decode(completion.token_ids) for completion in completions]
        repeated = boards.take(np.repeat(np.arange(len(boards)), count))
        verdict = judge(repeated, texts, run.config.prompt)
        shape = (len(boards), count)
        lengths = np.reshape([len(one.token_ids) for one in completions], shape)
        overlong = overlong_penalty(lengths, run.config.prompt.max_tokens, run.config.reward)
        rewards = np.asarray(reward(verdict.outcomes, run.config.reward)).reshape(shape)
    return Rollout(boards, question["prompts"], completions, verdict, rewards - overlong, overlong)


def rollout_metrics(
    rollout: Rollout, settings: Reward, *, failures: bool = False
) -> dict[str, Any]:
    """Summarise a rollout for `metrics.jsonl`: over all completions, and by map size.

    With `failures` the kinds of first failure are counted by map size, too.
    """
    completions, outcomes, rewards = rollout.completions, rollout.verdict.outcomes, rollout.rewards
    optimal = outcomes.optimal_sum_of_costs
    sampled_logprobs = np.concatenate([completion.logprobs for completion in completions])
    sizes = np.asarray(rollout.boards.instances.size)  # (P,)
    rates = np.reshape(outcomes.valid, rewards.shape).mean(axis=1)  # (P,)
    by_size = {}
    for size in np.unique(sizes).tolist():
        groups = sizes == size
        rows = np.repeat(groups, rewards.shape[1])
        by_size[str(size)] = SizeMetrics(
            count=int(rows.sum()),
            valid=int(outcomes.valid[rows].sum()),
            optimal=int(optimal[rows].sum()),
            reward=_rounded(rewards.reshape(-1)[rows].mean()),
            # p (1 - p), with p the valid rate of a group, says how much a group can teach.
            learnability=_rounded(np.mean(rates[groups] * (1 - rates[groups]))),
            failures=_failures(np.asarray(outcomes.failure)[rows]) if failures else None,
        )
    penalised = {"overlong_penalty": _rounded(rollout.overlong.mean())}
    return (penalised if settings.overlong_buffer else {}) | {
        "reward_mean": _rounded(rewards.mean()),
        "valid_rate": _rounded(outcomes.valid.mean()),
        "optimal_rate": _rounded(optimal.mean()),
        "parsed_rate": _rounded(outcomes.parsed.mean()),
        "zero_variance_share": _rounded((~has_reward_variance(rewards)).mean()),
        "completion_length": _rounded(np.mean([len(one.token_ids) for one in completions])),
        # The negative log-probability of what is sampled estimates the entropy without bias.
        "entropy": _rounded(-np.mean(sampled_logprobs)),
        "truncated_share": _rounded(np.mean([one.truncated for one in completions])),
        "by_size": by_size,
    }


def _failures(kinds: np.ndarray) -> dict[str, int]:
    """Count the kinds of first failure that occur, by label."""
    counts = {kind.label: int((kinds == kind).sum()) for kind in Failure if kind}
    return {label: count for label, count in counts.items() if count}


def _rounded(value: Any) -> float:
    return round(float(value), 6)
