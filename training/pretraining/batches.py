"""Examples of two kinds, dealt out in batches of about equal lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from training.learner.batching import Sequences, pad_sequences, round_up

Tokens = Sequence[int]

LENGTH_STEP = 16
"""Batches are padded to multiples of it; each length is one compilation."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Batch:
    """B examples of plans and designs."""

    sequences: Sequences
    designs: Any  # bool (B,): which of them are designs


class ExamplePool:
    """Pairs of a prompt and an answer, as token ids, in groups of about equal length."""

    def __init__(
        self,
        plans: Sequence[tuple[Tokens, Tokens]],
        designs: Sequence[tuple[Tokens, Tokens]],
        *,
        design_share: float,
        pad_id: int,
    ) -> None:
        self._pad_id = pad_id
        self._examples = [*plans, *designs]
        self._plans = len(plans)
        weights = np.concatenate(
            [
                np.full(len(plans), (1.0 - design_share) / max(len(plans), 1)),
                np.full(len(designs), design_share / max(len(designs), 1)),
            ]
        )
        lengths = np.array([round_up(len(p) + len(a), LENGTH_STEP) for p, a in self._examples])
        self._lengths = np.unique(lengths)
        self._rows = [np.flatnonzero(lengths == length) for length in self._lengths]
        self._weights = [weights[rows] for rows in self._rows]
        totals = np.array([one.sum() for one in self._weights])
        self._cumulative = [np.cumsum(one) / one.sum() for one in self._weights]
        self._shares = totals / totals.sum()

    def draw(self, rng: np.random.Generator, count: int) -> Batch:
        """Draw a batch of one length; over many batches each kind has its share."""
        group = int(rng.choice(len(self._lengths), p=self._shares))
        places = np.searchsorted(self._cumulative[group], rng.random(count), side="right")
        rows = self._rows[group][np.minimum(places, len(self._rows[group]) - 1)]
        prompts, answers = zip(*(self._examples[row] for row in rows), strict=True)
        sequences = pad_sequences(
            prompts, answers, bucket=int(self._lengths[group]), pad_id=self._pad_id
        )
        return Batch(sequences, rows >= self._plans)
