"""Exact checksums of weights, which show that an engine holds the trainer's weights.

vLLM's workers compare them as tensors arrive (`receiver.py`).
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from training.errors import UserError

# By item size: the integer type of the bits, and the mask of the exponent.
_BITS = {4: (jnp.uint32, 0x7F800000), 2: (jnp.uint16, 0x7F80)}


class SyncError(UserError):
    """The engine's weights or log-probabilities differ from the trainer's."""


@jax.jit
def weight_checksum(values: jax.Array) -> jax.Array:
    """Return the sum of the mixed bit patterns of numbers, modulo 2**32.

    `receiver.bit_checksum` computes the same sum with torch.

    Args:
        values: float32 or bfloat16 array of any shape and sharding.

    Returns:
        uint32 ().
    """
    dtype, exponent = _BITS[values.dtype.itemsize]
    bits = jax.lax.bitcast_convert_type(values, dtype).astype(jnp.uint32)
    bits = jnp.where(bits & np.uint32(exponent) == 0, np.uint32(0), bits)
    bits = bits * np.uint32(0x9E3779B1)
    bits = bits ^ (bits >> 15)
    bits = bits * np.uint32(0x85EBCA77)
    return jnp.sum(bits ^ (bits >> 13), dtype=jnp.uint32)


def add_checksums(
    tensors: Iterable[tuple[str, Any]], dtype: Any, sums: dict[str, jax.Array]
) -> Iterator[tuple[str, jax.Array]]:
    """Yield each tensor converted to `dtype`, and start computing its checksum.

    `sums` receives the checksum of each tensor by name.
    """
    for name, tensor in tensors:
        array = jnp.asarray(tensor, dtype)
        sums[name] = weight_checksum(array)
        yield name, array


def compute_version(sums: Mapping[str, Any]) -> str:
    """Return a version of eight hexadecimal digits for weights with these checksums."""
    text = "\n".join(f"{name} {int(sums[name])}" for name in sorted(sums))
    return hashlib.sha256(text.encode()).hexdigest()[:8]
