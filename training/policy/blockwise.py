"""Exact blockwise attention, which never holds all scores in memory.

The softmax is accumulated over blocks of keys (arXiv 1805.02867), and the backward pass recomputes
each block of scores (arXiv 2112.05682). Fully masked pairs of blocks are skipped.
Axis letters: B sequences, L queries, M keys, H query heads, K key/value heads, G = H / K, hd
head_dim.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from training.policy.kernels import ATTENTION_OUTPUT, matmul_precision

BLOCK = 512
"""Queries and keys per block: B * H * BLOCK * BLOCK float32 scores exist at once."""

ALL_QUERIES, NO_QUERY = -2, -3
"""Segment numbers of keys that all queries attend to, and that no query attends to."""


def blockwise_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    query_segments: jax.Array,
    key_segments: jax.Array,
    *,
    prefix: int = 0,
    block: int = BLOCK,
) -> jax.Array:
    """Return causal attention within segments, computed block by block.

    Args:
        query: (B, L, H, hd).
        key: (B, prefix + L, K, hd): the keys before all queries, then one key per query.
        value: (B, prefix + L, K, hd).
        query_segments: int32 (B, L), at least -1.
        key_segments: int32 (B, prefix + L). `ALL_QUERIES` matches all queries, `NO_QUERY` none.
        prefix: Number of keys before all queries.
        block: Number of queries and of keys per block.

    Returns:
        The attention output, (B, L, H, hd), in the dtype of the queries. It is zero for queries
        without any visible key.

    Raises:
        ValueError: The number of keys is not `prefix` plus the number of queries.
    """
    batch, length, heads, width = query.shape
    keys, key_heads = key.shape[1:3]
    if keys != prefix + length:
        raise ValueError(f"key has {keys} tokens; it must have prefix {prefix} + {length} queries")
    rows, columns = (_round_up(count, block) for count in (length, keys))
    query = query.reshape(batch, length, key_heads, heads // key_heads, width)
    query = _pad(jnp.moveaxis(query, 1, 3), 3, rows)  # (B, K, G, L, hd)
    key, value = (_pad(jnp.moveaxis(part, 1, 2), 2, columns) for part in (key, value))
    query_segments = _pad(query_segments, 1, rows, -1)
    key_segments = _pad(key_segments, 1, columns, NO_QUERY)
    attended = _attend(prefix, block, query, key, value, query_segments, key_segments)
    return jnp.moveaxis(attended[..., :length, :], 3, 1).reshape(batch, length, heads, width)


def _round_up(count: int, block: int) -> int:
    return -(-count // block) * block


def _pad(array: jax.Array, axis: int, size: int, value: int = 0) -> jax.Array:
    missing = [
        (0, size - array.shape[axis] if number == axis else 0) for number in range(array.ndim)
    ]
    return jnp.pad(array, missing, constant_values=value)


def _causal_block_pairs(queries: int, keys: int, prefix: int, block: int) -> np.ndarray:
    """Return the pairs of blocks that causality allows, int32 (pairs, 2)."""
    return np.array(
        [
            (row, column)
            for row in range(queries // block)
            for column in range(keys // block)
            if column * block - prefix < (row + 1) * block
        ],
        np.int32,
    )


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attend(
    prefix: int,
    block: int,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    query_segments: jax.Array,
    key_segments: jax.Array,
) -> jax.Array:
    return _forward(prefix, block, query, key, value, query_segments, key_segments)[0]


def _forward(
    prefix: int,
    block: int,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    query_segments: jax.Array,
    key_segments: jax.Array,
) -> tuple[jax.Array, Any]:
    def add(carry: Any, pair: jax.Array) -> tuple[Any, None]:
        row, column = pair
        attended, row_max, total = (_get_block(part, 3, row, block) for part in carry)
        scores, allowed = _scores(prefix, block, pair, (query, key), (query_segments, key_segments))
        scores = jnp.where(allowed, scores, -jnp.inf)
        new = jnp.maximum(row_max, scores.max(axis=-1))
        reference = jnp.where(jnp.isfinite(new), new, 0)  # -inf if all keys so far are masked
        weights = jnp.exp(scores - reference[..., None])
        decay = jnp.exp(row_max - reference)
        total = total * decay + weights.sum(axis=-1)
        seen = _get_block(value, 2, column, block)
        attended = attended * decay[..., None] + _einsum_float32(
            "bkglm,bkmh->bkglh", weights.astype(value.dtype), seen
        )
        blocks = zip(carry, (attended, new, total), strict=True)
        return tuple(_set_block(whole, part, row, block) for whole, part in blocks), None

    empty = jnp.zeros(query.shape, jnp.float32)
    start = (empty, jnp.full(query.shape[:-1], -jnp.inf), empty[..., 0])
    pairs = jnp.asarray(_causal_block_pairs(query.shape[3], key.shape[2], prefix, block))
    (attended, row_max, total), _ = jax.lax.scan(add, start, pairs)
    total = jnp.where(total > 0, total, 1)
    normaliser = jnp.where(jnp.isfinite(row_max), row_max, 0) + jnp.log(total)
    attended = (attended / total[..., None]).astype(query.dtype)
    attended, normaliser = (
        checkpoint_name(part, ATTENTION_OUTPUT) for part in (attended, normaliser)
    )
    return attended, (query, key, value, query_segments, key_segments, attended, normaliser)


def _backward(prefix: int, block: int, residuals: Any, d_output: jax.Array) -> tuple[Any, ...]:
    query, key, value, query_segments, key_segments, attended, normaliser = residuals
    # The gradient of softmax subtracts the mean of its slopes (FlashAttention, appendix B).
    mean = jnp.sum(d_output.astype(jnp.float32) * attended.astype(jnp.float32), axis=-1)

    def add(carry: Any, pair: jax.Array) -> tuple[Any, None]:
        row, column = pair
        d_query, d_key, d_value = carry
        scores, allowed = _scores(prefix, block, pair, (query, key), (query_segments, key_segments))
        of_row = _get_block(normaliser, 3, row, block)[..., None]
        weights = jnp.where(allowed, jnp.exp(scores - of_row), 0)
        above = _get_block(d_output, 3, row, block)
        d_weights = _einsum_float32("bkglh,bkmh->bkglm", above, _get_block(value, 2, column, block))
        d_scores = weights * (d_weights - _get_block(mean, 3, row, block)[..., None])
        d_scores = (d_scores * query.shape[-1] ** -0.5).astype(query.dtype)
        more = (
            _einsum_float32("bkglm,bkmh->bkglh", d_scores, _get_block(key, 2, column, block)),
            _einsum_float32("bkglm,bkglh->bkmh", d_scores, _get_block(query, 3, row, block)),
            _einsum_float32("bkglm,bkglh->bkmh", weights.astype(value.dtype), above),
        )
        d_query = _set_block(d_query, _get_block(d_query, 3, row, block) + more[0], row, block)
        d_key, d_value = (
            _set_block(whole, _get_block(whole, 2, column, block) + part, column, block, 2)
            for whole, part in ((d_key, more[1]), (d_value, more[2]))
        )
        return (d_query, d_key, d_value), None

    start = tuple(jnp.zeros(part.shape, jnp.float32) for part in (query, key, value))
    pairs = jnp.asarray(_causal_block_pairs(query.shape[3], key.shape[2], prefix, block))
    gradients, _ = jax.lax.scan(add, start, pairs)
    slopes = (gradient.astype(query.dtype) for gradient in gradients)
    return (*slopes, None, None)


_attend.defvjp(_forward, _backward)


def _scores(
    prefix: int,
    block: int,
    pair: jax.Array,
    tokens: tuple[jax.Array, jax.Array],
    segments: tuple[jax.Array, jax.Array],
) -> tuple[jax.Array, jax.Array]:
    """Return a block of scores, float32 (B, K, G, block, block), and its mask, bool."""
    row, column = pair
    query, key = _get_block(tokens[0], 3, row, block), _get_block(tokens[1], 2, column, block)
    scores = _einsum_float32("bkglh,bkmh->bkglm", query, key) * query.shape[-1] ** -0.5
    own = _get_block(segments[0], 1, row, block)[:, :, None]
    other = _get_block(segments[1], 1, column, block)[:, None, :]
    places = jnp.arange(block)
    before = (column * block + places - prefix)[None] <= (row * block + places)[:, None]
    allowed = before & ((own == other) | (other == ALL_QUERIES))
    return scores, allowed[:, None, None]


def _einsum_float32(axes: str, left: jax.Array, right: jax.Array) -> jax.Array:
    with matmul_precision(left.dtype):
        return jnp.einsum(axes, left, right, preferred_element_type=jnp.float32)


def _get_block(array: jax.Array, axis: int, number: jax.Array, block: int) -> jax.Array:
    return jax.lax.dynamic_slice_in_dim(array, number * block, block, axis)


def _set_block(
    array: jax.Array, part: jax.Array, number: jax.Array, block: int, axis: int = 3
) -> jax.Array:
    return jax.lax.dynamic_update_slice_in_dim(array, part, number * block, axis)
