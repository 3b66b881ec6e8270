"""Sets of cells as rows of bits: cell (r, c) is bit c of row r.

A bit board has shape (R, B): R rows, then B boards. Boards lie last in memory, so that one vector
instruction serves many of them and a move is a shift or a change of row. A single cell is an int16
number, r * 64 + c, so that no move from a board of up to 32 columns wraps.
"""

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.dynamics import ACTION_DELTAS

PITCH = 64
CELL_DELTAS = ACTION_DELTAS.astype(np.int16) @ np.array([PITCH, 1], np.int16)
"""int16 (5,): what each action adds to the number of a cell."""


def word_type(size: int) -> type[np.unsignedinteger]:
    """The narrowest type that holds a row of `size` cells (at most 32)."""
    return np.uint16 if size <= 16 else np.uint32


def pack(cells: jax.Array) -> jax.Array:
    """bool (B, N, N) to words (N, B)."""
    N = cells.shape[-1]
    word = word_type(N)
    weights = word(1) << np.arange(N, dtype=word)
    return jnp.sum(jnp.where(cells, weights, word(0)), axis=-1, dtype=word).T


def number(places: jax.Array) -> jax.Array:
    """int (..., 2) places (row, column) to int16 (...) cells."""
    wide = places.astype(jnp.int16)
    return wide[..., 0] * PITCH + wide[..., 1]


def single(cells: jax.Array, rows: int, where: jax.Array | bool = True) -> jax.Array:
    """int16 (B,) cells to words (R, B) with one bit each.

    None for a negative number, and none where `where`, bool (B,), is False.
    """
    word = word_type(rows)
    bits = jnp.where(where, jnp.asarray(1, word) << (cells & 63).astype(word), word(0))
    return jnp.where(np.arange(rows, dtype=np.int16)[:, None] == cells >> 6, bits, word(0))


def line_and_bit(cells: jax.Array, rows: int) -> tuple[jax.Array, jax.Array]:
    """int16 (...) cells to words (...): the row, and the bit in it; none for a negative number."""
    word = word_type(rows)
    bits = jnp.where(cells >= 0, word(1) << (cells & 63).astype(word), word(0))
    return (cells >> 6).astype(word), bits


def marks(lines: jax.Array, bits: jax.Array, rows: int, where: jax.Array) -> jax.Array:
    """The cells of K agents, words (K, T, B) each, as sets: words (T, R, B).

    Only of agents for which `where`, bool (K, B), is True.
    """
    number = np.arange(rows, dtype=bits.dtype)[:, None]
    none = jnp.zeros((), bits.dtype)
    boards = (
        jnp.where((number == line[:, None]) & mine, bit[:, None], none)
        for line, bit, mine in zip(lines, bits, where, strict=True)
    )
    return reduce(jnp.bitwise_or, boards)


def contains(board: jax.Array, axis: int = -2) -> jax.Array:
    """Words (..., R, B) to bool (..., B): whether there is any cell."""
    zero = np.zeros((), board.dtype)
    return jax.lax.reduce(board, zero, jax.lax.bitwise_or, (axis % board.ndim,)) != 0


def only_cell(board: jax.Array) -> jax.Array:
    """Words (..., R, B) with one cell each to its number, int16 (..., B)."""
    zero = np.zeros((), board.dtype)
    axis = board.ndim - 2
    bit = jax.lax.reduce(board, zero, jax.lax.bitwise_or, (axis,))
    numbers = np.arange(board.shape[-2], dtype=board.dtype)[:, None]
    row = jnp.max(jnp.where(board != 0, numbers, zero), axis=axis)
    column = jax.lax.population_count(bit - jnp.ones((), board.dtype))
    return (row.astype(jnp.int16) << 6) + column.astype(jnp.int16)


class Edges(NamedTuple):
    """Sets of moves, words (..., R, B): a move is the bit of the upper or left cell of its two."""

    right: jax.Array  # from (r, c) to (r, c + 1)
    left: jax.Array  # from (r, c + 1) to (r, c)
    down: jax.Array  # from (r, c) to (r + 1, c)
    up: jax.Array  # from (r + 1, c) to (r, c)


def dilate(board: jax.Array, closed: Edges | None = None) -> jax.Array:
    """Where one move leads, WAIT excepted, but for closed ones; not masked by holes.

    Leading axes of `board`, words (..., R, B), are sets of their own.
    """
    edge = jnp.zeros_like(board[..., :1, :])
    above = jnp.concatenate([board[..., 1:, :], edge], axis=-2)
    west = board >> 1
    rightwards, downwards = board, board
    if closed is not None:
        above &= ~closed.up
        west &= ~closed.left
        rightwards &= ~closed.right
        downwards &= ~closed.down
    below = jnp.concatenate([edge, downwards[..., :-1, :]], axis=-2)
    return above | below | west | (rightwards << 1)
