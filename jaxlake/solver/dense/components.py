"""Numbering of the cells and edges that each agent can reach on a board.

Numbers start at 1. The number 0 stands for a retired agent, which stays at its goal.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.distance_fields import UNREACHABLE, flood, iterate_until_stable
from jaxlake.solver import bitboard
from jaxlake.solver.certificates import PreparedBoards
from jaxlake.solver.chunks import Widths, map_chunks


class DenseBoards(NamedTuple):
    """Boards to search, boards last."""

    free: jax.Array  # bool (N, N, B)
    starts: jax.Array  # int32 (K, 2, B), (row, column)
    goals: jax.Array  # int32 (K, 2, B)
    mask: jax.Array  # bool (K, B), whether an agent exists
    timed: jax.Array  # bool (B,), the least makespan is known and need not be searched
    makespans: jax.Array  # int32 (2, B), bounds on the least makespan; the upper bound is NEVER
    #   without a known plan
    costs: jax.Array  # int32 (2, B), likewise for the least sum of costs


class Components(NamedTuple):
    """Component of each agent, by number; the number `radix` - 1 is unused."""

    place: jax.Array  # int32 (K, radix), row * N + column by cell; 0: the goal; -1: unused
    start: jax.Array  # int32 (K,), number of the start, 0 for absent agents
    goal: jax.Array  # int32 (K,), number of the goal, likewise
    edge: jax.Array  # int32 (K, radix), number of the edge on the board; -1: unused or retired
    ends: jax.Array  # int32 (K, 2, radix), cells by edge
    edges_at: jax.Array  # int32 (K, 5, radix), edges by cell; 0: none for the makespan
    colour: jax.Array  # int32 (K, radix), 1 where the colour differs from the start's
    fits: jax.Array  # bool (), all cells and edges have a number


def component_sizes(boards: PreparedBoards, active: jax.Array, widths: Widths) -> jax.Array:
    """Return the largest number of cells or edges of an agent's component, int32 (B,)."""
    R, B = boards.free.shape

    def measure(chunk: tuple[jax.Array, jax.Array], _: None) -> tuple[jax.Array, None]:
        free, starts = chunk
        cells = jnp.stack([bitboard.cell_bitboard(start, R) for start in starts])
        cells = iterate_until_stable(lambda cells: cells | (bitboard.dilate(cells) & free), cells)
        lines = [cells, cells & (cells >> 1), cells[:, 1:] & cells[:, :-1]]
        count = [
            jnp.sum(jax.lax.population_count(x).astype(jnp.int32), axis=1, dtype=jnp.int32)
            for x in lines
        ]
        return jnp.max(jnp.maximum(count[0], count[1] + count[2]), axis=0), None

    blank = jnp.zeros(B, jnp.int32)
    chunk = (boards.free, boards.starts)
    length = jnp.max(boards.solo_distances, axis=0)
    return map_chunks(measure, chunk, active, length, blank, min(B, widths.planned_boards), None)[0]


def number_components(board: DenseBoards, radix: int) -> Components:
    """Return numbers for the cells and edges of each agent's component."""
    N, K = board.free.shape[0], board.starts.shape[0]
    unused = radix - 1
    grid = np.indices((N, N))[..., None]
    at_start = jnp.all(grid == board.starts.T[:, None, None], axis=0)
    reach = flood(jnp.broadcast_to(board.free[..., None], (N, N, K)), at_start) < UNREACHABLE
    reach &= board.mask
    cells = jnp.moveaxis(reach, -1, 0)  # (K, N, N)
    across = cells & jnp.pad(cells[:, :, 1:], [(0, 0), (0, 0), (0, 1)])
    along = cells & jnp.pad(cells[:, 1:], [(0, 0), (0, 1), (0, 0)])
    lines = jnp.stack([across, along], axis=1)  # (K, 2, N, N), by the left or upper cell

    def assign_numbers(members: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return the number of each member, the member of each number, and the member count."""
        flat = members.reshape(K, -1)
        count = jnp.cumsum(flat, axis=1, dtype=jnp.int32)
        number = jnp.where(flat & (count < unused), count, unused)
        member = jnp.full((K, radix), -1, jnp.int32)
        k = np.arange(K)[:, None]
        member = member.at[k, number].set(jnp.arange(flat.shape[1], dtype=jnp.int32))
        return number, member.at[:, unused].set(-1), count[:, -1]

    cell_number, place, cell_count = assign_numbers(cells)
    edge_number, edge, edge_count = assign_numbers(lines)

    def number_at(places: jax.Array) -> jax.Array:
        number = cell_number[np.arange(K), places[:, 0] * N + places[:, 1]]
        return jnp.where(board.mask, number, 0)

    start, goal = number_at(board.starts), number_at(board.goals)

    # The ends of an edge: its own cell, and the cell to the right or below.
    first = edge % (N * N)
    second = jnp.minimum(first + jnp.where(edge < N * N, 1, N), N * N - 1)
    ends = jnp.stack([first, second], axis=1)
    ends = jnp.take_along_axis(cell_number[:, None], jnp.maximum(ends, 0), axis=2)
    ends = jnp.where((edge < 0)[:, None], unused, ends).at[:, :, 0].set(0)

    # The edges at a cell: to the right, to the left, down and up.
    rim = jnp.full((K, 2, N, 1), unused, jnp.int32)
    by_cell = edge_number.reshape(K, 2, N, N)
    right, down = by_cell[:, 0], by_cell[:, 1]
    left = jnp.concatenate([rim[:, 0], right[:, :, :-1]], axis=2)
    up = jnp.concatenate([rim[:, 0].reshape(K, 1, N), down[:, :-1]], axis=1)
    around = jnp.stack([right, left, down, up], axis=1).reshape(K, 4, N * N)
    edges_at = jnp.take_along_axis(around, jnp.maximum(place, 0)[:, None], axis=2)
    edges_at = jnp.where((place < 0)[:, None], unused, edges_at)
    at_goal = jnp.take_along_axis(edges_at, goal[:, None, None], axis=2)[:, :, 0]
    edges_at = edges_at.at[:, :, 0].set(at_goal)
    fifth = jnp.full((K, 1, radix), unused, jnp.int32).at[:, :, 0].set(0)

    goal_place = jnp.where(board.mask, board.goals[:, 0] * N + board.goals[:, 1], -1)
    parity = (place // N + place % N + jnp.sum(board.starts, axis=1, dtype=jnp.int32)[:, None]) % 2
    return Components(
        place=place.at[:, 0].set(goal_place),
        start=start,
        goal=goal,
        edge=edge.at[:, 0].set(-1),
        ends=ends,
        edges_at=jnp.concatenate([edges_at, fifth], axis=1),
        colour=parity,
        fits=jnp.all(cell_count < unused) & jnp.all(edge_count < unused),
    )
