"""Notes: the constraints of a branch, packed into words of memory, one list for each time."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxlake.solver.trees.conflicts import SWAP, VERTEX, PathConflict

_UNUSED, CLOSED, FIXED, _RIGHT, _LEFT, _DOWN, _UP = range(7)
"""What a note says of an agent: nothing, that a cell is closed to it, that it has to be in the cell
while the others keep out, or that a move is forbidden to it."""

MOVES = (_RIGHT, _LEFT, _DOWN, _UP)
_CELL_BITS, _AGENT_BITS, _KIND_BITS = 10, 3, 3
NOTES = 3
"""Notes that one level of a branch leaves: two at the time of its conflict, one a step later."""


class Note(NamedTuple):
    """One constraint at one time, int32 each. The notes of one time are a linked list."""

    cell: jax.Array  # of a move the upper or left one
    agent: jax.Array
    kind: jax.Array
    next: jax.Array

    def pack(self) -> jax.Array:
        """Put it into one number."""
        high = self.kind | (self.next << _KIND_BITS)
        return self.cell | ((self.agent | (high << _AGENT_BITS)) << _CELL_BITS)

    @staticmethod
    def unpack(code: jax.Array) -> "Note":
        """Read what `pack` gave."""
        high = code >> _CELL_BITS
        kind = high >> _AGENT_BITS
        return Note(
            cell=code & ((1 << _CELL_BITS) - 1),
            agent=high & ((1 << _AGENT_BITS) - 1),
            kind=kind & ((1 << _KIND_BITS) - 1),
            next=kind >> _KIND_BITS,
        )

    def closes(self, cell: jax.Array, agent: jax.Array) -> jax.Array:
        """Tell whether an agent must not be in a cell."""
        own, here = self.agent == agent, self.cell == cell
        return ((self.kind == CLOSED) & own & here) | ((self.kind == FIXED) & (own ^ here))


def notes_of(
    conflict: PathConflict, side: jax.Array, following: tuple[jax.Array, ...]
) -> list[Note]:
    """Return the notes that a child leaves, each with the number of the next one of its time.

    Of two children one bans the first agent from a cell or from a move, and the other makes it be
    there, so that the others keep out (disjoint splits). Of a swap it also bans the other's move.
    """
    first, vertex, swap = side == 0, conflict.kind == VERTEX, conflict.kind == SWAP
    here = jnp.where(first, conflict.one_here, conflict.other_here)
    there = jnp.where(first, conflict.one_there, conflict.other_there)
    step = there - here
    move = jnp.where(step > 0, _DOWN, _UP)
    move = jnp.where(step == 1, _RIGHT, jnp.where(step == -1, _LEFT, move))
    fixes = ~first & (vertex | swap)
    now = jnp.where(vertex & first, CLOSED, jnp.where(fixes, FIXED, _UNUSED))
    moves = jnp.where(swap, move, _UNUSED)
    then = jnp.where(fixes & swap, FIXED, _UNUSED)
    mover = jnp.where(first, conflict.one, conflict.other)
    return [
        Note(conflict.one_here, conflict.one, now, following[0]),
        Note(jnp.minimum(here, there), mover, moves, following[1]),
        Note(conflict.one_there, conflict.one, then, following[2]),
    ]
