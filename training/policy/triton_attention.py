"""Flash attention for NVIDIA GPUs: kernels in Pallas, which Triton compiles.

A program holds one block of queries and passes over the blocks of keys, with the softmax summed up
as they pass; the backward pass computes each block of scores again (Dao 2023, FlashAttention-2,
arXiv 2307.08691). Key and value heads are shared by groups of query heads, and are read where they
are. Blocks of keys that no query of a block may see are passed over, by bounds from `_Bounds`.

Axis letters are those of `training.policy.blockwise`. Sums and softmax are float32; factors of
products have the inputs' dtype. What Triton makes of float32 factors is TF32 on a GPU, so the
kernels are for bfloat16 (`training.policy.kernels`).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from training.policy.kernels import ATTENDED

STEP = 128
"""Queries, and keys before them, are padded to multiples of it."""

_FORWARD, _BY_KEYS, _BY_QUERIES = (128, 64), (64, 128), (128, 64)  # queries, keys of a block
_NEVER = -1e30  # a score that is masked: finite, so that differences of two are numbers
_LOG2_E = math.log2(math.e)  # exponentials are of base 2, which is what GPUs have


class _Bounds(NamedTuple):
    """Which blocks meet, all int32; ends are the first that is not visited any more."""

    prefix_end: jax.Array  # (B,), blocks of the keys before all queries
    own_begin: jax.Array  # (B, blocks of queries), blocks of keys
    query_begin: jax.Array  # (B, blocks of keys), blocks of queries
    query_end: jax.Array  # (B, blocks of keys), blocks of queries


@partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def triton_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    starts: jax.Array,
    visible: jax.Array,
    prefix: int,
    interpret: bool = False,
) -> jax.Array:
    """Let query number q attend to the visible keys before all queries and from its start to q.

    Args:
        query: (B, L, H, hd), hd a power of two and L a multiple of `STEP`.
        key: (B, prefix + L, K, hd), where prefix is a multiple of `STEP`, too.
        value: As the keys.
        starts: int32 (B, L), 0 to q for query q; they never fall along L.
        visible: int32 (B, prefix + L), 0 for keys to which nobody attends.
        prefix: How many keys all queries come after.
        interpret: Run the kernels as JAX on any device, for tests.

    Returns:
        As the queries. A query that may attend to nothing gets zeros.
    """
    return _forward(query, key, value, starts, visible, prefix, interpret)[0]


def _bounds(starts: jax.Array, visible: jax.Array, prefix: int, queries: int, keys: int) -> _Bounds:
    """Find the blocks of so many queries and keys that meet."""
    batch, length = starts.shape
    before = jnp.arange(1, prefix + 1, dtype=jnp.int32) * (visible[:, :prefix] != 0)
    prefix_end = before.max(axis=1, initial=0)
    first = jnp.arange(0, prefix + length, keys, dtype=jnp.int32) - prefix  # of each block of keys
    reached = jnp.sum(starts[:, None] < (first + keys)[:, None], axis=2, dtype=jnp.int32)
    in_prefix = first < 0
    seen = in_prefix & (first + prefix < prefix_end[:, None])
    return _Bounds(
        -(-prefix_end // keys),
        (starts.reshape(batch, -1, queries)[..., 0] + prefix) // keys,
        jnp.broadcast_to(jnp.where(in_prefix, 0, first // queries), (batch, len(first))),
        jnp.where(in_prefix, seen * (length // queries), -(-reached // queries)),
    )


def _allowed(
    places: jax.Array, visible: jax.Array, queries: jax.Array, starts: jax.Array
) -> jax.Array:
    """Say who may attend; `places` count keys from the first query on, and broadcast to it."""
    own = (places >= starts) & (places <= queries)
    return (visible != 0) & ((places < 0) | own)


def _forward_kernel(
    query_ref: Any,  # (queries, hd)
    key_ref: Any,  # (prefix + L, hd)
    value_ref: Any,
    starts_ref: Any,  # (queries,)
    visible_ref: Any,  # (prefix + L,)
    prefix_end_ref: Any,  # ()
    own_begin_ref: Any,  # ()
    out_ref: Any,  # (queries, hd)
    normaliser_ref: Any,  # (queries,), base 2
    *,
    prefix: int,
) -> None:
    queries, keys = _FORWARD
    query, starts = query_ref[...], starts_ref[...]
    row = pl.num_programs(0) - 1 - pl.program_id(0)
    numbers = row * queries + jnp.arange(queries)
    scale = query.shape[1] ** -0.5 * _LOG2_E

    def add(column: jax.Array, carry: Any) -> Any:
        attended, largest, total = carry
        here = pl.ds(column * keys, keys)
        scores = triton.dot(query, key_ref[here, :].T) * scale
        places = column * keys - prefix + jnp.arange(keys)
        allowed = _allowed(
            places[None, :], visible_ref[here][None, :], numbers[:, None], starts[:, None]
        )
        scores = jnp.where(allowed, scores, _NEVER)
        new = jnp.maximum(largest, scores.max(axis=1))
        weights = jnp.where(allowed, jnp.exp2(scores - new[:, None]), 0.0)
        faded = jnp.exp2(largest - new)
        attended = attended * faded[:, None]
        attended += triton.dot(weights.astype(query.dtype), value_ref[here, :])
        return attended, new, total * faded + weights.sum(axis=1)

    carry = (
        jnp.zeros(query.shape, jnp.float32),
        jnp.full((queries,), _NEVER, jnp.float32),
        jnp.zeros((queries,), jnp.float32),
    )
    carry = jax.lax.fori_loop(0, prefix_end_ref[...], add, carry)
    end = (prefix + (row + 1) * queries) // keys
    attended, largest, total = jax.lax.fori_loop(own_begin_ref[...], end, add, carry)
    total = jnp.where(total > 0, total, 1.0)
    out_ref[...] = (attended / total[:, None]).astype(out_ref.dtype)
    normaliser_ref[...] = largest + jnp.log2(total)


def _by_query_kernel(
    query_ref: Any,  # (queries, hd)
    key_ref: Any,  # (prefix + L, hd)
    value_ref: Any,
    starts_ref: Any,  # (queries,)
    visible_ref: Any,  # (prefix + L,)
    prefix_end_ref: Any,  # ()
    own_begin_ref: Any,  # ()
    slope_ref: Any,  # (queries, hd)
    normaliser_ref: Any,  # (queries,)
    mean_ref: Any,  # (queries,)
    by_query_ref: Any,  # (queries, hd)
    *,
    prefix: int,
) -> None:
    queries, keys = _BY_QUERIES
    query, slope, starts = query_ref[...], slope_ref[...], starts_ref[...]
    normaliser, mean = normaliser_ref[...], mean_ref[...]
    row = pl.num_programs(0) - 1 - pl.program_id(0)
    numbers = row * queries + jnp.arange(queries)
    scale = query.shape[1] ** -0.5

    def add(column: jax.Array, by_query: jax.Array) -> jax.Array:
        here = pl.ds(column * keys, keys)
        key = key_ref[here, :]
        scores = triton.dot(query, key.T) * (scale * _LOG2_E)
        places = column * keys - prefix + jnp.arange(keys)
        allowed = _allowed(
            places[None, :], visible_ref[here][None, :], numbers[:, None], starts[:, None]
        )
        weights = jnp.where(allowed, jnp.exp2(scores - normaliser[:, None]), 0.0)
        by_weight = triton.dot(slope, value_ref[here, :].T)
        by_score = weights * (by_weight - mean[:, None])
        return by_query + triton.dot(by_score.astype(key.dtype), key)

    by_query = jnp.zeros(query.shape, jnp.float32)
    by_query = jax.lax.fori_loop(0, prefix_end_ref[...], add, by_query)
    end = (prefix + (row + 1) * queries) // keys
    by_query = jax.lax.fori_loop(own_begin_ref[...], end, add, by_query)
    by_query_ref[...] = (by_query * scale).astype(by_query_ref.dtype)


def _by_key_kernel(
    query_ref: Any,  # (L, G, hd)
    key_ref: Any,  # (keys, hd)
    value_ref: Any,
    starts_ref: Any,  # (L,)
    visible_ref: Any,  # (keys,)
    query_begin_ref: Any,  # ()
    query_end_ref: Any,  # ()
    slope_ref: Any,  # (L, G, hd)
    normaliser_ref: Any,  # (G, L)
    mean_ref: Any,  # (G, L)
    by_key_ref: Any,  # (keys, hd)
    by_value_ref: Any,
    *,
    prefix: int,
) -> None:
    queries, keys = _BY_KEYS
    key, value, visible = key_ref[...], value_ref[...], visible_ref[...]
    places = pl.program_id(0) * keys - prefix + jnp.arange(keys)
    scale = key.shape[1] ** -0.5
    begin, end = query_begin_ref[...], query_end_ref[...]

    def add(head: int, row: jax.Array, carry: Any) -> Any:
        by_key, by_value = carry
        here = pl.ds(row * queries, queries)
        query, slope = query_ref[here, head, :], slope_ref[here, head, :]
        scores = triton.dot(key, query.T) * (scale * _LOG2_E)  # (keys, queries)
        numbers = row * queries + jnp.arange(queries)
        allowed = _allowed(
            places[:, None], visible[:, None], numbers[None, :], starts_ref[here][None, :]
        )
        weights = jnp.exp2(scores - normaliser_ref[head, here][None, :])
        weights = jnp.where(allowed, weights, 0.0)
        by_value += triton.dot(weights.astype(slope.dtype), slope)
        by_weight = triton.dot(value, slope.T)
        by_score = weights * (by_weight - mean_ref[head, here][None, :])
        return by_key + triton.dot(by_score.astype(query.dtype), query), by_value

    carry = (jnp.zeros(key.shape, jnp.float32), jnp.zeros(key.shape, jnp.float32))
    for head in range(query_ref.shape[1]):
        carry = jax.lax.fori_loop(begin, end, partial(add, head), carry)
    by_key_ref[...] = (carry[0] * scale).astype(by_key_ref.dtype)
    by_value_ref[...] = carry[1].astype(by_value_ref.dtype)


def _forward(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    starts: jax.Array,
    visible: jax.Array,
    prefix: int,
    interpret: bool,
) -> tuple[jax.Array, Any]:
    batch, length, heads, _ = query.shape
    bounds = _bounds(starts, visible, prefix, *_FORWARD)
    inputs, of_queries, of_row = _specs_of_queries(query, key, _FORWARD[0])
    attended, normaliser = pl.pallas_call(
        partial(_forward_kernel, prefix=prefix),
        grid=(length // _FORWARD[0], heads, batch),
        in_specs=inputs,
        out_specs=[of_queries, of_row],
        out_shape=[
            jax.ShapeDtypeStruct(query.shape, query.dtype),
            jax.ShapeDtypeStruct((batch, heads, length), jnp.float32),
        ],
        compiler_params=triton.CompilerParams(num_warps=8, num_stages=3),
        interpret=interpret,
        name="flash_forward",
    )(query, key, value, starts, visible, bounds.prefix_end, bounds.own_begin)
    attended, normaliser = (checkpoint_name(part, ATTENDED) for part in (attended, normaliser))
    return attended, (query, key, value, starts, visible, attended, normaliser)


def _backward(prefix: int, interpret: bool, kept: Any, slope: jax.Array) -> tuple[Any, ...]:
    query, key, value, starts, visible, attended, normaliser = kept
    batch, length, heads, width = query.shape
    key_heads = key.shape[2]
    # The softmax's gradient takes the mean of its slopes off: FlashAttention, appendix B.
    mean = jnp.einsum(
        "blhd,blhd->bhl", slope, attended, preferred_element_type=jnp.float32
    )  # (B, H, L)

    bounds = _bounds(starts, visible, prefix, *_BY_QUERIES)
    inputs, of_queries, of_row = _specs_of_queries(query, key, _BY_QUERIES[0])
    by_query = pl.pallas_call(
        partial(_by_query_kernel, prefix=prefix),
        grid=(length // _BY_QUERIES[0], heads, batch),
        in_specs=[*inputs, of_queries, of_row, of_row],
        out_specs=of_queries,
        out_shape=jax.ShapeDtypeStruct(query.shape, query.dtype),
        compiler_params=triton.CompilerParams(num_warps=8, num_stages=2),
        interpret=interpret,
        name="flash_by_query",
    )(
        *(query, key, value, starts, visible, bounds.prefix_end, bounds.own_begin),
        *(slope, normaliser, mean),
    )

    bounds = _bounds(starts, visible, prefix, *_BY_KEYS)
    keys, group = _BY_KEYS[1], heads // key_heads
    all_queries = pl.BlockSpec((None, length, group, width), lambda i, h, b: (b, 0, h, 0))
    all_rows = pl.BlockSpec((None, group, length), lambda i, h, b: (b, h, 0))
    of_keys = pl.BlockSpec((None, keys, None, width), lambda i, h, b: (b, i, h, 0))
    bound = pl.BlockSpec((None, None), lambda i, h, b: (b, i))
    by_key, by_value = pl.pallas_call(
        partial(_by_key_kernel, prefix=prefix),
        grid=((prefix + length) // keys, key_heads, batch),
        in_specs=[
            *(all_queries, of_keys, of_keys),
            pl.BlockSpec((None, length), lambda i, h, b: (b, 0)),
            pl.BlockSpec((None, keys), lambda i, h, b: (b, i)),
            *(bound, bound, all_queries, all_rows, all_rows),
        ],
        out_specs=[of_keys, of_keys],
        out_shape=[jax.ShapeDtypeStruct(key.shape, key.dtype)] * 2,
        compiler_params=triton.CompilerParams(num_warps=8, num_stages=2),
        interpret=interpret,
        name="flash_by_key",
    )(
        *(query, key, value, starts, visible, bounds.query_begin, bounds.query_end),
        *(slope, normaliser, mean),
    )
    return by_query, by_key, by_value, None, None


triton_attention.defvjp(_forward, _backward)


def _specs_of_queries(query: jax.Array, key: jax.Array, queries: int) -> tuple[Any, Any, Any]:
    """Say what a program reads that holds one block of queries; the longest work comes first."""
    _, length, heads, width = query.shape
    keys, key_heads = key.shape[1:3]
    last, group = length // queries - 1, heads // key_heads
    of_queries = pl.BlockSpec((None, queries, None, width), lambda i, h, b: (b, last - i, h, 0))
    of_row = pl.BlockSpec((None, None, queries), lambda i, h, b: (b, h, last - i))
    all_keys = pl.BlockSpec(
        (None, key.shape[1], None, width), lambda i, h, b: (b, 0, h // group, 0)
    )
    inputs = [
        *(of_queries, all_keys, all_keys),
        pl.BlockSpec((None, queries), lambda i, h, b: (b, last - i)),
        pl.BlockSpec((None, keys), lambda i, h, b: (b, 0)),
        pl.BlockSpec((None,), lambda i, h, b: (b,)),
        pl.BlockSpec((None, None), lambda i, h, b: (b, last - i)),
    ]
    return inputs, of_queries, of_row
