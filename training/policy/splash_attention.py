"""Flash attention for TPUs: JAX's "splash" kernels, with masks for packed rows.

Those kernels compare segments of queries and keys, or call a function of the number of a query and
of a key. Neither says that all sequences of a row attend to one prompt. So the number of a query
holds where its sequence begins, too, and the function says the rest; keys that nobody sees are a
segment of their own. What is static, that no key is after its query, lets blocks be passed over.

Axis letters are those of `training.policy.blockwise`. Sums and softmax are float32; a TPU rounds
the factors of products to bfloat16.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas.ops.tpu import splash_attention as splash

from training.policy.kernels import ATTENDED, LONGEST

STEP = 128
"""Queries, and keys before them, are padded to multiples of it."""

_BITS = 15  # of a number that stands beside another one in an int32
_LONGEST = 2**_BITS
assert LONGEST["splash"] == _LONGEST

_BLOCKS = (512, 256, 128)  # queries, and keys, of a block: the largest that divides both


@dataclass(frozen=True)
class _RowMask(splash.splash_attention_mask.Mask):
    """The keys before all queries, and those from a query's start to the query.

    Of what is known beforehand, each query starts at 0. `q_sequence` and `mask_function` are the
    names by which the kernels find a mask that they compute themselves.
    """

    length: int
    prefix: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.length, self.prefix + self.length

    @property
    def q_sequence(self) -> np.ndarray:
        return np.arange(self.length, dtype=np.int32) << _BITS

    def mask_function(self, query: Any, key: Any) -> Any:
        """Say whether queries, `place << _BITS | start`, may attend to keys, by their index."""
        place, start = query >> _BITS, query & (_LONGEST - 1)
        return (key < self.prefix) | ((key - self.prefix >= start) & (key - self.prefix <= place))

    def __getitem__(self, part: Any) -> np.ndarray:
        rows, columns = part
        keys = np.arange(self.shape[1], dtype=np.int32)[columns]
        return self.mask_function(self.q_sequence[rows][:, None], keys[None, :])


def splash_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    starts: jax.Array,
    visible: jax.Array,
    prefix: int,
    interpret: bool = False,
) -> jax.Array:
    """Let query number q attend to the visible keys before all queries and from its start to q.

    The arguments are those of `training.policy.triton_attention.triton_attention`, with L at most
    32,768. A query that may attend to nothing gets numbers without a meaning.

    Raises:
        ValueError: There are more queries.
    """
    length, heads = query.shape[1:3]
    if length > _LONGEST:
        raise ValueError(f"query: got {length} queries of a row, allowed are at most {_LONGEST}")
    kernel = _kernel(length, prefix, heads, interpret)
    numbers = (jnp.arange(length, dtype=jnp.int32) << _BITS) | starts
    query = (query.astype(jnp.float32) * query.shape[-1] ** -0.5).astype(query.dtype)

    def of_row(
        query: jax.Array, key: jax.Array, value: jax.Array, number: jax.Array, visible: jax.Array
    ) -> jax.Array:
        segments = splash.SegmentIds(q=jnp.ones(length, jnp.int32), kv=visible)
        return _with_numbers(kernel, number)(query, key, value, segments)

    query, key, value = (jnp.moveaxis(part, 2, 1) for part in (query, key, value))
    attended = jax.vmap(of_row)(query, key, value, numbers, visible)
    return jnp.moveaxis(attended, 1, 2).astype(value.dtype)


@lru_cache
def _kernel(length: int, prefix: int, heads: int, interpret: bool) -> Any:
    """Make the kernels for rows of one shape."""
    block = next(size for size in _BLOCKS if length % size == 0 and prefix % size == 0)
    sizes = splash.BlockSizes(
        block_q=block,
        block_kv=block,
        block_kv_compute=block,
        block_q_dkv=block,
        block_kv_dkv=block,
        block_kv_dkv_compute=block,
        block_q_dq=block,
        block_kv_dq=block,
    )
    with jax.ensure_compile_time_eval():
        return splash.make_splash_mha(
            splash.splash_attention_mask.MultiHeadMask([_RowMask(length, prefix)] * heads),
            block_sizes=sizes,
            head_shards=1,
            q_seq_shards=1,
            residual_checkpoint_name=ATTENDED,
            interpret=interpret,
        )


def _with_numbers(kernel: Any, numbers: jax.Array) -> Any:
    """Return the kernels with other numbers of their queries, int32 (L,), which may be traced."""
    infos = (kernel.fwd_mask_info, kernel.dq_mask_info, kernel.dkv_mask_info)
    return type(kernel)(*(info._replace(q_sequence=numbers) for info in infos), **kernel.kwargs)
