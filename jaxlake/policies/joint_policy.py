"""The protocol of scripted policies that decide for all agents at once."""

from typing import Any, Protocol

import jax

from jaxlake.instance import Instance


class JointPolicy(Protocol):
    """Decides for all agents at once. Both methods can be jitted, vmapped and scanned.

    A policy has to be hashable. What it needs to know of a board it computes once, in `start`, and
    finds again in its memory.
    """

    def start(self, key: jax.Array, instance: Instance) -> Any:
        """Look at the board before the first step; give the memory, any pytree of arrays."""

    def act(
        self,
        key: jax.Array,
        instance: Instance,
        positions: jax.Array,
        time: jax.Array,
        memory: Any,
    ) -> tuple[jax.Array, Any]:
        """Choose one joint action, int8 (K,).

        The agents stand at `positions`, int8 (K, 2), after `time` steps, int32 (). `memory` is what
        `start` or the last `act` returned; it is given back with the same tree, shapes and dtypes.
        """
