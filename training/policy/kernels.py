"""Which attention is used where: exact in XLA on every device, or a kernel on NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jax.typing import DTypeLike

# (queries, keys, values) -> what each query attends to
PlainAttention: TypeAlias = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]

EXACT, PLAIN, BLOCKWISE, TRITON = "exact", "plain", "blockwise", "triton"

SHORTEST = 256
"""With fewer keys than this for each query, the kernel gains nothing."""

ATTENDED = "attended"
"""The name by which what attention gives can be kept for the backward pass (`jax.checkpoint`)."""

_WIDTHS = (64, 128)  # head_dim that the kernel's blocks are chosen for
_STEP = 128


@dataclass(frozen=True)
class Implementation:
    """How attention is computed, and where."""

    kind: str = EXACT  # plain for few keys and blockwise for many, always one of them, or triton
    mesh: Mesh | None = (
        None  # with axes fsdp, which splits sequences, and tensor, which splits heads
    )
    interpret: bool = False  # run the kernel as JAX on any device, for tests

    def uses_kernel(self, keys: int) -> bool:
        """Say whether the kernel is used for so many keys of a row."""
        return self.kind == TRITON and keys >= SHORTEST

    def is_blockwise(self, keys: int, limit: int) -> bool:
        """Say whether scores are computed block by block, which `exact` does above a limit."""
        return self.kind == BLOCKWISE or (self.kind != PLAIN and keys > limit)


def kind_for(
    setting: str, *, platform: str, dtype: DTypeLike, head_dim: int, key_heads: int, tensor: int
) -> str:
    """Choose the kind of attention for a setting of `model.attention`.

    `auto` takes the kernel on NVIDIA GPUs where it fits: it rounds factors of products to bfloat16,
    so float32 stays exact, and each of `tensor` devices needs whole heads of keys, of which the
    model has `key_heads`.
    """
    if setting != "auto":
        return setting
    fits = jnp.dtype(dtype) == jnp.bfloat16 and head_dim in _WIDTHS and key_heads % tensor == 0
    return TRITON if platform == "gpu" and fits else EXACT


def kernel_attention(
    implementation: Implementation, starts: jax.Array, visible: jax.Array, prefix: int
) -> PlainAttention:
    """Let query number q attend to visible keys: the first `prefix`, and its own from start to q.

    `starts`, int32 (B, L), are 0 to q for query number q and never fall along L. `visible`, bool
    (B, prefix + L), is False for keys to which nobody attends. Queries are (B, L, H, hd), keys and
    values (B, prefix + L, K, hd); the result is as the queries, and without a meaning where a query
    may attend to nothing.
    """
    # Imported where it is used: Pallas takes a second, and its backend need not be everywhere.
    from training.policy.triton_attention import triton_attention

    length = starts.shape[1]
    more_prefix, more = -prefix % _STEP, -length % _STEP

    def pad(array: jax.Array) -> jax.Array:
        """Pad keys behind the prefix, and at the end, to multiples of what the kernel takes."""
        rest = [(0, 0)] * (array.ndim - 2)
        before, own = jnp.split(array, [prefix], axis=1)
        parts = [
            jnp.pad(part, [(0, 0), (0, count), *rest]) if count else part
            for part, count in ((before, more_prefix), (own, more))
        ]
        return jnp.concatenate(parts, axis=1) if prefix else parts[1]

    def attend(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
        query = jnp.pad(query, [(0, 0), (0, more), (0, 0), (0, 0)]) if more else query
        ends = jnp.broadcast_to(jnp.arange(length, length + more), (len(starts), more))
        call = partial(
            triton_attention, prefix=prefix + more_prefix, interpret=implementation.interpret
        )
        if implementation.mesh is not None:
            of_heads = PartitionSpec("fsdp", None, "tensor")
            of_rows = PartitionSpec("fsdp")
            call = jax.shard_map(
                call,
                mesh=implementation.mesh,
                in_specs=(of_heads, of_heads, of_heads, of_rows, of_rows),
                out_specs=of_heads,
                check_vma=False,
            )
        attended = call(
            query,
            pad(key),
            pad(value),
            jnp.concatenate([starts, ends.astype(jnp.int32)], axis=1),
            pad(visible.astype(jnp.int32)),
        )
        return attended[:, :length]

    return attend


def run_starts(segments: jax.Array) -> jax.Array:
    """Return where each token's run of equal numbers begins: int32 (B, L) of int32 (B, L)."""
    places = jax.lax.broadcasted_iota(jnp.int32, segments.shape, 1)
    new = jnp.pad(segments[:, 1:] != segments[:, :-1], [(0, 0), (1, 0)], constant_values=True)
    return jax.lax.cummax(jnp.where(new, places, 0), axis=1)


def products_of(dtype: DTypeLike) -> AbstractContextManager[object]:
    """Let products in here, and in their gradients, be as exact as the dtype of their factors."""
    exact = jnp.dtype(dtype) == jnp.float32
    return jax.default_matmul_precision("float32") if exact else nullcontext()
