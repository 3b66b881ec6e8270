"""Flash attention for NVIDIA GPUs, as Pallas kernels that Triton compiles.

Each program of the forward pass handles one block of queries. It loops over the blocks of keys and
accumulates the softmax (Dao 2023, FlashAttention-2, arXiv 2307.08691). Blocks that need no mask
come first. The backward pass recomputes the scores, one block of keys per program. A second kernel
sums the gradients of queries from the gradients of scores, part by part, in a fixed order. Sums and
softmax are float32. Axis letters are defined in `training.policy.blockwise`.
"""

import math
import struct
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from training.policy.attention_blocks import (
    KeyBlocks,
    QueryBlocks,
    Run,
    key_blocks,
    over,
    query_blocks,
    stacked,
)
from training.policy.kernels import ATTENDED

STEP = 128
"""The number of queries and the prefix are padded to multiples of this."""

GRADIENT_BYTES = 5 * 2**28
"""Memory for gradients of scores in bytes; the gradients of `STEP` queries may exceed it."""

_FORWARD, _BY_KEYS, _BY_QUERIES = (64, 64), (64, 64), (128, 64)  # queries, keys of a block
_NEVER = -1e30  # score of masked pairs: finite, so that differences are not NaN
_LOWEST = -1e28  # initial maximum: above scaled masked scores, below all others
_LOG2_E = math.log2(math.e)  # GPUs have a base-2 exponential


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
    """Return attention in which query q sees the prefix and the keys from its start to q.

    Args:
        query: (B, L, H, hd), hd a power of two and L a multiple of `STEP`.
        key: (B, prefix + L, K, hd).
        value: (B, prefix + L, K, hd).
        starts: int32 (B, L), first key of each query: 0 to q for query q, and non-decreasing.
        visible: int32 (B, prefix + L), 0 for keys that are masked for all queries.
        prefix: Number of keys before all queries, a multiple of `STEP`.
        interpret: Whether to run the kernels as JAX on any device, for tests.

    Returns:
        The attention output, (B, L, H, hd), in the dtype of the queries. It is zero for queries
        without any visible key.
    """
    return _forward(query, key, value, starts, visible, prefix, interpret)[0]


def _weights(scores: jax.Array, scale: float, less: jax.Array, interpret: bool) -> jax.Array:
    """Return 2 ** (scores * scale - less), computed in two instructions."""
    if interpret:
        return jnp.exp2(scores * scale - less)
    (number,) = struct.unpack("<I", struct.pack("<f", scale))
    joined = f"fma.rn.f32 t, $1, 0f{number:08X}, $2; ex2.approx.ftz.f32 $0, t;"
    (weights,) = triton.elementwise_inline_asm(
        f"{{ .reg .f32 t; {joined} }}",
        args=(scores, jnp.broadcast_to(-less, scores.shape)),
        constraints="=f,f,f",
        pack=1,
        result_shape_dtypes=[jax.ShapeDtypeStruct(scores.shape, jnp.float32)],
    )
    return weights


def _allowed(
    places: jax.Array, visible: jax.Array, queries: jax.Array, starts: jax.Array
) -> jax.Array:
    """Return the attention mask; `places` are key indices relative to the first query."""
    own = (places >= starts) & (places <= queries)
    return (visible != 0) & ((places < 0) | own)


def _forward_kernel(
    query_ref: Any,  # (queries, hd)
    key_ref: Any,  # (prefix + L, hd)
    value_ref: Any,
    starts_ref: Any,  # (queries,)
    visible_ref: Any,  # (prefix + L,)
    blocks_ref: Any,  # (8,), the numbers of `KeyBlocks`
    out_ref: Any,  # (queries, hd)
    normaliser_ref: Any,  # (queries,), base 2
    *,
    prefix: int,
    interpret: bool,
) -> None:
    queries, keys = _FORWARD
    query, starts = query_ref[...], starts_ref[...]
    row = pl.num_programs(0) - 1 - pl.program_id(0)
    numbers = row * queries + jnp.arange(queries)
    scale = query.shape[1] ** -0.5 * _LOG2_E
    blocks = KeyBlocks(*(blocks_ref[n] for n in range(len(KeyBlocks._fields))))

    def add(column: jax.Array, carry: Any, masked: bool) -> Any:
        attended, largest, total = carry
        rows = pl.ds(column * keys, keys)
        scores = triton.dot(query, key_ref[rows, :].T)
        if masked:
            places = column * keys - prefix + jnp.arange(keys)
            visible = visible_ref[rows]
            allowed = _allowed(places[None, :], visible[None, :], numbers[:, None], starts[:, None])
            scores = jnp.where(allowed, scores, _NEVER)
        new = jnp.maximum(largest, scores.max(axis=1) * scale)
        weights = _weights(scores, scale, new[:, None], interpret)
        faded = jnp.exp2(largest - new)
        attended = attended * faded[:, None]
        attended += triton.dot(weights.astype(query.dtype), value_ref[rows, :])
        return attended, new, total * faded + weights.sum(axis=1)

    carry = (
        jnp.zeros(query.shape, jnp.float32),
        jnp.full((queries,), _LOWEST, jnp.float32),
        jnp.zeros((queries,), jnp.float32),
    )
    carry = over(blocks.clear(), partial(add, masked=False), carry)
    attended, largest, total = over(blocks.masked(), partial(add, masked=True), carry)
    total = jnp.where(total > 0, total, 1.0)
    out_ref[...] = (attended / total[:, None]).astype(out_ref.dtype)
    normaliser_ref[...] = largest + jnp.log2(total)


def _by_key_kernel(
    query_ref: Any,  # (L, G, hd)
    key_ref: Any,  # (keys, hd)
    value_ref: Any,
    starts_ref: Any,  # (L,)
    visible_ref: Any,  # (keys,)
    blocks_ref: Any,  # (4,), the numbers of `QueryBlocks`
    slope_ref: Any,  # (L, G, hd)
    normaliser_ref: Any,  # (G, L)
    mean_ref: Any,  # (G, L)
    part_ref: Any,  # (), number of the part
    *results: Any,  # inputs: partial sums, if any; outputs: by_score, by_key and by_value
    prefix: int,
    interpret: bool,
) -> None:
    *so_far, by_score_ref, by_key_ref, by_value_ref = results
    queries, keys = _BY_KEYS
    key, value, visible = key_ref[...], value_ref[...], visible_ref[...]
    places = pl.program_id(0) * keys - prefix + jnp.arange(keys)
    scale = key.shape[1] ** -0.5
    rows = by_score_ref.shape[2] // queries  # of a part
    first, group = part_ref[...] * rows, query_ref.shape[1]
    # Only the queries of this part.
    blocks = QueryBlocks(*(jnp.clip(blocks_ref[n], first, first + rows) for n in range(4)))

    def add(number: jax.Array, carry: Any, masked: bool) -> Any:
        by_key, by_value = carry
        row, head = jax.lax.div(number, group), jax.lax.rem(number, group)
        rows = pl.ds(row * queries, queries)
        query, slope = query_ref[rows, head, :], slope_ref[rows, head, :]
        scores = triton.dot(key, query.T)  # (keys, queries)
        normaliser = normaliser_ref[head, rows][None, :]
        weights = _weights(scores, scale * _LOG2_E, normaliser, interpret)
        if masked:
            numbers = row * queries + jnp.arange(queries)
            starts = starts_ref[rows][None, :]
            allowed = _allowed(places[:, None], visible[:, None], numbers[None, :], starts)
            weights = jnp.where(allowed, weights, 0.0)
        by_value += triton.dot(weights.astype(slope.dtype), slope)
        by_weight = triton.dot(value, slope.T)
        by_score = weights * (by_weight - mean_ref[head, rows][None, :])
        by_score = by_score.astype(query.dtype)
        by_score_ref[head, :, pl.ds((row - first) * queries, queries)] = by_score
        return by_key + triton.dot(by_score, query), by_value

    def of_all_heads(*runs: Run) -> list[Run]:
        return [(begin * group, end * group) for begin, end in runs]

    zeros = jnp.zeros(key.shape, jnp.float32)
    carry = tuple(ref[...] for ref in so_far) if so_far else (zeros, zeros)
    clear = of_all_heads((blocks.clear_begin, blocks.clear_end))
    others = of_all_heads((blocks.begin, blocks.clear_begin), (blocks.clear_end, blocks.end))
    carry = over(clear, partial(add, masked=False), carry)
    carry = over(others, partial(add, masked=True), carry)
    by_key_ref[...], by_value_ref[...] = carry


def _by_query_kernel(
    by_score_ref: Any,  # (prefix + L, queries of the part)
    key_ref: Any,  # (prefix + L, hd)
    starts_ref: Any,  # (L,)
    visible_ref: Any,  # (prefix + L,)
    blocks_ref: Any,  # (blocks of queries, 8), the numbers of `KeyBlocks`
    part_ref: Any,  # (), number of the part
    *results: Any,  # input: partial gradients, if any; output: gradients (L, hd)
    prefix: int,
) -> None:
    by_query_ref = results[-1]
    queries, keys = _BY_QUERIES
    row = (part_ref[...] + 1) * pl.num_programs(0) - 1 - pl.program_id(0)
    rows = pl.ds(row * queries, queries)

    @pl.when(row < by_query_ref.shape[0] // queries)  # the last part may be shorter
    def sum_up() -> None:
        numbers, starts = row * queries + jnp.arange(queries), starts_ref[rows]
        blocks = KeyBlocks(*(blocks_ref[row, n] for n in range(len(KeyBlocks._fields))))

        def add(column: jax.Array, by_query: jax.Array, masked: bool) -> jax.Array:
            columns = pl.ds(column * keys, keys)
            by_score = by_score_ref[columns, :]
            if masked:
                places = column * keys - prefix + jnp.arange(keys)
                visible = visible_ref[columns][:, None]
                allowed = _allowed(places[:, None], visible, numbers[None, :], starts[None, :])
                # Masked entries are uninitialised.
                by_score = jnp.where(allowed, by_score, 0)
            return by_query + triton.dot(by_score.T, key_ref[columns, :])

        width = key_ref.shape[1]
        by_query = jnp.zeros((queries, width), jnp.float32)
        by_query = over(blocks.clear(), partial(add, masked=False), by_query)
        by_query = over(blocks.masked(), partial(add, masked=True), by_query)
        by_query_ref[rows, :] = (by_query * width**-0.5).astype(by_query_ref.dtype)


def _forward(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    starts: jax.Array,
    visible: jax.Array,
    prefix: int,
    interpret: bool,
) -> tuple[jax.Array, Any]:
    batch, length, heads, width = query.shape
    blocks = stacked(key_blocks(starts, visible, prefix, *_FORWARD))
    queries, keys = _FORWARD[0], key.shape[1]
    last, group = length // queries - 1, heads // key.shape[2]  # the longest work comes first
    of_queries = pl.BlockSpec((None, queries, None, width), lambda i, h, b: (b, last - i, h, 0))
    all_keys = pl.BlockSpec((None, keys, None, width), lambda i, h, b: (b, 0, h // group, 0))
    attended, normaliser = pl.pallas_call(
        partial(_forward_kernel, prefix=prefix, interpret=interpret),
        grid=(length // queries, heads, batch),
        in_specs=[
            *(of_queries, all_keys, all_keys),
            pl.BlockSpec((None, queries), lambda i, h, b: (b, last - i)),
            pl.BlockSpec((None, keys), lambda i, h, b: (b, 0)),
            pl.BlockSpec((None, None, blocks.shape[2]), lambda i, h, b: (b, last - i, 0)),
        ],
        out_specs=[
            of_queries,
            pl.BlockSpec((None, None, queries), lambda i, h, b: (b, h, last - i)),
        ],
        out_shape=[
            jax.ShapeDtypeStruct(query.shape, query.dtype),
            jax.ShapeDtypeStruct((batch, heads, length), jnp.float32),
        ],
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=3),
        interpret=interpret,
        name="flash_forward",
    )(query, key, value, starts, visible, blocks)
    attended, normaliser = (checkpoint_name(part, ATTENDED) for part in (attended, normaliser))
    return attended, (query, key, value, starts, visible, attended, normaliser)


def _backward(prefix: int, interpret: bool, kept: Any, slope: jax.Array) -> tuple[Any, ...]:
    query, key, value, starts, visible, attended, normaliser = kept
    # The gradient of softmax subtracts the mean of its slopes (FlashAttention, appendix B).
    mean = jnp.einsum(
        "blhd,blhd->bhl", slope, attended, preferred_element_type=jnp.float32
    )  # (B, H, L)
    tokens = (query, key, value, starts, visible, slope, normaliser, mean)
    parts = _parts(query, key)
    of_keys = stacked(query_blocks(starts, visible, prefix, *_BY_KEYS))
    of_queries = stacked(key_blocks(starts, visible, prefix, *_BY_QUERIES))

    def add(number: jax.Array, so_far: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        by_score, *sums = _by_key(tokens, of_keys, prefix, interpret, parts, number, so_far[1:])
        by_query = _by_query(
            tokens, by_score, of_queries, prefix, interpret, parts, number, so_far[:1]
        )
        return by_query, *sums

    # The first part writes the arrays, and the others add to them.
    first = add(jnp.zeros(1, jnp.int32), ())
    rest = jnp.arange(1, parts, dtype=jnp.int32)[:, None]
    (by_query, by_key, by_value), _ = jax.lax.scan(
        lambda so_far, number: (add(number, so_far), None), first, rest
    )
    by_key = (by_key * query.shape[-1] ** -0.5).astype(key.dtype)
    return by_query, by_key, by_value.astype(value.dtype), None, None


triton_attention.defvjp(_forward, _backward)


def _parts(query: jax.Array, key: jax.Array) -> int:
    """Return the number of parts of queries in which the gradients of scores are computed."""
    batch, length, heads, _ = query.shape
    fitting = GRADIENT_BYTES // (batch * heads * key.shape[1] * STEP * query.dtype.itemsize)
    steps = max(1, min(fitting, length // (2 * STEP)))
    return -(-length // (steps * STEP))


def _by_key(
    tokens: tuple[jax.Array, ...],
    blocks: jax.Array,  # int32 (B, blocks of keys, 4)
    prefix: int,
    interpret: bool,
    parts: int,
    number: jax.Array,  # of the part, int32 (1,)
    so_far: tuple[jax.Array, ...],  # () for the first part
) -> list[jax.Array]:
    """Return the gradients of a part's scores, (B, H, M, queries), and sums by key and value."""
    query, key, value, starts, visible, slope, normaliser, mean = tokens
    batch, length, heads, width = query.shape
    count, key_heads = key.shape[1:3]
    keys, group = _BY_KEYS[1], heads // key_heads
    of_part = -(-length // (parts * STEP)) * STEP
    all_queries = pl.BlockSpec((None, length, group, width), lambda i, h, b: (b, 0, h, 0))
    all_rows = pl.BlockSpec((None, group, length), lambda i, h, b: (b, h, 0))
    of_keys = pl.BlockSpec((None, keys, None, width), lambda i, h, b: (b, i, h, 0))
    inputs = [
        *(all_queries, of_keys, of_keys),
        pl.BlockSpec((None, length), lambda i, h, b: (b, 0)),
        pl.BlockSpec((None, keys), lambda i, h, b: (b, i)),
        pl.BlockSpec((None, None, blocks.shape[2]), lambda i, h, b: (b, i, 0)),
        *(all_queries, all_rows, all_rows),
        pl.BlockSpec((None,), lambda i, h, b: (0,)),
    ]
    gradients: list[jax.Array] = pl.pallas_call(
        partial(_by_key_kernel, prefix=prefix, interpret=interpret),
        grid=(count // keys, key_heads, batch),
        in_specs=[*inputs, *[of_keys] * len(so_far)],
        out_specs=[
            pl.BlockSpec((None, group, keys, of_part), lambda i, h, b: (b, h, i, 0)),
            *(of_keys, of_keys),
        ],
        out_shape=[
            jax.ShapeDtypeStruct((batch, heads, count, of_part), query.dtype),
            *[jax.ShapeDtypeStruct(key.shape, jnp.float32)] * 2,
        ],
        input_output_aliases={len(inputs) + one: 1 + one for one in range(len(so_far))},
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=2),
        interpret=interpret,
        name=f"flash_by_key_in_{parts}",
    )(query, key, value, starts, visible, blocks, slope, normaliser, mean, number, *so_far)
    return gradients


def _by_query(
    tokens: tuple[jax.Array, ...],
    by_score: jax.Array,
    blocks: jax.Array,  # int32 (B, blocks of queries, 8)
    prefix: int,
    interpret: bool,
    parts: int,
    number: jax.Array,  # of the part, int32 (1,)
    so_far: tuple[jax.Array, ...],  # () for the first part
) -> jax.Array:
    """Return the gradients of queries, updated with a part, from the gradients of its scores."""
    query, key, _, starts, visible, *_ = tokens
    batch, length, heads, width = query.shape
    count, queries, group = key.shape[1], _BY_QUERIES[0], heads // key.shape[2]
    rows = by_score.shape[3] // queries
    all_queries = pl.BlockSpec((None, length, None, width), lambda i, h, b: (b, 0, h, 0))
    inputs = [
        pl.BlockSpec((None, None, count, queries), lambda i, h, b: (b, h, 0, rows - 1 - i)),
        pl.BlockSpec((None, count, None, width), lambda i, h, b: (b, 0, h // group, 0)),
        pl.BlockSpec((None, length), lambda i, h, b: (b, 0)),
        pl.BlockSpec((None, count), lambda i, h, b: (b, 0)),
        pl.BlockSpec((None, *blocks.shape[1:]), lambda i, h, b: (b, 0, 0)),
        pl.BlockSpec((None,), lambda i, h, b: (0,)),
    ]
    by_query: jax.Array = pl.pallas_call(
        partial(_by_query_kernel, prefix=prefix),
        grid=(rows, heads, batch),
        in_specs=[*inputs, *[all_queries] * len(so_far)],
        out_specs=all_queries,
        out_shape=jax.ShapeDtypeStruct(query.shape, query.dtype),
        input_output_aliases={len(inputs): 0} if so_far else {},
        compiler_params=triton.CompilerParams(num_warps=8, num_stages=3),
        interpret=interpret,
        name=f"flash_by_query_in_{parts}",
    )(by_score, key, starts, visible, blocks, number, *so_far)
    return by_query
