"""Choosing at random among the actions that are allowed."""

import jax
import jax.numpy as jnp

from jaxlake.dynamics import Action


def choose_allowed(key: jax.Array, allowed: jax.Array) -> jax.Array:
    """Choose one allowed action per agent, uniform up to 5 / 2**16; WAIT where none is allowed.

    Args:
        key: typed PRNG key.
        allowed: bool (K, 5).

    Returns:
        int8 (K,).
    """
    words = jax.random.bits(key, allowed.shape[:1], jnp.uint32) >> 16
    count = jnp.sum(allowed, axis=-1, dtype=jnp.uint32)
    wanted = ((words * count) >> 16).astype(jnp.int32)
    rank = jnp.cumsum(allowed, axis=-1, dtype=jnp.int32) - 1
    chosen = allowed & (rank == wanted[:, None])
    return jnp.sum(
        jnp.where(chosen, jnp.arange(len(Action), dtype=jnp.int8), jnp.int8(0)),
        axis=-1,
        dtype=jnp.int8,
    )
