"""Levels of the branches in the lanes of a program, packed into words of memory."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxlake.solver.kernels.tree_paths import CELL
from jaxlake.solver.kernels.tree_teams import Helpers, put
from jaxlake.solver.trees.conflicts import ARRIVAL, PathConflict

LEVEL_WORDS = 5
"""Words of 32 bits that a level takes."""

_SIDE, _TIME, _WIDE = 9, 11, 14
"""Where the fields of a packed level begin: after two agents and a kind; after a side; and after a
number of 14 bits."""


class Level(NamedTuple):
    """As `trees.node.TreeLevel`, int32 each. Cells, times, costs and counts take up to 14 bits."""

    conflict: PathConflict
    side: jax.Array
    conflicts: jax.Array
    cost: jax.Array
    limit: jax.Array
    heads: tuple[jax.Array, jax.Array]  # of the lists of notes that got longer, before that


def constrained_agent(level: Level) -> jax.Array:
    """Return the agent that the child at hand constrains and replans."""
    return jnp.where(level.side == 0, level.conflict.one, level.conflict.other)


def limited_agent(level: Level) -> jax.Array:
    """Return the agent whose arrival the child at hand limits, if it limits one."""
    arrival = level.conflict.kind == ARRIVAL
    return jnp.where(arrival, constrained_agent(level), level.conflict.other)


class Levels:
    """The levels in memory, int32 (5, L, nodes)."""

    def __init__(self, memory: Any, helpers: Helpers) -> None:
        self.memory, self.helpers, self.node = memory, helpers, helpers.node

    def clear(self) -> None:
        """Write nothing to the level of the root."""
        for i in range(LEVEL_WORDS):
            self.helpers.write(self.memory, (i, 0), jnp.zeros_like(self.node))

    def time_of(self, depth: jax.Array) -> jax.Array:
        """Return when the conflict of a level is; the depth is that of a round of `Helpers`."""
        return _time_of(self.helpers.read(self.memory, 0, depth))

    def side_of(self, depth: jax.Array) -> jax.Array:
        """Return the side of a level."""
        return _side_of(self.memory[0, depth, self.node])

    def read(self, depth: jax.Array) -> Level:
        """Return the levels at a depth of each lane's own."""
        conflict, now, then, cost, limit = (self.memory[i, depth, self.node] for i in range(5))
        return Level(
            conflict=PathConflict(
                one=conflict & 7,
                other=(conflict >> 3) & 7,
                kind=(conflict >> 6) & 7,
                time=_time_of(conflict),
                one_here=now & CELL,
                other_here=now >> _WIDE,
                one_there=then & CELL,
                other_there=then >> _WIDE,
            ),
            side=_side_of(conflict),
            conflicts=cost & CELL,
            cost=cost >> _WIDE,
            limit=limit & CELL,
            heads=((limit >> _WIDE) & 255, limit >> (_WIDE + 8)),
        )

    def write(self, depth: jax.Array, level: Level, where: jax.Array, anew: bool = True) -> None:
        """Write a level; only if it is `anew` its conflict changes."""
        conflict = level.conflict
        top = conflict.one | (conflict.other << 3) | (conflict.kind << 6)
        words = [
            top | (level.side << _SIDE) | (conflict.time << _TIME),
            conflict.one_here | (conflict.other_here << _WIDE),
            conflict.one_there | (conflict.other_there << _WIDE),
            level.conflicts | (level.cost << _WIDE),
            level.limit | ((level.heads[0] | (level.heads[1] << 8)) << _WIDE),
        ]
        for i in (0, 1, 2, 3) if anew else (0, 3, 4):
            put(self.memory, (i, depth, self.node), words[i], where)

    def turn(self, depth: jax.Array, side: jax.Array, where: jax.Array) -> None:
        """Change the side of a level."""
        place = (0, depth, self.node)
        word = self.memory[place] & ~(3 << _SIDE)
        put(self.memory, place, word | (side << _SIDE), where)


def _time_of(word: jax.Array) -> jax.Array:
    return word >> _TIME


def _side_of(word: jax.Array) -> jax.Array:
    return (word >> _SIDE) & 3
