"""Imitation learning: batches of plans and designs with similar lengths, and their loss."""

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
    designs: Any  # bool (B,), True for designs


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
        self._plans = len(plans)
        lengths = np.array([round_up(len(p) + len(a), LENGTH_STEP) for p, a in self._examples])
        self._lengths = np.unique(lengths)
        kinds = (np.arange(len(lengths)) < len(plans), np.arange(len(lengths)) >= len(plans))
        self._rows = [
            [np.flatnonzero(kind & (lengths == length)) for kind in kinds]
            for length in self._lengths
        ]

    def draw(self, rng: np.random.Generator, count: int, design_share: float) -> Batch:
        """Return a batch of one length bucket, with `design_share` designs on average."""
        kinds = len(self._examples) - self._plans
        each = np.array([1.0 - design_share, design_share]) / np.maximum([self._plans, kinds], 1)
        weights = np.array([[len(rows) for rows in of_kind] for of_kind in self._rows]) * each
        totals = weights.sum(axis=1)
        group = int(rng.choice(len(self._lengths), p=totals / totals.sum()))
        designs = rng.random(count) < weights[group, 1] / totals[group]
        rows = np.array([rng.choice(self._rows[group][int(kind)]) for kind in designs])
        prompts, answers = zip(*(self._examples[row] for row in rows), strict=True)
        sequences = pad_sequences(
            prompts, answers, bucket=int(self._lengths[group]), pad_id=self._pad_id
        )
        return Batch(sequences, rows >= self._plans)


def answer_nll(params: Any, sequences: Sequences, *, graphdef: nnx.GraphDef) -> jax.Array:
    """Return the negative log-likelihood of each answer at temperature 1, float32 (B,), nats."""
    scores = logprobs(params, sequences, graphdef=graphdef, temperature=1.0)
    return -jnp.sum(jnp.where(sequences.targets, scores, 0.0), axis=1)
