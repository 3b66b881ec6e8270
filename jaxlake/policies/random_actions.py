"""A policy of random actions: all of them, or those that the board allows a lone agent."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxlake.environment.action_masks import action_mask
from jaxlake.instance import Instance
from jaxlake.policies.random_choice import choose_allowed


@dataclass(frozen=True)
class RandomPolicy:
    """Uniform actions, independent of one another; `masked` leaves out what the board forbids."""

    masked: bool = True

    def start(self, key: jax.Array, instance: Instance) -> None:
        """Remember nothing."""

    def act(
        self,
        key: jax.Array,
        instance: Instance,
        positions: jax.Array,
        time: jax.Array,
        memory: None,
    ) -> tuple[jax.Array, None]:
        """See `JointPolicy.act`."""
        allowed = action_mask(instance, positions)
        if not self.masked:
            allowed = jnp.ones_like(allowed)
        return choose_allowed(key, allowed), memory
