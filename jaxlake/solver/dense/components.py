"""Numbering of the cells and edges that each agent can reach.

The cells of an agent's connected component have the numbers 1, 2, ..., and so have its edges, the
pairs of adjacent cells. Number 0 means that the agent has retired: it stays at its goal. The dense
search stores numbers on axes of size A, which is static. Number A - 1 is unused.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.distance_fields import UNREACHABLE, flood, iterate_until_stable
from jaxlake.solver import bitboard
from jaxlake.solver.certificates import PreparedBoards
from jaxlake.solver.chunks import Limits, map_chunks


class DenseBoards(NamedTuple):
    """B boards of N x N cells with K agents, boards last."""

    free: jax.Array  # bool (N, N, B)
    starts: jax.Array  # int32 (K, 2, B), (row, column)
    goals: jax.Array  # int32 (K, 2, B)
    agent_mask: jax.Array  # bool (K, B)
    has_makespan: jax.Array  # bool (B,), the least makespan is known and need not be searched
    makespan_bounds: jax.Array  # int32 (2, B), lower bound; upper bound, NEVER if no plan is known
    cost_bounds: jax.Array  # int32 (2, B), likewise for the sum of costs


class Components(NamedTuple):
    """Numbered cells and edges of the components of K agents.

    Cells are coloured like a chessboard.
    """

    positions: jax.Array  # int32 (K, A), row * N + column of each cell; [:, 0] is the goal; -1 if
    #   the number is unused
    start: jax.Array  # int32 (K,), cell number; 0 for absent agents
    goal: jax.Array  # int32 (K,), likewise
    edge_positions: jax.Array  # int32 (K, A), position of the left or upper cell, plus N * N for
    #   vertical edges; -1 if the number is 0 or unused
    edge_ends: jax.Array  # int32 (K, 2, A), both cells of each edge
    cell_edges: jax.Array  # int32 (K, 5, A), edges at each cell: right, left, down, up, and 0 for
    #   retired agents
    colours: jax.Array  # int32 (K, A), 1 on cells whose colour differs from the start
    all_numbered: jax.Array  # bool (), whether A is large enough for all cells and edges


def component_sizes(boards: PreparedBoards, active: jax.Array, limits: Limits) -> jax.Array:
    """Return the size of the largest component of any agent, int32 (B,).

    The size of a component is the number of its cells or the number of its edges, whichever is
    larger. Only `active` boards, bool (B,), are measured; the others get 0.
    """
    R, B = boards.free.shape  # R words per board

    def measure(chunk: tuple[jax.Array, jax.Array], _: None) -> tuple[jax.Array, None]:
        free, starts = chunk
        cells = jnp.stack([bitboard.cell_bitboard(start, R) for start in starts])
        cells = iterate_until_stable(lambda cells: cells | (bitboard.dilate(cells) & free), cells)
        horizontal, vertical = cells & (cells >> 1), cells[:, 1:] & cells[:, :-1]
        num_cells, num_horizontal, num_vertical = (
            jnp.sum(jax.lax.population_count(cell_set).astype(jnp.int32), axis=1, dtype=jnp.int32)
            for cell_set in (cells, horizontal, vertical)
        )
        return jnp.max(jnp.maximum(num_cells, num_horizontal + num_vertical), axis=0), None

    defaults = jnp.zeros(B, jnp.int32)
    operands = (boards.free, boards.starts)
    largest_distances = jnp.max(boards.solo_distances, axis=0)
    width = min(B, limits.planned_boards)
    return map_chunks(measure, operands, active, largest_distances, defaults, width, None)[0]


def number_components(board: DenseBoards, axis_size: int) -> Components:
    """Number the cells and edges of each agent's component.

    Args:
        board: One board, without the axis B.
        axis_size: Size A of the numbered axes (static).
    """
    N, K = board.free.shape[0], board.starts.shape[0]
    unused_number = axis_size - 1
    grid = np.indices((N, N))[..., None]
    at_start = jnp.all(grid == board.starts.T[:, None, None], axis=0)
    is_reached = flood(jnp.broadcast_to(board.free[..., None], (N, N, K)), at_start) < UNREACHABLE
    is_reached &= board.agent_mask
    cells = jnp.moveaxis(is_reached, -1, 0)  # (K, N, N)
    horizontal = cells & jnp.pad(cells[:, :, 1:], [(0, 0), (0, 0), (0, 1)])
    vertical = cells & jnp.pad(cells[:, 1:], [(0, 0), (0, 1), (0, 0)])
    edges = jnp.stack([horizontal, vertical], axis=1)  # (K, 2, N, N), by the left or upper cell

    def assign_numbers(members: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return the number of each position, the position of each number, and their count."""
        flat_members = members.reshape(K, -1)
        cumulative = jnp.cumsum(flat_members, axis=1, dtype=jnp.int32)
        number = jnp.where(flat_members & (cumulative < unused_number), cumulative, unused_number)
        positions = jnp.full((K, axis_size), -1, jnp.int32)
        k = np.arange(K)[:, None]
        positions = positions.at[k, number].set(jnp.arange(flat_members.shape[1], dtype=jnp.int32))
        return number, positions.at[:, unused_number].set(-1), cumulative[:, -1]

    cell_number, positions, cell_count = assign_numbers(cells)
    edge_number, edge_positions, edge_count = assign_numbers(edges)

    def find_number(locations: jax.Array) -> jax.Array:
        number = cell_number[np.arange(K), locations[:, 0] * N + locations[:, 1]]
        return jnp.where(board.agent_mask, number, 0)

    start, goal = find_number(board.starts), find_number(board.goals)

    # The ends of an edge: its left or upper cell, and the cell to the right or below.
    first_ends = edge_positions % (N * N)
    second_ends = jnp.minimum(first_ends + jnp.where(edge_positions < N * N, 1, N), N * N - 1)
    ends = jnp.stack([first_ends, second_ends], axis=1)
    ends = jnp.take_along_axis(cell_number[:, None], jnp.maximum(ends, 0), axis=2)
    ends = jnp.where((edge_positions < 0)[:, None], unused_number, ends).at[:, :, 0].set(0)

    # The edges at a cell: right, left, down and up.
    padding = jnp.full((K, 2, N, 1), unused_number, jnp.int32)
    edges_by_cell = edge_number.reshape(K, 2, N, N)
    right, down = edges_by_cell[:, 0], edges_by_cell[:, 1]
    left = jnp.concatenate([padding[:, 0], right[:, :, :-1]], axis=2)
    up = jnp.concatenate([padding[:, 0].reshape(K, 1, N), down[:, :-1]], axis=1)
    edges_by_direction = jnp.stack([right, left, down, up], axis=1).reshape(K, 4, N * N)
    cell_edges = jnp.take_along_axis(edges_by_direction, jnp.maximum(positions, 0)[:, None], axis=2)
    cell_edges = jnp.where((positions < 0)[:, None], unused_number, cell_edges)
    goal_edges = jnp.take_along_axis(cell_edges, goal[:, None, None], axis=2)[:, :, 0]
    cell_edges = cell_edges.at[:, :, 0].set(goal_edges)
    retired_edges = jnp.full((K, 1, axis_size), unused_number, jnp.int32).at[:, :, 0].set(0)

    goal_positions = jnp.where(board.agent_mask, board.goals[:, 0] * N + board.goals[:, 1], -1)
    diagonal = positions // N + positions % N
    colours = (diagonal + jnp.sum(board.starts, axis=1, dtype=jnp.int32)[:, None]) % 2
    return Components(
        positions=positions.at[:, 0].set(goal_positions),
        start=start,
        goal=goal,
        edge_positions=edge_positions.at[:, 0].set(-1),
        edge_ends=ends,
        cell_edges=jnp.concatenate([cell_edges, retired_edges], axis=1),
        colours=colours,
        all_numbered=jnp.all(cell_count < unused_number) & jnp.all(edge_count < unused_number),
    )
