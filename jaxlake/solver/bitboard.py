"""Sets of cells as rows of bits: cell (r, c) is bit c of row r.

A bit board has shape (R, B): R rows, then B boards. Boards lie last in memory, so that one vector
instruction serves many of them and a move is a shift or a change of row. A single cell is an int16
number, r * 64 + c, so that no move from a board of up to 32 columns wraps.
"""

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


def holds(board: jax.Array, cells: jax.Array) -> jax.Array:
    """bool (B,): whether cell b, int16 (B,), is in set b, words (R, B); False off the rows."""
    rows = cells >> 6
    inside = (cells >= 0) & (rows < board.shape[0])
    words = board[jnp.where(inside, rows, 0), jnp.arange(cells.shape[0])]
    return inside & ((words >> (cells & 63).astype(board.dtype)) & 1 != 0)


class Edges(NamedTuple):
    """Sets of edges of the grid, both directions at once: words (R, B)."""

    across: jax.Array  # between (r, c) and (r, c + 1), at (r, c)
    along: jax.Array  # between (r, c) and (r + 1, c), at (r, c)


def edge_between(here: jax.Array, there: jax.Array, rows: int) -> Edges:
    """The edge between two neighbouring cells, int16 (B,) each; none where they are the same."""
    lower = jnp.minimum(here, there)
    apart = jnp.maximum(here, there) - lower
    return Edges(single(lower, rows, apart == 1), single(lower, rows, apart == PITCH))


def dilate(board: jax.Array, closed: Edges | None = None) -> jax.Array:
    """Where one move leads, WAIT excepted, around closed edges; not masked by holes.

    Leading axes of `board`, words (..., R, B), are sets of their own.
    """
    open_across = board if closed is None else board & ~closed.across
    open_along = board if closed is None else board & ~closed.along
    edge = jnp.zeros_like(board[..., :1, :])
    above = jnp.concatenate([board[..., 1:, :], edge], axis=-2)
    west = board >> 1
    if closed is not None:
        above &= ~closed.along
        west &= ~closed.across
    below = jnp.concatenate([edge, open_along[..., :-1, :]], axis=-2)
    return above | below | west | (open_across << 1)
