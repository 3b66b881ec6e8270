"""Random actions: any of them, or those that the board allows a lone agent."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxlake.dynamics import Action
from jaxlake.environment.action_masks import action_mask
from jaxlake.instance import Instance


def choose_allowed(key: jax.Array, allowed: jax.Array) -> jax.Array:
    """Choose one action per agent, int8 (K,), of those that bool (K, 5) allows.

    The choice is uniform up to 5 / 2**16; WAIT where none is allowed.
    """
    words = jax.random.bits(key, allowed.shape[:1], jnp.uint32) >> 16
    count = jnp.sum(allowed, axis=-1, dtype=jnp.uint32)
    wanted = ((words * count) >> 16).astype(jnp.int32)
    rank = jnp.cumsum(allowed, axis=-1, dtype=jnp.int32) - 1
    chosen = allowed & (rank == wanted[:, None])
    numbers = jnp.arange(len(Action), dtype=jnp.int8)
    return jnp.sum(jnp.where(chosen, numbers, jnp.int8(0)), axis=-1, dtype=jnp.int8)


@dataclass(frozen=True)
class RandomPolicy:
    """Uniform actions, independent of one another; `masked` leaves out what the board forbids."""

    masked: bool = True

    def start(self, key: jax.Array, instance: Instance) -> None:
        """Remember nothing."""

    def act(
        self, key: jax.Array, instance: Instance, positions: jax.Array, time: jax.Array, memory: Any
    ) -> tuple[jax.Array, None]:
        """See `JointPolicy.act`."""
        allowed = action_mask(instance, positions)
        if not self.masked:
            allowed = jnp.ones_like(allowed)
        return choose_allowed(key, allowed), memory
