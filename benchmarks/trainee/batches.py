"""The update that both trainers take: a model folder and a rollout, in files that both read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.grpo_update import make_rollout, miniature
from jaxlake.files import write_text_whole
from training.learner import grpo
from training.rollout.rollout import Rollout
from training.sampling.sampler import Completion
from training.schema import Grpo, RunConfig

LENGTHS = ("plans", "limit")
"""Answers about as long as plans, or all of them cut by the token limit (`make_rollout`)."""


@dataclass(frozen=True)
class Update:
    """What is learned in one update; log-probabilities are the policy's own, moved a little."""

    prompts: list[list[int]]
    completions: list[list[int]]
    sampler_logprobs: list[np.ndarray]
    importance: list[np.ndarray]  # trainer over engine, capped
    rewards: np.ndarray  # float32 (P, n)

    def rollout(self) -> Rollout:
        """Return it as the trainer takes it."""
        pairs = zip(self.completions, self.sampler_logprobs, strict=True)
        answers = [Completion(tuple(ids), scores, truncated=False) for ids, scores in pairs]
        no_penalty = np.zeros_like(self.rewards)
        return Rollout(None, self.prompts, answers, None, self.rewards, no_penalty)  # type: ignore[arg-type]

    def advantages(self, settings: Grpo) -> np.ndarray:
        """Return the advantages, float32 (P, n)."""
        return grpo.group_advantages(self.rewards, divide_by_std=settings.divide_by_std)


def write_case(folder: Path) -> tuple[RunConfig, dict[str, int]]:
    """Write the model of configs/scratch.yaml and its updates; count what they hold."""
    config, policy, params, boards = miniature(folder / "model")
    rng = np.random.default_rng(3)
    counts: dict[str, int] = {}
    size = len(policy.tokenizer)
    for lengths in LENGTHS:
        rollout = make_rollout(config, boards, lengths)
        repeated = [prompt for prompt in rollout.prompts for _ in range(config.grpo.completions)]
        # The tokenizer has fewer tokens than were asked for; PyTorch refuses others.
        answers = [[token % size for token in one.token_ids] for one in rollout.completions]
        pairs = list(zip(repeated, answers, strict=True))
        scores: list[np.ndarray] = []
        for first in range(0, len(pairs), 32):  # as many as the memory of a small machine holds
            sequences = [[*prompt, *answer] for prompt, answer in pairs[first : first + 32]]
            scores += policy.logprobs(params, sequences)
        own = [row[len(prompt) :] for row, prompt in zip(scores, repeated, strict=True)]
        sampler = [row + rng.normal(0, 0.05, len(row)).astype(np.float32) for row in own]
        factors = [
            np.exp(a - b).clip(max=config.grpo.importance_cap)
            for a, b in zip(own, sampler, strict=True)
        ]
        fields: dict[str, Any] = {
            "prompts": rollout.prompts,
            "completions": answers,
            "sampler_logprobs": [row.tolist() for row in sampler],
            "importance": [row.tolist() for row in factors],
            "rewards": np.asarray(rollout.rewards).tolist(),
        }
        write_text_whole(folder / f"{lengths}.json", json.dumps(fields))
        counts[f"{lengths}_tokens"] = sum(map(len, own))
        counts["rows"] = len(pairs)
        counts["longest"] = max(len(prompt) for prompt in repeated) + config.prompt.max_tokens
    return config, counts


def read_update(folder: Path, lengths: str) -> Update:
    """Read what `write_case` has written."""
    fields = json.loads((folder / f"{lengths}.json").read_text())
    arrays = {
        name: [np.asarray(row, np.float32) for row in fields[name]]
        for name in ("sampler_logprobs", "importance")
    }
    rewards = np.asarray(fields["rewards"], np.float32)
    return Update(fields["prompts"], fields["completions"], **arrays, rewards=rewards)
