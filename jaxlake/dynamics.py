"""The rules of classical MAPF on a frozen lake: the one statement that everything else calls."""

from dataclasses import dataclass
from enum import IntEnum

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.instance import Instance


class Action(IntEnum):
    """What one agent does in one time step (POGEMA's order)."""

    WAIT = 0
    UP = 1
    DOWN = 2
    LEFT = 3
    RIGHT = 4


ACTION_DELTAS = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]], dtype=np.int8)
"""int8 (5, 2): (row, column) that each action adds."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Step:
    """What one simultaneous step leads to. The flags of agents outside the mask are False."""

    positions: jax.Array  # int8 (K, 2), where the agents stand afterwards
    off_board: jax.Array  # bool (K,), the agent tried to leave the board
    hole: jax.Array  # bool (K,), the agent moved onto a hole
    vertex_conflict: jax.Array  # bool (K,), another agent ends the step in the same cell
    swapping_conflict: jax.Array  # bool (K,), the agent changed places with another


def step(instance: Instance, positions: jax.Array, actions: jax.Array) -> Step:
    """Move all agents at once and say who broke which rule (Stern et al. 2019, section 2).

    Following and, with three or more agents, cycles are allowed.

    Args:
        instance: the board; only `holes`, `size` and `agent_mask` are read.
        positions: int8 (K, 2), where the agents stand.
        actions: int8 (K,), values of `Action`. Any other value leads to no cell and counts as
            off the board.

    Returns:
        The `Step`. An agent that tries to leave the board stays where it is; an agent that moves
        onto a hole is placed there; agents in conflict are placed where they wanted to go.
    """
    known = (actions >= 0) & (actions < len(ACTION_DELTAS))
    # Selects and one number a cell instead of tables and pairs: they vectorise, also under vmap.
    rows, columns = positions[:, 0], positions[:, 1]
    down = (actions == Action.DOWN).astype(jnp.int8) - (actions == Action.UP).astype(jnp.int8)
    right = (actions == Action.RIGHT).astype(jnp.int8) - (actions == Action.LEFT).astype(jnp.int8)
    to_row, to_column = rows + down, columns + right
    side = instance.size.astype(jnp.int8)
    on_board = (to_row >= 0) & (to_row < side) & (to_column >= 0) & (to_column < side) & known
    to_row = jnp.where(on_board, to_row, rows)
    to_column = jnp.where(on_board, to_column, columns)
    on_hole = jnp.asarray(instance.holes)[to_row, to_column]

    K = positions.shape[0]
    mask = instance.agent_mask
    others = mask[:, None] & mask[None, :] & ~jnp.eye(K, dtype=bool)
    here = rows.astype(jnp.int16) * 128 + columns
    there = to_row.astype(jnp.int16) * 128 + to_column
    same_target = there[:, None] == there[None, :]
    takes_place = there[:, None] == here[None, :]
    targets = jnp.stack([to_row, to_column], axis=-1)
    return Step(
        positions=targets,
        off_board=mask & ~on_board,
        hole=mask & on_board & on_hole,
        vertex_conflict=jnp.any(others & same_target, axis=-1),
        swapping_conflict=jnp.any(others & takes_place & takes_place.T, axis=-1),
    )
