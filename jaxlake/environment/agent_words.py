"""The rules of a joint action from one word per agent: a GPU then runs them as one kernel."""

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.dynamics import pair_conflicts, target_cells
from jaxlake.board.instance import Instance

MOST_AGENTS = 8  # the program grows with the square of their number
LARGEST_SIDE = 64  # of a board whose cells fit into a word

_SIDE_BITS = 6
_CELL_BITS = 2 * _SIDE_BITS  # row * LARGEST_SIDE + column
_REAL, _OFF_BOARD, _HOLE, _HOME, _ARRIVES, _HERE = range(6)
_THERE = _HERE + _CELL_BITS

Scalars = list[jax.Array]
"""One () for each agent."""


class Resolved(NamedTuple):
    """What a joint action leads to; bool except for `there`. See `Step` and `ResolvedAction`."""

    off_board: Scalars  # this and the next three are the rules of `Step`
    hole: Scalars
    vertex_conflict: Scalars
    swapping_conflict: Scalars
    leaves: Scalars  # the agent means to enter another cell of the board
    stays: Scalars  # the conflict policy holds the agent back
    at_goal: Scalars  # an agent of the mask is at its goal afterwards
    there: Scalars  # uint32, the cell that the agent means to be in
    num_away: jax.Array  # int32 (), agents of the mask that are not at their goals afterwards


def agent_words(instance: Instance, positions: jax.Array, actions: jax.Array) -> jax.Array:
    """Pack what the rules read of each agent, uint32 (K,)."""
    rows, columns = positions[:, 0], positions[:, 1]
    to_rows, to_columns, on_board = target_cells(
        rows, columns, actions, instance.size.astype(jnp.int8)
    )
    goal_rows, goal_columns = instance.goals[:, 0], instance.goals[:, 1]
    mask = instance.agent_mask
    flags = {
        _REAL: mask,
        _OFF_BOARD: mask & ~on_board,
        _HOLE: mask & on_board & jnp.asarray(instance.holes)[to_rows, to_columns],
        _HOME: (rows == goal_rows) & (columns == goal_columns),
        _ARRIVES: (to_rows == goal_rows) & (to_columns == goal_columns),
    }
    packed = [flag.astype(jnp.uint32) << place for place, flag in flags.items()]
    packed += [_cells(rows, columns) << _HERE, _cells(to_rows, to_columns) << _THERE]
    return reduce(jnp.bitwise_or, packed)


def resolve_words(words: Scalars, *, blocks: bool, priority: bool) -> Resolved:
    """Apply the rules; without `blocks` nobody is held back.

    With `priority` the lowest of several agents that move into one free cell goes.
    """
    agents = range(len(words))
    mask, off_board, hole, home, arrives = (
        [word & np.uint32(1 << place) != 0 for word in words]
        for place in (_REAL, _OFF_BOARD, _HOLE, _HOME, _ARRIVES)
    )
    cell = np.uint32((1 << _CELL_BITS) - 1)
    here = [(word >> _HERE) & cell for word in words]
    there = [word >> _THERE for word in words]
    leaves = [here[k] != there[k] for k in agents]
    # Whoever meets an agent that waits takes its place, and so stays with it, see below.
    vertex, swapping, beaten = pair_conflicts(here, there, mask)
    stays = [jnp.zeros_like(flag) for flag in mask]
    if blocks:
        lost = beaten if priority else vertex
        stays = [off_board[k] | hole[k] | swapping[k] | lost[k] for k in agents]
        follows = [[mask[i] & mask[j] & (there[i] == here[j]) for j in agents] for i in agents]
        for _ in agents[1:]:  # the longest queue
            held = [[follows[i][j] & stays[j] for j in agents if j != i] for i in agents]
            stays = [reduce(jnp.logical_or, held[i], stays[i]) for i in agents]
    at_goal = [mask[k] & jnp.where(stays[k], home[k], arrives[k]) for k in agents]
    num_away = sum((mask[k] & ~at_goal[k] for k in agents), jnp.int32(0))
    return Resolved(off_board, hole, vertex, swapping, leaves, stays, at_goal, there, num_away)


def join(scalars: Scalars) -> jax.Array:
    """Give one array (K,). By selects: XLA fuses a concatenation into fewer other operations."""
    joined = jnp.broadcast_to(scalars[-1], len(scalars))
    for k, scalar in enumerate(scalars[:-1]):
        joined = jnp.where(np.arange(len(scalars)) == k, scalar, joined)
    return joined


def places(cells: jax.Array) -> jax.Array:
    """Give rows and columns of cells (K,): uint32 (K, 2)."""
    return (cells[:, None] >> np.array([_SIDE_BITS, 0], np.uint32)) & np.uint32(LARGEST_SIDE - 1)


def _cells(rows: jax.Array, columns: jax.Array) -> jax.Array:
    row, column = (x.astype(jnp.uint32) & np.uint32(LARGEST_SIDE - 1) for x in (rows, columns))
    return (row << _SIDE_BITS) | column
