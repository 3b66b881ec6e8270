"""Exact attention that computes scores block by block, without storing all of them.

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
    key, value = (_pad(jnp.moveaxis(array, 1, 2), 2, columns) for array in (key, value))
    query_segments = _pad(query_segments, 1, rows, -1)
    key_segments = _pad(key_segments, 1, columns, NO_QUERY)
    output = _attend(prefix, block, query, key, value, query_segments, key_segments)
    return jnp.moveaxis(output[..., :length, :], 3, 1).reshape(batch, length, heads, width)


def _round_up(count: int, block: int) -> int:
    return -(-count // block) * block


def _pad(array: jax.Array, axis: int, size: int, value: int = 0) -> jax.Array:
    """Pad `array` at the end of an axis to `size`."""
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, size - array.shape[axis])
    return jnp.pad(array, widths, constant_values=value)


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
        output, row_max, total = (_get_block(array, 3, row, block) for array in carry)
        scores, allowed = _scores(prefix, block, pair, (query, key), (query_segments, key_segments))
        scores = jnp.where(allowed, scores, -jnp.inf)
        new_max = jnp.maximum(row_max, scores.max(axis=-1))
        shift = jnp.where(jnp.isfinite(new_max), new_max, 0)  # -inf if all keys so far are masked
        weights = jnp.exp(scores - shift[..., None])
        decay = jnp.exp(row_max - shift)
        total = total * decay + weights.sum(axis=-1)
        output = output * decay[..., None] + _einsum_float32(
            "bkglm,bkmh->bkglh", weights.astype(value.dtype), _get_block(value, 2, column, block)
        )
        updates = zip(carry, (output, new_max, total), strict=True)
        return tuple(_set_block(array, update, row, block) for array, update in updates), None

    zeros = jnp.zeros(query.shape, jnp.float32)
    initial_carry = (zeros, jnp.full(query.shape[:-1], -jnp.inf), zeros[..., 0])
    pairs = jnp.asarray(_causal_block_pairs(query.shape[3], key.shape[2], prefix, block))
    (output, row_max, total), _ = jax.lax.scan(add, initial_carry, pairs)
    total = jnp.where(total > 0, total, 1)
    normaliser = jnp.where(jnp.isfinite(row_max), row_max, 0) + jnp.log(total)
    output = (output / total[..., None]).astype(query.dtype)
    output, normaliser = (
        checkpoint_name(array, ATTENTION_OUTPUT) for array in (output, normaliser)
    )
    return output, (query, key, value, query_segments, key_segments, output, normaliser)


def _backward(prefix: int, block: int, residuals: Any, d_output: jax.Array) -> tuple[Any, ...]:
    query, key, value, query_segments, key_segments, output, normaliser = residuals
    # The row sums that the gradient of softmax subtracts (D in FlashAttention, appendix B).
    delta = jnp.sum(d_output.astype(jnp.float32) * output.astype(jnp.float32), axis=-1)

    def add(carry: Any, pair: jax.Array) -> tuple[Any, None]:
        row, column = pair
        d_query, d_key, d_value = carry
        scores, allowed = _scores(prefix, block, pair, (query, key), (query_segments, key_segments))
        log_total = _get_block(normaliser, 3, row, block)[..., None]
        weights = jnp.where(allowed, jnp.exp(scores - log_total), 0)
        d_rows = _get_block(d_output, 3, row, block)
        d_weights = _einsum_float32(
            "bkglh,bkmh->bkglm", d_rows, _get_block(value, 2, column, block)
        )
        d_scores = weights * (d_weights - _get_block(delta, 3, row, block)[..., None])
        d_scores = (d_scores * query.shape[-1] ** -0.5).astype(query.dtype)
        query_term = _einsum_float32(
            "bkglm,bkmh->bkglh", d_scores, _get_block(key, 2, column, block)
        )
        key_term = _einsum_float32("bkglm,bkglh->bkmh", d_scores, _get_block(query, 3, row, block))
        value_term = _einsum_float32("bkglm,bkglh->bkmh", weights.astype(value.dtype), d_rows)
        return (
            _add_block(d_query, query_term, row, block, 3),
            _add_block(d_key, key_term, column, block, 2),
            _add_block(d_value, value_term, column, block, 2),
        ), None

    initial_carry = tuple(jnp.zeros(array.shape, jnp.float32) for array in (query, key, value))
    pairs = jnp.asarray(_causal_block_pairs(query.shape[3], key.shape[2], prefix, block))
    gradients, _ = jax.lax.scan(add, initial_carry, pairs)
    return (*(gradient.astype(query.dtype) for gradient in gradients), None, None)


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
    query_segments = _get_block(segments[0], 1, row, block)[:, :, None]
    key_segments = _get_block(segments[1], 1, column, block)[:, None, :]
    offsets = jnp.arange(block)
    is_causal = (column * block + offsets - prefix)[None] <= (row * block + offsets)[:, None]
    allowed = is_causal & ((query_segments == key_segments) | (key_segments == ALL_QUERIES))
    return scores, allowed[:, None, None]


def _einsum_float32(axes: str, left: jax.Array, right: jax.Array) -> jax.Array:
    with matmul_precision(left.dtype):
        return jnp.einsum(axes, left, right, preferred_element_type=jnp.float32)


def _get_block(array: jax.Array, axis: int, index: jax.Array, block: int) -> jax.Array:
    return jax.lax.dynamic_slice_in_dim(array, index * block, block, axis)


def _set_block(
    array: jax.Array, update: jax.Array, index: jax.Array, block: int, axis: int = 3
) -> jax.Array:
    return jax.lax.dynamic_update_slice_in_dim(array, update, index * block, axis)


def _add_block(
    array: jax.Array, update: jax.Array, index: jax.Array, block: int, axis: int
) -> jax.Array:
    update = _get_block(array, axis, index, block) + update
    return _set_block(array, update, index, block, axis)
