"""Choice of the attention implementation: exact XLA on any device, or a kernel on NVIDIA GPUs."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jax.typing import DTypeLike

from jaxlake.runtime.triton_backend import has_triton_backend

# (queries, keys, values) -> attention output
AttentionFunction: TypeAlias = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]

# PLAIN computes all scores at once, BLOCKWISE one block after another, which saves memory. EXACT is
# one of these, by the number of keys. TRITON is a fused kernel for NVIDIA GPUs.
EXACT, PLAIN, BLOCKWISE, TRITON = "exact", "plain", "blockwise", "triton"

MIN_KERNEL_KEYS = 256
"""Minimum number of keys per query for which the kernel is used."""

ATTENTION_OUTPUT = "attended"
"""Name of the attention output in `jax.checkpoint` policies."""

_HEAD_DIMS = (64, 128)  # supported values of head_dim
_KERNEL_STEP = 128


@dataclass(frozen=True)
class AttentionImplementation:
    """The kind of attention and the mesh it runs on."""

    kind: str = EXACT  # EXACT, PLAIN, BLOCKWISE or TRITON
    mesh: Mesh | None = None  # axes fsdp, which splits sequences, and tensor, which splits heads
    interpret: bool = False  # run the kernel as JAX on any device, for tests

    def uses_kernel(self, num_keys: int) -> bool:
        """Return whether the kernel is used for rows of `num_keys` keys."""
        return self.kind == TRITON and num_keys >= MIN_KERNEL_KEYS

    def is_blockwise(self, num_keys: int, max_keys: int) -> bool:
        """Return whether XLA scores by block, as all kinds but PLAIN do above `max_keys` keys."""
        return self.kind == BLOCKWISE or (self.kind != PLAIN and num_keys > max_keys)


def select_attention(
    setting: str,
    *,
    platform: str,
    dtype: DTypeLike,
    head_dim: int,
    num_key_heads: int,
    tensor_axis_size: int,
) -> str:
    """Return the kind of attention for a value of `model.attention`.

    `auto` selects the kernel on NVIDIA GPUs if the model allows it, or `blockwise` if JAX has no
    Triton backend. The kernel rounds factors of products to bfloat16, so float32 models use exact
    attention.
    """
    if setting != "auto":
        return setting
    is_supported_shape = head_dim in _HEAD_DIMS and num_key_heads % tensor_axis_size == 0
    if platform != "gpu" or jnp.dtype(dtype) != jnp.bfloat16 or not is_supported_shape:
        return EXACT
    return TRITON if has_triton_backend() else BLOCKWISE


def make_kernel_attention(
    implementation: AttentionImplementation, starts: jax.Array, visible: jax.Array, prefix: int
) -> AttentionFunction:
    """Return a function `(queries, keys, values) -> output`, the attention computed by the kernel.

    Query q sees the prefix and the keys from its start to q. Queries are (B, L, H, hd), keys and
    values (B, prefix + L, K, hd), and the output is (B, L, H, hd), undefined without a visible key.

    Args:
        implementation: The kind of attention and its mesh.
        starts: int32 (B, L), first key of each query: 0 to q for query q, and non-decreasing.
        visible: bool (B, prefix + L), False for keys that are masked for all queries.
        prefix: Number of keys before all queries.
    """
    # Import lazily: Pallas takes a second to import, and its backend is not installed everywhere.
    from training.policy.triton_attention import triton_attention

    length = starts.shape[1]
    prefix_padding, padding = -prefix % _KERNEL_STEP, -length % _KERNEL_STEP

    def pad(array: jax.Array) -> jax.Array:
        """Pad the prefix and the other keys to multiples of the kernel's step."""
        trailing_axes = [(0, 0)] * (array.ndim - 2)
        prefix_keys, causal_keys = jnp.split(array, [prefix], axis=1)
        pieces = [
            jnp.pad(piece, [(0, 0), (0, count), *trailing_axes]) if count else piece
            for piece, count in ((prefix_keys, prefix_padding), (causal_keys, padding))
        ]
        return jnp.concatenate(pieces, axis=1) if prefix else pieces[1]

    def attend(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
        query = jnp.pad(query, [(0, 0), (0, padding), (0, 0), (0, 0)]) if padding else query
        padded_starts = jnp.broadcast_to(
            jnp.arange(length, length + padding), (len(starts), padding)
        )
        call = partial(
            triton_attention, prefix=prefix + prefix_padding, interpret=implementation.interpret
        )
        if implementation.mesh is not None:
            head_spec = PartitionSpec("fsdp", None, "tensor")
            row_spec = PartitionSpec("fsdp")
            call = jax.shard_map(
                call,
                mesh=implementation.mesh,
                in_specs=(head_spec, head_spec, head_spec, row_spec, row_spec),
                out_specs=head_spec,
                check_vma=False,
            )
        output = call(
            query,
            pad(key),
            pad(value),
            jnp.concatenate([starts, padded_starts.astype(jnp.int32)], axis=1),
            pad(visible.astype(jnp.int32)),
        )
        return output[:, :length]

    return attend


def segment_starts(segments: jax.Array) -> jax.Array:
    """Return the index at which each token's segment starts, int32 (B, L).

    Adjacent tokens with equal numbers in `segments`, int32 (B, L), form a segment.
    """
    indices = jax.lax.broadcasted_iota(jnp.int32, segments.shape, 1)
    is_start = jnp.pad(segments[:, 1:] != segments[:, :-1], [(0, 0), (1, 0)], constant_values=True)
    return jax.lax.cummax(jnp.where(is_start, indices, 0), axis=1)


def matmul_precision(dtype: DTypeLike) -> AbstractContextManager[object]:
    """Return a context in which products and their gradients have the precision of `dtype`."""
    is_float32 = jnp.dtype(dtype) == jnp.float32
    return jax.default_matmul_precision("float32") if is_float32 else nullcontext()
