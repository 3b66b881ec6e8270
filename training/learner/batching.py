"""Padded arrays of token sequences, with bucketed lengths to limit recompilation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sequences:
    """Token sequences, padded on the right."""

    input_ids: Any  # int32 (B, L)
    mask: Any  # bool (B, L), True on tokens, False on padding
    is_target: Any  # bool (B, L), True on the tokens of the completion

    @property
    def positions(self) -> jax.Array:
        """int32 (B, L): 0, 1, 2, ... in every row."""
        return jax.lax.broadcasted_iota(jnp.int32, self.input_ids.shape, 1)


def pad_sequences(
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    *,
    bucket: int,
    pad_id: int,
) -> Sequences:
    """Concatenate each prompt with its completion and pad all sequences to one length.

    Args:
        prompts: Token ids of B prompts.
        completions: Token ids of B completions.
        bucket: The length is the smallest multiple of this that fits every sequence.
        pad_id: Token id at padding.

    Returns:
        NumPy arrays, (B, L).
    """
    max_length = max(len(p) + len(c) for p, c in zip(prompts, completions, strict=True))
    shape = (len(prompts), round_up(max_length, bucket))
    input_ids = np.full(shape, pad_id, np.int32)
    mask = np.zeros(shape, bool)
    is_target = np.zeros(shape, bool)
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        end = len(prompt) + len(completion)
        input_ids[row, :end] = [*prompt, *completion]
        mask[row, :end] = True
        is_target[row, len(prompt) : end] = True
    return Sequences(input_ids, mask, is_target)


def round_up(length: int, bucket: int) -> int:
    """Return the smallest multiple of `bucket` that is at least `length`."""
    return -(-length // bucket) * bucket


def split_rows(batch: Any, num_parts: int) -> Any:
    """Reshape every leaf from (B, ...) to (num_parts, B / num_parts, ...)."""
    return jax.tree.map(lambda leaf: leaf.reshape(num_parts, -1, *leaf.shape[1:]), batch)
