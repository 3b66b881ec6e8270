"""Flash attention for NVIDIA GPUs, as Pallas kernels that Triton compiles.

Each program of the forward pass handles one block of queries. It loops over the blocks of keys and
accumulates the softmax (Dao 2023, FlashAttention-2, arXiv 2307.08691). Blocks that need no mask
come first. The backward pass recomputes the scores, one block of keys per program. A second kernel
sums the gradients of queries from the gradients of scores in a fixed order. To limit the memory for
gradients of scores, the backward pass runs over several parts of the queries, one after another.
Sums and softmax are float32. Axis letters are defined in `training.policy.blockwise`.
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
    BlockRange,
    KeyBlocks,
    QueryBlocks,
    fold_blocks,
    key_blocks,
    query_blocks,
    stack_fields,
)
from training.policy.kernels import ATTENTION_OUTPUT

STEP = 128
"""The number of queries and the prefix are padded to multiples of this."""

GRADIENT_BYTES = 5 * 2**28
"""Memory for gradients of scores in bytes; the gradients of `STEP` queries may exceed it."""

# Queries and keys of a block.
_FORWARD_BLOCK, _KEY_GRADS_BLOCK, _QUERY_GRADS_BLOCK = (64, 64), (64, 64), (128, 64)
_MASKED_SCORE = -1e30  # finite, so that differences are not NaN
_INITIAL_MAX = -1e28  # above scaled masked scores, below all others
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


def _weights(scores: jax.Array, scale: float, shift: jax.Array, interpret: bool) -> jax.Array:
    """Return 2 ** (scores * scale - shift), computed in two instructions."""
    if interpret:
        return jnp.exp2(scores * scale - shift)
    (scale_bits,) = struct.unpack("<I", struct.pack("<f", scale))
    instructions = f"fma.rn.f32 t, $1, 0f{scale_bits:08X}, $2; ex2.approx.ftz.f32 $0, t;"
    (weights,) = triton.elementwise_inline_asm(
        f"{{ .reg .f32 t; {instructions} }}",
        args=(scores, jnp.broadcast_to(-shift, scores.shape)),
        constraints="=f,f,f",
        pack=1,
        result_shape_dtypes=[jax.ShapeDtypeStruct(scores.shape, jnp.float32)],
    )
    return weights


def _attention_mask(
    key_index: jax.Array, visible: jax.Array, query_index: jax.Array, starts: jax.Array
) -> jax.Array:
    """Return the attention mask; `key_index` is relative to the first query."""
    is_causal = (key_index >= starts) & (key_index <= query_index)
    return (visible != 0) & ((key_index < 0) | is_causal)


def _forward_kernel(
    query_ref: Any,  # (queries, hd)
    key_ref: Any,  # (prefix + L, hd)
    value_ref: Any,
    starts_ref: Any,  # (queries,)
    visible_ref: Any,  # (prefix + L,)
    blocks_ref: Any,  # (8,), the fields of `KeyBlocks`
    out_ref: Any,  # (queries, hd)
    normaliser_ref: Any,  # (queries,), base 2
    *,
    prefix: int,
    interpret: bool,
) -> None:
    queries, keys = _FORWARD_BLOCK
    query, starts = query_ref[...], starts_ref[...]
    query_block = pl.num_programs(0) - 1 - pl.program_id(0)
    query_index = query_block * queries + jnp.arange(queries)
    scale = query.shape[1] ** -0.5 * _LOG2_E
    blocks = KeyBlocks(*(blocks_ref[n] for n in range(len(KeyBlocks._fields))))

    def add(key_block: jax.Array, carry: Any, masked: bool) -> Any:
        output, row_max, total = carry
        key_slice = pl.ds(key_block * keys, keys)
        scores = triton.dot(query, key_ref[key_slice, :].T)
        if masked:
            key_index = key_block * keys - prefix + jnp.arange(keys)
            visible = visible_ref[key_slice]
            allowed = _attention_mask(
                key_index[None, :], visible[None, :], query_index[:, None], starts[:, None]
            )
            scores = jnp.where(allowed, scores, _MASKED_SCORE)
        new_max = jnp.maximum(row_max, scores.max(axis=1) * scale)
        weights = _weights(scores, scale, new_max[:, None], interpret)
        decay = jnp.exp2(row_max - new_max)
        output = output * decay[:, None]
        output += triton.dot(weights.astype(query.dtype), value_ref[key_slice, :])
        return output, new_max, total * decay + weights.sum(axis=1)

    carry = (
        jnp.zeros(query.shape, jnp.float32),
        jnp.full((queries,), _INITIAL_MAX, jnp.float32),
        jnp.zeros((queries,), jnp.float32),
    )
    carry = fold_blocks(blocks.full_ranges(), partial(add, masked=False), carry)
    output, row_max, total = fold_blocks(blocks.masked_ranges(), partial(add, masked=True), carry)
    total = jnp.where(total > 0, total, 1.0)
    out_ref[...] = (output / total[:, None]).astype(out_ref.dtype)
    normaliser_ref[...] = row_max + jnp.log2(total)


def _key_value_grads_kernel(
    query_ref: Any,  # (L, G, hd)
    key_ref: Any,  # (keys, hd)
    value_ref: Any,
    starts_ref: Any,  # (L,)
    visible_ref: Any,  # (keys,)
    blocks_ref: Any,  # (4,), the fields of `QueryBlocks`
    d_out_ref: Any,  # (L, G, hd)
    normaliser_ref: Any,  # (G, L)
    delta_ref: Any,  # (G, L)
    part_index_ref: Any,  # ()
    *results: Any,  # inputs: partial sums, if any; outputs: d_scores, d_key and d_value
    prefix: int,
    interpret: bool,
) -> None:
    *partial_sums, d_scores_ref, d_key_ref, d_value_ref = results
    queries, keys = _KEY_GRADS_BLOCK
    key, value, visible = key_ref[...], value_ref[...], visible_ref[...]
    key_index = pl.program_id(0) * keys - prefix + jnp.arange(keys)
    scale = key.shape[1] ** -0.5
    blocks_per_part = d_scores_ref.shape[2] // queries
    first_block, group = part_index_ref[...] * blocks_per_part, query_ref.shape[1]
    # Only the queries of this part.
    blocks = QueryBlocks(
        *(jnp.clip(blocks_ref[n], first_block, first_block + blocks_per_part) for n in range(4))
    )

    def add(block_and_head: jax.Array, carry: Any, masked: bool) -> Any:
        d_key, d_value = carry
        query_block, head = jax.lax.div(block_and_head, group), jax.lax.rem(block_and_head, group)
        query_slice = pl.ds(query_block * queries, queries)
        query, d_out = query_ref[query_slice, head, :], d_out_ref[query_slice, head, :]
        scores = triton.dot(key, query.T)  # (keys, queries)
        normaliser = normaliser_ref[head, query_slice][None, :]
        weights = _weights(scores, scale * _LOG2_E, normaliser, interpret)
        if masked:
            query_index = query_block * queries + jnp.arange(queries)
            starts = starts_ref[query_slice][None, :]
            allowed = _attention_mask(
                key_index[:, None], visible[:, None], query_index[None, :], starts
            )
            weights = jnp.where(allowed, weights, 0.0)
        d_value += triton.dot(weights.astype(d_out.dtype), d_out)
        d_weights = triton.dot(value, d_out.T)
        d_scores = weights * (d_weights - delta_ref[head, query_slice][None, :])
        d_scores = d_scores.astype(query.dtype)
        d_scores_ref[head, :, pl.ds((query_block - first_block) * queries, queries)] = d_scores
        return d_key + triton.dot(d_scores, query), d_value

    def repeat_per_head(*ranges: BlockRange) -> list[BlockRange]:
        return [(begin * group, end * group) for begin, end in ranges]

    zeros = jnp.zeros(key.shape, jnp.float32)
    carry = tuple(ref[...] for ref in partial_sums) if partial_sums else (zeros, zeros)
    full_ranges = repeat_per_head((blocks.full_begin, blocks.full_end))
    others = repeat_per_head((blocks.begin, blocks.full_begin), (blocks.full_end, blocks.end))
    carry = fold_blocks(full_ranges, partial(add, masked=False), carry)
    carry = fold_blocks(others, partial(add, masked=True), carry)
    d_key_ref[...], d_value_ref[...] = carry


def _query_grads_kernel(
    d_scores_ref: Any,  # (prefix + L, queries of the part)
    key_ref: Any,  # (prefix + L, hd)
    starts_ref: Any,  # (L,)
    visible_ref: Any,  # (prefix + L,)
    blocks_ref: Any,  # (blocks of queries, 8), the fields of `KeyBlocks`
    part_index_ref: Any,  # ()
    *results: Any,  # input: partial gradients, if any; output: gradients (L, hd)
    prefix: int,
) -> None:
    d_query_ref = results[-1]
    queries, keys = _QUERY_GRADS_BLOCK
    query_block = (part_index_ref[...] + 1) * pl.num_programs(0) - 1 - pl.program_id(0)
    query_slice = pl.ds(query_block * queries, queries)

    @pl.when(query_block < d_query_ref.shape[0] // queries)  # the last part may be shorter
    def write_gradients() -> None:
        query_index, starts = query_block * queries + jnp.arange(queries), starts_ref[query_slice]
        blocks = KeyBlocks(*(blocks_ref[query_block, n] for n in range(len(KeyBlocks._fields))))

        def add(key_block: jax.Array, d_query: jax.Array, masked: bool) -> jax.Array:
            key_slice = pl.ds(key_block * keys, keys)
            d_scores = d_scores_ref[key_slice, :]
            if masked:
                key_index = key_block * keys - prefix + jnp.arange(keys)
                visible = visible_ref[key_slice][:, None]
                allowed = _attention_mask(
                    key_index[:, None], visible, query_index[None, :], starts[None, :]
                )
                # Masked entries are uninitialised.
                d_scores = jnp.where(allowed, d_scores, 0)
            return d_query + triton.dot(d_scores.T, key_ref[key_slice, :])

        width = key_ref.shape[1]
        d_query = jnp.zeros((queries, width), jnp.float32)
        d_query = fold_blocks(blocks.full_ranges(), partial(add, masked=False), d_query)
        d_query = fold_blocks(blocks.masked_ranges(), partial(add, masked=True), d_query)
        d_query_ref[query_slice, :] = (d_query * width**-0.5).astype(d_query_ref.dtype)


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
    blocks = stack_fields(key_blocks(starts, visible, prefix, *_FORWARD_BLOCK))
    queries, num_keys = _FORWARD_BLOCK[0], key.shape[1]
    # Reversed, so that the query blocks with the most keys start first.
    last_block, group = length // queries - 1, heads // key.shape[2]
    query_spec = pl.BlockSpec(
        (None, queries, None, width), lambda i, h, b: (b, last_block - i, h, 0)
    )
    key_spec = pl.BlockSpec((None, num_keys, None, width), lambda i, h, b: (b, 0, h // group, 0))
    output, normaliser = pl.pallas_call(
        partial(_forward_kernel, prefix=prefix, interpret=interpret),
        grid=(length // queries, heads, batch),
        in_specs=[
            *(query_spec, key_spec, key_spec),
            pl.BlockSpec((None, queries), lambda i, h, b: (b, last_block - i)),
            pl.BlockSpec((None, num_keys), lambda i, h, b: (b, 0)),
            pl.BlockSpec((None, None, blocks.shape[2]), lambda i, h, b: (b, last_block - i, 0)),
        ],
        out_specs=[
            query_spec,
            pl.BlockSpec((None, None, queries), lambda i, h, b: (b, h, last_block - i)),
        ],
        out_shape=[
            jax.ShapeDtypeStruct(query.shape, query.dtype),
            jax.ShapeDtypeStruct((batch, heads, length), jnp.float32),
        ],
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=3),
        interpret=interpret,
        name="flash_forward",
    )(query, key, value, starts, visible, blocks)
    output, normaliser = (
        checkpoint_name(array, ATTENTION_OUTPUT) for array in (output, normaliser)
    )
    return output, (query, key, value, starts, visible, output, normaliser)


def _backward(prefix: int, interpret: bool, residuals: Any, d_out: jax.Array) -> tuple[Any, ...]:
    query, key, value, starts, visible, output, normaliser = residuals
    # The row sums that the gradient of softmax subtracts (D in FlashAttention, appendix B).
    delta = jnp.einsum(
        "blhd,blhd->bhl", d_out, output, preferred_element_type=jnp.float32
    )  # (B, H, L)
    arrays = (query, key, value, starts, visible, d_out, normaliser, delta)
    num_parts = _count_parts(query, key)
    query_ranges = stack_fields(query_blocks(starts, visible, prefix, *_KEY_GRADS_BLOCK))
    key_ranges = stack_fields(key_blocks(starts, visible, prefix, *_QUERY_GRADS_BLOCK))

    def add_part(part_index: jax.Array, gradients: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        d_scores, *sums = _key_value_grads(
            arrays, query_ranges, prefix, interpret, num_parts, part_index, gradients[1:]
        )
        d_query = _query_grads(
            arrays, d_scores, key_ranges, prefix, interpret, num_parts, part_index, gradients[:1]
        )
        return d_query, *sums

    # The first part writes the arrays, and the others add to them.
    carry = add_part(jnp.zeros(1, jnp.int32), ())
    other_parts = jnp.arange(1, num_parts, dtype=jnp.int32)[:, None]
    (d_query, d_key, d_value), _ = jax.lax.scan(
        lambda gradients, part_index: (add_part(part_index, gradients), None), carry, other_parts
    )
    d_key = (d_key * query.shape[-1] ** -0.5).astype(key.dtype)
    return d_query, d_key, d_value.astype(value.dtype), None, None


triton_attention.defvjp(_forward, _backward)


def _count_parts(query: jax.Array, key: jax.Array) -> int:
    """Return the number of parts so that a part's gradients of scores fit `GRADIENT_BYTES`."""
    batch, length, heads, _ = query.shape
    bytes_per_step = batch * heads * key.shape[1] * STEP * query.dtype.itemsize
    steps = max(1, min(GRADIENT_BYTES // bytes_per_step, length // (2 * STEP)))
    return -(-length // (steps * STEP))


def _key_value_grads(
    arrays: tuple[jax.Array, ...],
    blocks: jax.Array,  # int32 (B, blocks of keys, 4)
    prefix: int,
    interpret: bool,
    num_parts: int,
    part_index: jax.Array,  # int32 (1,)
    partial_sums: tuple[jax.Array, ...],  # () for the first part
) -> list[jax.Array]:
    """Return gradients of a part's scores, (B, H, M, queries), and of keys and values so far."""
    query, key, *_ = arrays
    batch, length, heads, width = query.shape
    num_keys, key_heads = key.shape[1:3]
    keys, group = _KEY_GRADS_BLOCK[1], heads // key_heads
    part_queries = -(-length // (num_parts * STEP)) * STEP
    query_spec = pl.BlockSpec((None, length, group, width), lambda i, h, b: (b, 0, h, 0))
    statistics_spec = pl.BlockSpec((None, group, length), lambda i, h, b: (b, h, 0))
    key_spec = pl.BlockSpec((None, keys, None, width), lambda i, h, b: (b, i, h, 0))
    inputs = [
        *(query_spec, key_spec, key_spec),
        pl.BlockSpec((None, length), lambda i, h, b: (b, 0)),
        pl.BlockSpec((None, keys), lambda i, h, b: (b, i)),
        pl.BlockSpec((None, None, blocks.shape[2]), lambda i, h, b: (b, i, 0)),
        *(query_spec, statistics_spec, statistics_spec),
        pl.BlockSpec((None,), lambda i, h, b: (0,)),
    ]
    gradients: list[jax.Array] = pl.pallas_call(
        partial(_key_value_grads_kernel, prefix=prefix, interpret=interpret),
        grid=(num_keys // keys, key_heads, batch),
        in_specs=[*inputs, *[key_spec] * len(partial_sums)],
        out_specs=[
            pl.BlockSpec((None, group, keys, part_queries), lambda i, h, b: (b, h, i, 0)),
            *(key_spec, key_spec),
        ],
        out_shape=[
            jax.ShapeDtypeStruct((batch, heads, num_keys, part_queries), query.dtype),
            *[jax.ShapeDtypeStruct(key.shape, jnp.float32)] * 2,
        ],
        input_output_aliases={len(inputs) + i: 1 + i for i in range(len(partial_sums))},
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=2),
        interpret=interpret,
        name=f"flash_key_value_grads_in_{num_parts}",
    )(*arrays[:5], blocks, *arrays[5:], part_index, *partial_sums)
    return gradients


def _query_grads(
    arrays: tuple[jax.Array, ...],
    d_scores: jax.Array,
    blocks: jax.Array,  # int32 (B, blocks of queries, 8)
    prefix: int,
    interpret: bool,
    num_parts: int,
    part_index: jax.Array,  # int32 (1,)
    partial_sums: tuple[jax.Array, ...],  # () for the first part
) -> jax.Array:
    """Return the gradients of queries, including those of a part's queries."""
    query, key, _, starts, visible, *_ = arrays
    batch, length, heads, width = query.shape
    num_keys, queries, group = key.shape[1], _QUERY_GRADS_BLOCK[0], heads // key.shape[2]
    blocks_per_part = d_scores.shape[3] // queries
    query_spec = pl.BlockSpec((None, length, None, width), lambda i, h, b: (b, 0, h, 0))
    inputs = [
        pl.BlockSpec(
            (None, None, num_keys, queries), lambda i, h, b: (b, h, 0, blocks_per_part - 1 - i)
        ),
        pl.BlockSpec((None, num_keys, None, width), lambda i, h, b: (b, 0, h // group, 0)),
        pl.BlockSpec((None, length), lambda i, h, b: (b, 0)),
        pl.BlockSpec((None, num_keys), lambda i, h, b: (b, 0)),
        pl.BlockSpec((None, *blocks.shape[1:]), lambda i, h, b: (b, 0, 0)),
        pl.BlockSpec((None,), lambda i, h, b: (0,)),
    ]
    d_query: jax.Array = pl.pallas_call(
        partial(_query_grads_kernel, prefix=prefix),
        grid=(blocks_per_part, heads, batch),
        in_specs=[*inputs, *[query_spec] * len(partial_sums)],
        out_specs=query_spec,
        out_shape=jax.ShapeDtypeStruct(query.shape, query.dtype),
        input_output_aliases={len(inputs): 0} if partial_sums else {},
        compiler_params=triton.CompilerParams(num_warps=8, num_stages=3),
        interpret=interpret,
        name=f"flash_query_grads_in_{num_parts}",
    )(d_scores, key, starts, visible, blocks, part_index, *partial_sums)
    return d_query
