"""Prompts and completions as padded arrays whose shapes come from a handful of buckets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sequences:
    """Token sequences, padded on the right.

    Attributes:
      input_ids: int32 (B, L).
      mask: bool (B, L), true on tokens, false on padding.
      targets: bool (B, L), true on the tokens that are learned from (the completion).
    """

    input_ids: Any
    mask: Any
    targets: Any

    @property
    def positions(self) -> jax.Array:
        """int32 (B, L): 0, 1, 2, ... in every row."""
        shape = self.input_ids.shape
        return jax.lax.broadcasted_iota(jnp.int32, shape, 1)


def pack(
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    *,
    bucket: int,
    pad_id: int,
    length: int | None = None,
) -> Sequences:
    """Join each prompt with its completion; L is the longest, rounded up to whole buckets.

    Args:
      length: a fixed L instead; it must hold the longest sequence.
    Raises:
      ValueError: `length` is too small.
    """
    lengths = [len(p) + len(c) for p, c in zip(prompts, completions, strict=True)]
    rounded = -(-max(lengths) // bucket) * bucket
    if length is not None and max(lengths) > length:
        raise ValueError(f"length: got {length}, the longest sequence has {max(lengths)} tokens")
    shape = (len(lengths), length or rounded)
    input_ids = np.full(shape, pad_id, np.int32)
    mask = np.zeros(shape, bool)
    targets = np.zeros(shape, bool)
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        end = len(prompt) + len(completion)
        input_ids[row, : len(prompt)] = prompt
        input_ids[row, len(prompt) : end] = completion
        mask[row, :end] = True
        targets[row, len(prompt) : end] = True
    return Sequences(input_ids, mask, targets)


def place(values: Sequence[np.ndarray], sequences: Sequences) -> np.ndarray:
    """Lay one value for each completion token where the token stands: float32 (B, L), else 0."""
    placed = np.zeros(sequences.input_ids.shape, np.float32)
    placed[sequences.targets] = np.concatenate(values)
    return placed
