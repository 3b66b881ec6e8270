"""Exact checksums of weights, which show that an engine got those of the trainer.

vLLM's workers compare them as tensors arrive (`receiver.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from training.errors import UserError

_BITS = {4: (jnp.uint32, 0x7F800000), 2: (jnp.uint16, 0x7F80)}


class SyncError(UserError):
    """The engine doesn't generate with the trainer's weights, or computes something else."""


@jax.jit
def weight_checksum(values: jax.Array) -> jax.Array:
    """Sum the mixed bit patterns of float32 or bfloat16 numbers, modulo 2**32: uint32 ().

    The numbers may be spread over devices. See `receiver.bit_checksum`, which computes the
    same.
    """
    word, exponent = _BITS[values.dtype.itemsize]
    bits = jax.lax.bitcast_convert_type(values, word).astype(jnp.uint32)
    bits = jnp.where(bits & np.uint32(exponent) == 0, np.uint32(0), bits)
    bits = bits * np.uint32(0x9E3779B1)
    bits = bits ^ (bits >> 15)
    bits = bits * np.uint32(0x85EBCA77)
    return jnp.sum(bits ^ (bits >> 13), dtype=jnp.uint32)


def with_checksums(
    tensors: Iterable[tuple[str, Any]], dtype: Any, sums: dict[str, jax.Array]
) -> Iterator[tuple[str, jax.Array]]:
    """Convert tensors one at a time, and begin to compute the checksum of each into `sums`."""
    for name, tensor in tensors:
        array = jnp.asarray(tensor, dtype)
        sums[name] = weight_checksum(array)
        yield name, array


def version_of(sums: Mapping[str, Any]) -> str:
    """Name weights by their checksums, in eight hexadecimal digits."""
    plain = "\n".join(f"{name} {int(sums[name])}" for name in sorted(sums))
    return hashlib.sha256(plain.encode()).hexdigest()[:8]
