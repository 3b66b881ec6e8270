"""RandomPolicy: any action, or any that a lone agent may take."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxlake.environment.masks import action_mask
from jaxlake.instance import Instance
from jaxlake.policies.choice import choose


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
        """See `Policy.act`."""
        allowed = action_mask(instance, positions)
        if not self.masked:
            allowed = jnp.ones_like(allowed)
        return choose(key, allowed), memory
