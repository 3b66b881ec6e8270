"""Ranges of key and query blocks that flash attention visits.

Pairs of blocks in which no query may attend to any key are skipped. Pairs in which all queries
attend to all keys need no mask. Axis letters are defined in `blockwise`.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

BlockRange = tuple[Any, Any]
"""A half-open range of block indices: (begin, end)."""


class KeyBlocks(NamedTuple):
    """The key blocks that each query block attends to, int32 (B, blocks of queries).

    A full block needs no mask: all queries attend to all of its keys.
    """

    prefix_end: jax.Array  # end of the prefix blocks, which begin at 0
    prefix_full_begin: jax.Array  # full blocks of the prefix
    prefix_full_end: jax.Array
    causal_begin: jax.Array  # blocks after the prefix
    causal_full_begin: jax.Array  # full blocks after the prefix
    causal_full_end: jax.Array
    causal_end: jax.Array

    def full_ranges(self) -> list[BlockRange]:
        """Return the ranges of full blocks."""
        return [
            (self.prefix_full_begin, self.prefix_full_end),
            (self.causal_full_begin, self.causal_full_end),
        ]

    def masked_ranges(self) -> list[BlockRange]:
        """Return the ranges of all other blocks."""
        return [
            (0, self.prefix_full_begin),
            (self.prefix_full_end, self.prefix_end),
            (self.causal_begin, self.causal_full_begin),
            (self.causal_full_end, self.causal_end),
        ]


class QueryBlocks(NamedTuple):
    """The query blocks that attend to each key block, int32 (B, blocks of keys)."""

    begin: jax.Array
    full_begin: jax.Array  # blocks that need no mask
    full_end: jax.Array
    end: jax.Array


def key_blocks(
    starts: jax.Array, visible: jax.Array, prefix: int, queries: int, keys: int
) -> KeyBlocks:
    """Return the blocks of `keys` keys that each block of `queries` queries attends to."""
    batch, length = starts.shape
    query_block = jnp.arange(length // queries, dtype=jnp.int32)[None]
    block_starts = starts.reshape(batch, -1, queries)
    zeros = jnp.zeros(block_starts.shape[:2], jnp.int32)
    prefix_end = -(-_visible_end(visible, prefix)[:, None] // keys) + zeros
    causal_begin = (block_starts[..., 0] + prefix) // keys
    causal_end = (prefix + (query_block + 1) * queries) // keys
    all_visible = jnp.all(visible.reshape(batch, 1, -1, keys) != 0, axis=3)  # (B, 1, key blocks)
    # Full blocks lie between the first key of the last query and the first query's own key.
    low = jnp.maximum(-(-(block_starts[..., -1] + prefix) // keys), causal_begin)
    low = jnp.minimum(low, causal_end)
    high = (prefix + query_block * queries + 1) // keys
    return KeyBlocks(
        prefix_end,
        *_first_true_range(all_visible, zeros, prefix_end),
        causal_begin,
        *_first_true_range(all_visible, low, high),
        causal_end + zeros,
    )


def query_blocks(
    starts: jax.Array, visible: jax.Array, prefix: int, queries: int, keys: int
) -> QueryBlocks:
    """Return the blocks of `queries` queries that attend to each block of `keys` keys."""
    batch, length = starts.shape
    first = jnp.arange(0, prefix + length, keys, dtype=jnp.int32) - prefix  # of each block of keys
    # Queries whose first key is before the block's end, and before or at its beginning.
    num_reaching = jnp.sum(starts[:, None] < (first + keys)[:, None], axis=2, dtype=jnp.int32)
    num_covering = jnp.sum(starts[:, None] <= first[:, None], axis=2, dtype=jnp.int32)
    in_prefix, num_blocks = first < 0, length // queries
    is_visible = in_prefix & (first + prefix < _visible_end(visible, prefix)[:, None])
    begin = jnp.broadcast_to(jnp.where(in_prefix, 0, first // queries), (batch, len(first)))
    end = jnp.where(in_prefix, is_visible * num_blocks, -(-num_reaching // queries))
    end = jnp.maximum(end, begin)
    all_visible = jnp.all(visible.reshape(batch, -1, keys) != 0, axis=2)
    low = jnp.where(in_prefix, 0, -(-(first + keys - 1) // queries))
    high = jnp.where(in_prefix, num_blocks, num_covering // queries) * all_visible
    low = jnp.clip(low, begin, end)
    return QueryBlocks(begin, low, jnp.clip(high, low, end), end)


def _visible_end(visible: jax.Array, prefix: int) -> jax.Array:
    """Return the end of the visible keys in the prefix, int32 (B,)."""
    ends = jnp.arange(1, prefix + 1, dtype=jnp.int32) * (visible[:, :prefix] != 0)
    return ends.max(axis=1, initial=0)


def _first_true_range(mask: jax.Array, low: jax.Array, high: jax.Array) -> BlockRange:
    """Return the first range of true blocks in `mask`, bool (B, 1, C), within [low, high)."""
    block, count = jnp.arange(mask.shape[-1], dtype=jnp.int32), jnp.int32(mask.shape[-1])
    in_range = mask & (block >= low[..., None]) & (block < high[..., None])
    begin = jnp.where(in_range, block, count).min(axis=-1)
    end = jnp.where(~in_range & (block >= begin[..., None]), block, count).min(axis=-1)
    return jnp.where(begin < count, begin, low), jnp.where(begin < count, end, low)


def fold_blocks(
    ranges: Sequence[BlockRange], step: Callable[[jax.Array, Any], Any], carry: Any
) -> Any:
    """Apply `step` to each block of several ranges, in a single loop."""

    def apply(index: jax.Array, carry: Any) -> Any:
        block, offset = index + ranges[0][0], 0
        for (begin, end), (next_begin, _) in pairwise(ranges):
            offset = offset + (end - begin)
            block = jnp.where(index >= offset, index - offset + next_begin, block)
        return step(block, carry)

    return jax.lax.fori_loop(0, sum(end - begin for begin, end in ranges), apply, carry)


def stack_fields(blocks: KeyBlocks | QueryBlocks) -> jax.Array:
    """Stack the fields along a last axis, padded to a power of two: (B, blocks, n)."""
    fields = jnp.stack(blocks, axis=-1)
    padding = (1 << (len(blocks) - 1).bit_length()) - len(blocks)
    return jnp.pad(fields, [(0, 0), (0, 0), (0, padding)])
