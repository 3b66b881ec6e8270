"""The input of both trainers: a model folder and rollouts, in files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lake.protocol import ROOT
from jaxlake.files import write_text_atomic
from training.learner import grpo
from training.phases.warm_start import texts_for_tokenizer
from training.policy.policy import Policy, load_run_policy, write_random_policy
from training.rollout.rollout import Rollout
from training.sampling.sampler import Completion
from training.schema import GrpoConfig, RunConfig, load

ROLLOUT_SETS = ("plans", "limit")
"""Answers about as long as plans (within four tokens), or all at the token limit."""


@dataclass(frozen=True)
class Update:
    """The data of one update; the log-probabilities are the policy's with small noise."""

    prompts: list[list[int]]
    completions: list[list[int]]
    sampler_logprobs: list[np.ndarray]
    importance: list[np.ndarray]  # trainer over engine, capped
    rewards: np.ndarray  # float32 (P, n)

    def rollout(self) -> Rollout:
        """Return the data as a `Rollout`."""
        pairs = zip(self.completions, self.sampler_logprobs, strict=True)
        answers = [Completion(tuple(ids), scores, truncated=False) for ids, scores in pairs]
        no_penalty = np.zeros_like(self.rewards)
        groups = np.zeros(len(self.prompts), int)
        instances: Any = None  # the update reads rewards alone
        scores: Any = None
        return Rollout(instances, self.prompts, answers, scores, self.rewards, no_penalty, groups)

    def advantages(self, settings: GrpoConfig) -> np.ndarray:
        """Return the advantages, float32 (P, n)."""
        return grpo.group_advantages(self.rewards, divide_by_std=settings.divide_by_std)


def make_miniature(folder: Path) -> tuple[RunConfig, Policy, Any, list[tuple[list[int], int]]]:
    """Create the miniature's policy in a new folder; return it with prompts and answer lengths."""
    config = load(ROOT / "configs/scratch.yaml")
    texts = texts_for_tokenizer(config)
    write_random_policy(folder, config.model, texts, max_len=1024, seed=0)
    policy, params = load_run_policy(folder, config)
    pairs = zip(texts[::2], texts[1::2], strict=True)
    samples = [(prompt, answer) for prompt, answer in pairs if prompt.startswith("Find paths")]
    rng = np.random.default_rng(0)
    examples = []
    shares = {size: knobs.data_ratio for size, knobs in config.lake.initial.sizes.items()}
    for size in rng.choice(list(shares), config.grpo.prompts_per_update, p=list(shares.values())):
        size_boards = [board for board in samples if f" {size}x{size}" in board[0]]
        prompt, answer = size_boards[rng.integers(len(size_boards))]
        examples.append((policy.encode_prompt(prompt), len(policy.encode_answer(answer))))
    return config, policy, params, examples


def draw_answers(
    config: RunConfig, plan_lengths: list[int], rollout_set: str
) -> tuple[list[list[int]], np.ndarray]:
    """Draw answers of random tokens, and rewards, float32 (P, n), that differ in every group."""
    rng = np.random.default_rng(1)
    num_answers, max_tokens = config.grpo.completions, config.prompt.max_tokens
    answers, rewards = [], []
    for length in plan_lengths:
        token_counts = np.clip(length + rng.integers(-4, 5, num_answers), 1, max_tokens)
        token_counts[(rng.random(num_answers) < 1 / 32) | (rollout_set == "limit")] = max_tokens
        size = config.model.scratch.vocab_size
        answers += [rng.integers(0, size, tokens).tolist() for tokens in token_counts.tolist()]
        rewards.append(rng.permutation([0.0, 1.0, *rng.choice([0.0, 0.6, 1.0], num_answers - 2)]))
    return answers, np.array(rewards, np.float32)


def write_rollout_sets(folder: Path) -> tuple[RunConfig, dict[str, int]]:
    """Write the model of configs/scratch.yaml and its updates; return counts of their contents."""
    config, policy, params, boards = make_miniature(folder / "model")
    rng = np.random.default_rng(3)
    counts: dict[str, int] = {}
    vocabulary_size = len(policy.tokenizer)
    for rollout_set in ROLLOUT_SETS:
        token_ids, rewards = draw_answers(config, [length for _, length in boards], rollout_set)
        prompts = [prompt for prompt, _ in boards]
        contexts = [prompt for prompt in prompts for _ in range(config.grpo.completions)]
        # The tokenizer has fewer tokens than configured, and PyTorch rejects larger ids.
        answers = [[token % vocabulary_size for token in tokens] for tokens in token_ids]
        pairs = list(zip(contexts, answers, strict=True))
        scores: list[np.ndarray] = []
        for start in range(0, len(pairs), 32):  # small enough for the memory of a small machine
            sequences = [[*prompt, *answer] for prompt, answer in pairs[start : start + 32]]
            scores += policy.logprobs(params, sequences)
        policy_logprobs = [row[len(prompt) :] for row, prompt in zip(scores, contexts, strict=True)]
        sampler_logprobs = [
            row + rng.normal(0, 0.05, len(row)).astype(np.float32) for row in policy_logprobs
        ]
        ratios = [
            np.exp(a - b).clip(max=config.grpo.importance_cap)
            for a, b in zip(policy_logprobs, sampler_logprobs, strict=True)
        ]
        fields: dict[str, Any] = {
            "prompts": prompts,
            "completions": answers,
            "sampler_logprobs": [row.tolist() for row in sampler_logprobs],
            "importance": [row.tolist() for row in ratios],
            "rewards": rewards.tolist(),
        }
        write_text_atomic(folder / f"{rollout_set}.json", json.dumps(fields))
        counts[f"{rollout_set}_tokens"] = sum(map(len, policy_logprobs))
        counts["rows"] = len(pairs)
        counts["longest"] = max(len(prompt) for prompt in contexts) + config.prompt.max_tokens
    return config, counts


def read_update(folder: Path, rollout_set: str) -> Update:
    """Read a set of rollouts that `write_rollout_sets` wrote."""
    fields = json.loads((folder / f"{rollout_set}.json").read_text())
    arrays = {
        name: [np.asarray(row, np.float32) for row in fields[name]]
        for name in ("sampler_logprobs", "importance")
    }
    rewards = np.asarray(fields["rewards"], np.float32)
    return Update(fields["prompts"], fields["completions"], **arrays, rewards=rewards)
