"""Exact checksums of weights, which show that an engine computes with those of the trainer.

Log-probabilities can't show it: in bfloat16 the two sides differ by more than an update of a
learning rate of 1e-6 changes. A checksum is of the tensor in the engine's dtype, as it is handed
over; the engine's own is computed where its weights are (`training.weight_transfer.receiver`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from training.errors import UserError

Checksums = Mapping[str, int]
"""Checksums below 2**32 by the Hugging Face names of tensors."""

_BITS = {4: (jnp.uint32, 0x7F800000), 2: (jnp.uint16, 0x7F80)}
_WORD = 2**32


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


def version_of(sums: Checksums) -> str:
    """Name weights by their checksums, in eight hexadecimal digits."""
    plain = "\n".join(f"{name} {sums[name]}" for name in sorted(sums))
    return hashlib.sha256(plain.encode()).hexdigest()[:8]


def fetch_checksums(sums: Mapping[str, jax.Array]) -> dict[str, int]:
    """Wait for checksums that are still being computed."""
    return {name: int(one) for name, one in jax.device_get(dict(sums)).items()}


def require_equal_checksums(
    trainer: Checksums, workers: Sequence[Mapping[str, Sequence[int]]]
) -> None:
    """Compare the trainer's checksums with those of the engine's workers.

    A worker gives (checksum, copies) of the part of each tensor that it has; `copies` workers have
    each number, so that the sum over the workers is `copies` times the trainer's.

    Raises:
        SyncError: A tensor differs, or only one side has it. The message names such tensors.
    """
    held: dict[str, int] = {}
    expected: dict[str, int] = {}
    for worker in workers:
        for name, (total, copies) in worker.items():
            held[name] = (held.get(name, 0) + total) % _WORD
            expected[name] = trainer.get(name, -1) * copies % _WORD
    wrong = [name for name in trainer if name not in held]
    wrong += [name for name in held if name not in trainer or held[name] != expected[name]]
    if wrong:
        raise SyncError(
            f"{len(wrong)} of {len(trainer)} weight tensors in the engine are not the trainer's "
            f"after a sync, by their checksums: {_some(wrong)}"
        )


def _some(names: Sequence[Any]) -> str:
    rest = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(names[:5])}{rest}"
