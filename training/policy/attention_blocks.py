"""Pairs of key and query blocks that flash attention computes, with or without a mask.

Pairs in which no query may attend to any key are skipped. Axis letters are defined in `blockwise`.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Run = tuple[Any, Any]
"""A half-open range of block numbers: (begin, end)."""


class KeyBlocks(NamedTuple):
    """The key blocks that each query block attends to, int32 (B, blocks of queries).

    A clear block needs no mask: all of its keys are visible to all of the queries.
    """

    prefix_end: jax.Array  # end of the prefix blocks, which begin at 0
    clear_begin: jax.Array  # clear blocks of the prefix
    clear_end: jax.Array
    own_begin: jax.Array  # blocks after the prefix
    own_clear_begin: jax.Array  # clear blocks after the prefix
    own_clear_end: jax.Array
    own_end: jax.Array

    def clear(self) -> list[Run]:
        """Return the runs of clear blocks."""
        return [(self.clear_begin, self.clear_end), (self.own_clear_begin, self.own_clear_end)]

    def masked(self) -> list[Run]:
        """Return the runs of all other blocks."""
        return [
            (0, self.clear_begin),
            (self.clear_end, self.prefix_end),
            (self.own_begin, self.own_clear_begin),
            (self.own_clear_end, self.own_end),
        ]


class QueryBlocks(NamedTuple):
    """The query blocks that attend to each key block, int32 (B, blocks of keys)."""

    begin: jax.Array
    clear_begin: jax.Array  # blocks that need no mask
    clear_end: jax.Array
    end: jax.Array


def key_blocks(
    starts: jax.Array, visible: jax.Array, prefix: int, queries: int, keys: int
) -> KeyBlocks:
    """Return the blocks of `keys` keys that each block of `queries` queries attends to."""
    batch, length = starts.shape
    query_block = jnp.arange(length // queries, dtype=jnp.int32)[None]
    block_starts = starts.reshape(batch, -1, queries)
    none = jnp.zeros(block_starts.shape[:2], jnp.int32)
    prefix_end = -(-_visible_end(visible, prefix)[:, None] // keys) + none
    own_begin, own_end = (
        (block_starts[..., 0] + prefix) // keys,
        (prefix + (query_block + 1) * queries) // keys,
    )
    clear = jnp.all(visible.reshape(batch, 1, -1, keys) != 0, axis=3)  # (B, 1, blocks of keys)
    # From the first key of the last query to the last block before the first query.
    low = jnp.maximum(-(-(block_starts[..., -1] + prefix) // keys), own_begin)
    return KeyBlocks(
        prefix_end,
        *_first_run(clear, none, prefix_end),
        own_begin,
        *_first_run(clear, jnp.minimum(low, own_end), (prefix + query_block * queries + 1) // keys),
        own_end + none,
    )


def query_blocks(
    starts: jax.Array, visible: jax.Array, prefix: int, queries: int, keys: int
) -> QueryBlocks:
    """Return the blocks of `queries` queries that attend to each block of `keys` keys."""
    batch, length = starts.shape
    first = jnp.arange(0, prefix + length, keys, dtype=jnp.int32) - prefix  # of each block of keys
    reached = jnp.sum(starts[:, None] < (first + keys)[:, None], axis=2, dtype=jnp.int32)
    entered = jnp.sum(starts[:, None] <= first[:, None], axis=2, dtype=jnp.int32)
    in_prefix, block_count = first < 0, length // queries
    seen = in_prefix & (first + prefix < _visible_end(visible, prefix)[:, None])
    begin = jnp.broadcast_to(jnp.where(in_prefix, 0, first // queries), (batch, len(first)))
    end = jnp.maximum(jnp.where(in_prefix, seen * block_count, -(-reached // queries)), begin)
    clear = jnp.all(visible.reshape(batch, -1, keys) != 0, axis=2)
    low = jnp.where(in_prefix, 0, -(-(first + keys - 1) // queries))
    high = jnp.where(in_prefix, block_count, entered // queries) * clear
    low = jnp.clip(low, begin, end)
    return QueryBlocks(begin, low, jnp.clip(high, low, end), end)


def _visible_end(visible: jax.Array, prefix: int) -> jax.Array:
    """Return the end of the visible keys in the prefix, int32 (B,)."""
    before = jnp.arange(1, prefix + 1, dtype=jnp.int32) * (visible[:, :prefix] != 0)
    return before.max(axis=1, initial=0)


def _first_run(clear: jax.Array, low: jax.Array, high: jax.Array) -> Run:
    """Return the first run of clear blocks, bool (B, 1, C), from `low` to `high`, int32 (B, R)."""
    key_block, none = jnp.arange(clear.shape[-1], dtype=jnp.int32), jnp.int32(clear.shape[-1])
    inside = clear & (key_block >= low[..., None]) & (key_block < high[..., None])
    begin = jnp.where(inside, key_block, none).min(axis=-1)
    end = jnp.where(~inside & (key_block >= begin[..., None]), key_block, none).min(axis=-1)
    return jnp.where(begin < none, begin, low), jnp.where(begin < none, end, low)


def fold_blocks(runs: Sequence[Run], step: Callable[[jax.Array, Any], Any], carry: Any) -> Any:
    """Apply `step` to each block of several runs, in a single loop."""

    def apply(index: jax.Array, carry: Any) -> Any:
        block, before = index + runs[0][0], 0
        for (first, end), (following, _) in pairwise(runs):
            before = before + (end - first)
            block = jnp.where(index >= before, index - before + following, block)
        return step(block, carry)

    return jax.lax.fori_loop(0, sum(end - first for first, end in runs), apply, carry)


def stack_fields(blocks: KeyBlocks | QueryBlocks) -> jax.Array:
    """Stack the fields along a last axis, padded to a power of two: (B, blocks, n)."""
    fields = jnp.stack(blocks, axis=-1)
    padding = (1 << (len(blocks) - 1).bit_length()) - len(blocks)
    return jnp.pad(fields, [(0, 0), (0, 0), (0, padding)])
