"""Imitation learning from plans and from the rule engineer's designs: batches and loss."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from training.learner.batching import Sequences, pad_sequences, round_up
from training.learner.grpo import logprobs

Tokens = Sequence[int]

LENGTH_STEP = 16
"""Batches are padded to multiples of this, since each length compiles once."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Batch:
    """B examples of plans and designs."""

    sequences: Sequences
    is_design: Any  # bool (B,)


class ExamplePool:
    """Pairs of a prompt and an answer, as token ids, grouped by length."""

    def __init__(
        self,
        plans: Sequence[tuple[Tokens, Tokens]],
        designs: Sequence[tuple[Tokens, Tokens]],
        *,
        pad_id: int,
    ) -> None:
        self._pad_id = pad_id
        self._examples = [*plans, *designs]
        self._num_plans = len(plans)
        lengths = np.array([round_up(len(p) + len(a), LENGTH_STEP) for p, a in self._examples])
        is_plan = np.arange(len(lengths)) < len(plans)
        self._lengths = np.unique(lengths)
        self._rows = [  # by length, then plans before designs
            [np.flatnonzero(mask & (lengths == length)) for mask in (is_plan, ~is_plan)]
            for length in self._lengths
        ]

    def draw(self, rng: np.random.Generator, count: int, design_share: float) -> Batch:
        """Return a batch of one length bucket, with `design_share` designs on average."""
        counts = [self._num_plans, len(self._examples) - self._num_plans]
        weight_per_example = np.array([1.0 - design_share, design_share]) / np.maximum(counts, 1)
        rows_per_bucket = np.array([[len(rows) for rows in bucket] for bucket in self._rows])
        weights = rows_per_bucket * weight_per_example
        bucket_weights = weights.sum(axis=1)
        bucket = int(rng.choice(len(self._lengths), p=bucket_weights / bucket_weights.sum()))
        is_design = rng.random(count) < weights[bucket, 1] / bucket_weights[bucket]
        rows = np.array([rng.choice(self._rows[bucket][int(kind)]) for kind in is_design])
        prompts, answers = zip(*(self._examples[row] for row in rows), strict=True)
        sequences = pad_sequences(
            prompts, answers, bucket=int(self._lengths[bucket]), pad_id=self._pad_id
        )
        return Batch(sequences, rows >= self._num_plans)


def answer_nll(params: Any, sequences: Sequences, *, graphdef: nnx.GraphDef) -> jax.Array:
    """Return the negative log-likelihood of each answer at temperature 1, float32 (B,), nats."""
    token_scores = logprobs(params, sequences, graphdef=graphdef, temperature=1.0)
    return -jnp.sum(jnp.where(sequences.is_target, token_scores, 0.0), axis=1)
