"""Sets of cells of one agent: W words in registers, cell m being bit m % 32 of word m // 32.

Unlike in `joint_search` no axis holds the words: a list does, so that each is a vector of lanes.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver.joint_search import Geometry
from jaxlake.solver.kernels.lanes import NOTHING, bit, union

Words = list[jax.Array]


def single(cell: jax.Array, words: int) -> Words:
    """Return the set with this cell only, or no cell if it is off the board.

    A cell that is the same for all lanes is a scalar, and so are the words.
    """
    word, inside = cell >> 5, bit(cell & 31)
    return [jnp.where(word == w, inside, NOTHING) for w in range(words)]


def both(one: Sequence[jax.Array], other: Sequence[jax.Array]) -> Words:
    """Return what is in two sets."""
    return [x & y for x, y in zip(one, other, strict=True)]


def either(*sets: Sequence[jax.Array]) -> Words:
    """Return what is in any of some sets."""
    return [union(words) for words in zip(*sets, strict=True)]


def without(one: Sequence[jax.Array], other: Sequence[jax.Array]) -> Words:
    """Return what is in one set and not in another."""
    return [x & ~y for x, y in zip(one, other, strict=True)]


def where(condition: jax.Array, cells: Sequence[jax.Array]) -> Words:
    """Return a set in the lanes where bool (lanes) says so, elsewhere no cell."""
    return [jnp.where(condition, word, NOTHING) for word in cells]


def meet(one: Sequence[jax.Array], other: Sequence[jax.Array]) -> jax.Array:
    """Tell, as bool (lanes), whether two sets have a cell in common."""
    return union(both(one, other)) != 0


def dilate(cells: Sequence[jax.Array], board: Geometry, waiting: bool) -> Words:
    """Return the cells one step away, holes included; a wait may be a step."""
    moved = [shift(cells, delta) for delta in board.deltas]
    return either(*moved, *([cells] if waiting else []))


def shift(cells: Sequence[jax.Array], delta: int) -> Words:
    """Move cells by `delta`; what leaves the words is lost."""
    count, bits = divmod(abs(delta), 32)
    W, none = len(cells), cells[0] ^ cells[0]

    def word(w: int) -> jax.Array:
        return cells[w] if 0 <= w < W else none

    sign = 1 if delta > 0 else -1
    if bits == 0:
        return [word(w - sign * count) for w in range(W)]
    near, far = np.uint32(bits), np.uint32(32 - bits)
    if delta > 0:
        return [(word(w - count) << near) | (word(w - count - 1) >> far) for w in range(W)]
    return [(word(w + count) >> near) | (word(w + count + 1) << far) for w in range(W)]
