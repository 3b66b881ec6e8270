"""Bitboards: sets of cells with one word per row of the board.

The bitboards of B boards with R rows are an array uint16 or uint32 (R, B), called "words (R, B)"
below. A cell is an int16 number, row * 64 + column.
"""

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.dynamics import ACTION_DELTAS
from jaxlake.solver.materialize import materialize

ROW_SHIFT = 6
PITCH = 1 << ROW_SHIFT
"""Difference between the numbers of a cell and the cell below it."""

CELL_DELTAS = ACTION_DELTAS.astype(np.int16) @ np.array([PITCH, 1], np.int16)
"""int16 (5,), change of the cell number by each action."""


def word_type(size: int) -> type[np.unsignedinteger]:
    """Return the narrowest type that holds a row of `size` cells (at most 32)."""
    return np.uint16 if size <= 16 else np.uint32


def pack_rows(cells: jax.Array) -> jax.Array:
    """Pack bool (B, N, N) into words (N, B), one per row."""
    N = cells.shape[-1]
    dtype = word_type(N)
    weights = dtype(1) << np.arange(N, dtype=dtype)
    return jnp.sum(jnp.where(cells, weights, dtype(0)), axis=-1, dtype=dtype).T


def cell_numbers(positions: jax.Array) -> jax.Array:
    """Convert positions (row, column), integers (..., 2), to cells, int16 (...)."""
    positions = positions.astype(jnp.int16)
    return positions[..., 0] * PITCH + positions[..., 1]


def row_and_bit(cells: jax.Array, num_rows: int) -> tuple[jax.Array, jax.Array]:
    """Return the row of each cell, int16 (...), and its bit in the row, 0 for negative cells."""
    dtype = word_type(num_rows)
    bits = jnp.where(cells >= 0, dtype(1) << (cells & (PITCH - 1)).astype(dtype), dtype(0))
    return (cells >> ROW_SHIFT).astype(dtype), bits


def cell_bitboard(cells: jax.Array, num_rows: int) -> jax.Array:
    """Return the bitboards, words (R, B), of single cells, int16 (B,). Negative cells are empty."""
    row, bit = row_and_bit(cells, num_rows)
    return jnp.where(np.arange(num_rows, dtype=row.dtype)[:, None] == row, bit, jnp.zeros_like(bit))


def unite_cells(
    cell_rows: jax.Array, bits: jax.Array, num_rows: int, include: jax.Array
) -> jax.Array:
    """Return the sets of cells that K agents occupy at T times, words (T, R, B).

    Args:
        cell_rows: words (K, T, B), row of each cell, see `row_and_bit`.
        bits: words (K, T, B), bit of each cell.
        num_rows: Number of rows of the boards (static).
        include: bool (K, B), agents to include.
    """
    row_numbers = np.arange(num_rows, dtype=bits.dtype)[:, None]
    zero = jnp.zeros((), bits.dtype)
    boards = (
        jnp.where((row_numbers == row[:, None]) & is_included, bit[:, None], zero)
        for row, bit, is_included in zip(cell_rows, bits, include, strict=True)
    )
    return reduce(jnp.bitwise_or, boards)


def is_nonempty(boards: jax.Array) -> jax.Array:
    """Return whether sets, words (..., R, B), contain any cell, bool (..., B)."""
    zero = np.zeros((), boards.dtype)
    return jax.lax.reduce(boards, zero, jax.lax.bitwise_or, (boards.ndim - 2,)) != 0


def find_only_cell(boards: jax.Array) -> jax.Array:
    """Return the cell of each set of one cell, words (..., R, B), as int16 (..., B)."""
    zero = np.zeros((), boards.dtype)
    axis = boards.ndim - 2
    bit = jax.lax.reduce(boards, zero, jax.lax.bitwise_or, (axis,))
    row_numbers = np.arange(boards.shape[-2], dtype=boards.dtype)[:, None]
    row = jnp.max(jnp.where(boards != 0, row_numbers, zero), axis=axis)
    # The number of ones in bit - 1 equals the position of a single bit.
    column = jax.lax.population_count(bit - jnp.ones((), boards.dtype))
    return (row.astype(jnp.int16) << ROW_SHIFT) + column.astype(jnp.int16)


class MoveSets(NamedTuple):
    """Sets of moves, words (..., R, B). A move has the bit of its upper or left cell."""

    right: jax.Array  # from (r, c) to (r, c + 1)
    left: jax.Array  # from (r, c + 1) to (r, c)
    down: jax.Array  # from (r, c) to (r + 1, c)
    up: jax.Array  # from (r + 1, c) to (r, c)

    def reverse(self) -> "MoveSets":
        """Return the same moves in the other direction."""
        return MoveSets(self.left, self.right, self.up, self.down)


def dilate(
    boards: jax.Array, blocked: MoveSets | None = None, opaque_true: jax.Array | None = None
) -> jax.Array:
    """Return the cells one unblocked move away from the sets, words (..., R, B), without waits.

    The caller masks the holes. With `opaque_true`, vertical moves are materialized, see
    `materialize`.
    """
    empty_row = jnp.zeros_like(boards[..., :1, :])
    up = jnp.concatenate([boards[..., 1:, :], empty_row], axis=-2)
    left = boards >> 1
    right, down = boards, boards
    if blocked is not None:
        up &= ~blocked.up
        left &= ~blocked.left
        right &= ~blocked.right
        down &= ~blocked.down
    down = jnp.concatenate([empty_row, down[..., :-1, :]], axis=-2)
    if opaque_true is not None:
        up, down = materialize((up, down), opaque_true)
    return up | down | left | (right << 1)
