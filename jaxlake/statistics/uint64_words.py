"""Exact unsigned 64-bit sums for devices without 64-bit types, as pairs of 32-bit words."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def to_words(values: jax.Array) -> jax.Array:
    """Convert non-negative integers (...) below 2**32 to words: uint32 (..., 2), high, low."""
    low = jnp.asarray(values).astype(jnp.uint32)
    return jnp.stack([jnp.zeros_like(low), low], axis=-1)


def add_words(first: jax.Array, second: jax.Array) -> jax.Array:
    """Return the sum of words, uint32 (..., 2), modulo 2**64."""
    low = first[..., 1] + second[..., 1]
    carry = (low < first[..., 1]).astype(jnp.uint32)
    return jnp.stack([first[..., 0] + second[..., 0] + carry, low], axis=-1)


@partial(jax.jit, static_argnames="axis")
def sum_words(words: jax.Array, axis: int = 0) -> jax.Array:
    """Return the sum of words, uint32 (..., 2), along an axis of any length, modulo 2**64.

    The axis may be sharded over the devices of several processes.
    """

    def add(first: tuple[jax.Array, ...], second: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        low = first[1] + second[1]
        return first[0] + second[0] + (low < first[1]).astype(jnp.uint32), low

    zero = np.uint32(0)
    pair = jax.lax.reduce((words[..., 0], words[..., 1]), (zero, zero), add, (axis,))
    return jnp.stack(pair, axis=-1)


def words_to_int64(words: Any) -> np.ndarray:
    """Convert words to int64 (...) on the host; the values must be below 2**63."""
    pair = np.asarray(words).astype(np.int64)
    return (pair[..., 0] << 32) + pair[..., 1]
