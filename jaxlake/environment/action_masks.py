"""Which actions an agent could take if it were alone on the board."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.dynamics import Action, target_cells
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
    bits = jnp.where(_allowed(instance, cells), jnp.asarray(ACTION_BITS), jnp.uint8(0))
    return jnp.sum(bits, axis=-1, dtype=jnp.uint8).reshape(N, N)


def _allowed(instance: Instance, positions: jax.Array) -> jax.Array:
    actions, side = jnp.arange(len(Action), dtype=jnp.int8), instance.size.astype(jnp.int8)
    rows, columns, inside = target_cells(positions[:, :1], positions[:, 1:], actions, side)
    return (inside & ~jnp.asarray(instance.holes)[rows, columns]) | jnp.asarray(_ONLY_WAIT)
