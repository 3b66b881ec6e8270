"""Sets of cells as bitboards.

A bitboard has one word per row, words (R, B). A cell is an int16 number, row * 64 + column.
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
CELL_DELTAS = ACTION_DELTAS.astype(np.int16) @ np.array([PITCH, 1], np.int16)
"""int16 (5,): change of the cell number by each action."""


def word_type(size: int) -> type[np.unsignedinteger]:
    """Return the narrowest type that holds a row of `size` cells (at most 32)."""
    return np.uint16 if size <= 16 else np.uint32


def pack_rows(cells: jax.Array) -> jax.Array:
    """Pack bool (B, N, N) into words (N, B), one per row."""
    N = cells.shape[-1]
    word = word_type(N)
    weights = word(1) << np.arange(N, dtype=word)
    return jnp.sum(jnp.where(cells, weights, word(0)), axis=-1, dtype=word).T


def cell_numbers(places: jax.Array) -> jax.Array:
    """Return int (..., 2) positions (row, column) as int16 (...) cell numbers."""
    wide = places.astype(jnp.int16)
    return wide[..., 0] * PITCH + wide[..., 1]


def row_and_bit(cells: jax.Array, rows: int) -> tuple[jax.Array, jax.Array]:
    """Split int16 (...) cells into words (...): the row, and the bit in it (0 if negative)."""
    word = word_type(rows)
    bits = jnp.where(cells >= 0, word(1) << (cells & (PITCH - 1)).astype(word), word(0))
    return (cells >> ROW_SHIFT).astype(word), bits


def cell_bitboard(cells: jax.Array, rows: int) -> jax.Array:
    """Return bitboards (R, B) of single cells, int16 (B,); negative cells give empty ones."""
    row, bit = row_and_bit(cells, rows)
    return jnp.where(np.arange(rows, dtype=row.dtype)[:, None] == row, bit, jnp.zeros_like(bit))


def union_of_cells(rows_of: jax.Array, bits: jax.Array, rows: int, include: jax.Array) -> jax.Array:
    """Return the sets of cells of K agents at T times, words (T, R, B).

    Cells are split as by `row_and_bit`, words (K, T, B) each. `include`, bool (K, B), selects the
    agents.
    """
    numbers = np.arange(rows, dtype=bits.dtype)[:, None]
    zero = jnp.zeros((), bits.dtype)
    boards = (
        jnp.where((numbers == row[:, None]) & included, bit[:, None], zero)
        for row, bit, included in zip(rows_of, bits, include, strict=True)
    )
    return reduce(jnp.bitwise_or, boards)


def any_cell(boards: jax.Array) -> jax.Array:
    """Return whether the sets, words (..., R, B), contain any cell, as bool (..., B)."""
    zero = np.zeros((), boards.dtype)
    return jax.lax.reduce(boards, zero, jax.lax.bitwise_or, (boards.ndim - 2,)) != 0


def only_cell(boards: jax.Array) -> jax.Array:
    """Return the only cell of each set, words (..., R, B), as int16 (..., B)."""
    zero = np.zeros((), boards.dtype)
    axis = boards.ndim - 2
    bit = jax.lax.reduce(boards, zero, jax.lax.bitwise_or, (axis,))
    numbers = np.arange(boards.shape[-2], dtype=boards.dtype)[:, None]
    row = jnp.max(jnp.where(boards != 0, numbers, zero), axis=axis)
    # The number of ones in bit - 1 equals the position of a single bit.
    column = jax.lax.population_count(bit - jnp.ones((), boards.dtype))
    return (row.astype(jnp.int16) << ROW_SHIFT) + column.astype(jnp.int16)


class MoveSets(NamedTuple):
    """Moves as words (..., R, B); a move is stored at the upper or left of its two cells."""

    right: jax.Array  # from (r, c) to (r, c + 1)
    left: jax.Array  # from (r, c + 1) to (r, c)
    down: jax.Array  # from (r, c) to (r + 1, c)
    up: jax.Array  # from (r + 1, c) to (r, c)

    def reversed(self) -> "MoveSets":
        """Return the same moves in the other direction."""
        return MoveSets(self.left, self.right, self.up, self.down)


def dilate(
    boards: jax.Array, blocked: MoveSets | None = None, opaque_true: jax.Array | None = None
) -> jax.Array:
    """Return the cells one unblocked move away from the sets, words (..., R, B), without waits.

    The caller masks the holes. With `opaque_true` (see `materialize`), the rows above and below are
    stored first.
    """
    edge = jnp.zeros_like(boards[..., :1, :])
    above = jnp.concatenate([boards[..., 1:, :], edge], axis=-2)
    west = boards >> 1
    rightwards, downwards = boards, boards
    if blocked is not None:
        above &= ~blocked.up
        west &= ~blocked.left
        rightwards &= ~blocked.right
        downwards &= ~blocked.down
    below = jnp.concatenate([edge, downwards[..., :-1, :]], axis=-2)
    if opaque_true is not None:
        above, below = materialize((above, below), opaque_true)
    return above | below | west | (rightwards << 1)
