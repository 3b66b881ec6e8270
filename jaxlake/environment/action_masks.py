"""Which actions an agent could take if it were alone on the board."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.dynamics import Action, step
from jaxlake.board.instance import Instance

_ONLY_WAIT = np.arange(len(Action)) == Action.WAIT
ACTION_BITS = np.uint8(1) << np.arange(len(Action), dtype=np.uint8)


def action_mask(instance: Instance, positions: jax.Array) -> jax.Array:
    """Say which actions lead neither off the board nor onto a hole; other agents don't matter.

    The agents stand at `positions`, int8 (K, 2). Gives bool (K, 5): WAIT is always allowed, and an
    agent outside `agent_mask` can only wait.
    """
    allowed = _allowed(instance, positions)
    return jnp.where(instance.agent_mask[:, None], allowed, jnp.asarray(_ONLY_WAIT))


def open_moves(instance: Instance) -> jax.Array:
    """Give the `action_mask` of every cell at once: uint8 (N, N), with bit a for action a."""
    N = instance.holes.shape[-1]
    cells = jnp.asarray(np.indices((N, N), dtype=np.int8).reshape(2, N * N).T)
    everywhere = replace(instance, agent_mask=jnp.ones(N * N, bool))
    bits = jnp.where(_allowed(everywhere, cells), jnp.asarray(ACTION_BITS), jnp.uint8(0))
    return jnp.sum(bits, axis=-1, dtype=jnp.uint8).reshape(N, N)


def _allowed(instance: Instance, positions: jax.Array) -> jax.Array:
    def lone(action: jax.Array) -> jax.Array:
        moved = step(instance, positions, jnp.full(positions.shape[:1], action, jnp.int8))
        return ~(moved.off_board | moved.hole)

    actions = jnp.arange(len(Action), dtype=jnp.int8)
    return jax.vmap(lone, out_axes=-1)(actions) | jnp.asarray(_ONLY_WAIT)
