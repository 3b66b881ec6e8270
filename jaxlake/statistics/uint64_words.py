"""Exact unsigned 64-bit sums for devices without 64-bit types, as pairs of 32-bit words."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def to_words(values: jax.Array) -> jax.Array:
    """Convert non-negative integers (...) below 2**32 to words: uint32 (..., 2), high, low."""
    low = jnp.asarray(values).astype(jnp.uint32)
    return jnp.stack([jnp.zeros_like(low), low], axis=-1)


@jax.jit
def add_words(first: jax.Array, second: jax.Array) -> jax.Array:
    """Return the sum of words, uint32 (..., 2), modulo 2**64."""
    return jnp.stack(_add(jnp.unstack(first, axis=-1), jnp.unstack(second, axis=-1)), axis=-1)


@jax.jit
def sum_words(words: jax.Array) -> jax.Array:
    """Return the sum of words, uint32 (n, ..., 2), along the first axis, modulo 2**64.

    The axis may be sharded over the devices of several processes.
    """
    zeros = (np.uint32(0), np.uint32(0))
    return jnp.stack(jax.lax.reduce(jnp.unstack(words, axis=-1), zeros, _add, (0,)), axis=-1)


def _add(first: tuple[jax.Array, ...], second: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """Return the sum of two pairs (high, low)."""
    low = first[1] + second[1]
    return first[0] + second[0] + (low < first[1]).astype(jnp.uint32), low


def words_to_int64(words: Any) -> np.ndarray:
    """Convert words to int64 (...) on the host; the values must be below 2**63."""
    pair = np.asarray(words).astype(np.int64)
    return (pair[..., 0] << 32) + pair[..., 1]
