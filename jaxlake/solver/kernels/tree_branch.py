"""The branch of a node in memory: packed levels, notes of constraints, and copies of paths."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxlake.solver.kernels.tree_memory import CELL, Helpers, Memory, Task, largest, put
from jaxlake.solver.pairs.joint_search import Geometry
from jaxlake.solver.trees.conflicts import ARRIVAL, FORCED, SWAP, VERTEX, PathConflict
from jaxlake.solver.trees.lanes import MAX_DEPTH
from jaxlake.solver.trees.node import constrained_agent, of_agent

LEVEL_WORDS = 5
"""Words of 32 bits that a level takes."""

_SIDE, _TIME, _WIDE = 9, 11, 14
"""Where the fields of a packed level begin: after two agents and a kind; after a side; and after a
number of 14 bits."""


_UNUSED, CLOSED, FIXED, _RIGHT, _LEFT, _DOWN, _UP = range(7)
"""What a note says of an agent: nothing, that a cell is closed to it, that it has to be in the cell
while the others keep out, or that a move is forbidden to it."""

MOVES = (_RIGHT, _LEFT, _DOWN, _UP)
_CELL_BITS, _AGENT_BITS, _KIND_BITS = 10, 3, 3
NOTES = 3
"""Notes that one level of a branch leaves: two at the time of its conflict, one a step later."""


_TOGETHER = 4
"""Times at which a lane that is alone copies a path at once."""


def memory_rows(horizon: int, agents: int, board: Geometry, helpers: int) -> Memory:
    """Return the leading axes of the `Memory` of a program, times in whole rounds of `helpers`."""
    T, K, W = horizon, agents, board.words
    times = -(-(T + 1) // helpers) * helpers
    return Memory(
        paths=(K, T + 1),
        roots=(K, T + 1),
        saved=(MAX_DEPTH, T + 1),
        levels=(LEVEL_WORDS, MAX_DEPTH),
        notes=(NOTES * MAX_DEPTH,),
        heads=(T + 1,),
        layers=(2, times, W),
        masks=(1,) if helpers == 1 else (2, times, 1 + len(MOVES), W),
    )


class Level(NamedTuple):
    """As `trees.node.TreeLevel`, int32 each. Cells, times, costs and counts take up to 14 bits."""

    conflict: PathConflict
    side: jax.Array
    conflicts: jax.Array
    cost: jax.Array
    limit: jax.Array
    heads: tuple[jax.Array, jax.Array]  # of the lists of notes that got longer, before that


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
        return self.helpers.read(self.memory, 0, depth) >> _TIME

    def side_of(self, depth: jax.Array) -> jax.Array:
        """Return the side of a level."""
        return (self.memory[0, depth, self.node] >> _SIDE) & 3

    def read(self, depth: jax.Array) -> Level:
        """Return the levels at a depth of each lane's own."""
        conflict, now, then, cost, limit = (self.memory[i, depth, self.node] for i in range(5))
        return Level(
            conflict=PathConflict(
                one=conflict & 7,
                other=(conflict >> 3) & 7,
                kind=(conflict >> 6) & 7,
                time=conflict >> _TIME,
                one_here=now & CELL,
                other_here=now >> _WIDE,
                one_there=then & CELL,
                other_there=then >> _WIDE,
            ),
            side=(conflict >> _SIDE) & 3,
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

    One child bans the first agent from a cell or move, the other makes it be there.
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


class PathCopies:
    """The paths of the nodes in hand, of roots and of branches, in the memory of one program."""

    def __init__(self, memory: Memory, task: Task, helpers: Helpers) -> None:
        self.memory, self.task, self.helpers = memory, task, helpers
        self.node = helpers.node
        self.agents, self.times = memory.paths.shape[:2]
        self.horizon = self.times - 1

    def begin(
        self,
        agent: jax.Array,
        depth: jax.Array,
        goal: jax.Array,
        end: jax.Array,
        where: jax.Array,
    ) -> None:
        """Save the path of an agent up to `end`, and put a path at its goal in its place."""

        def write(times: list[jax.Array]) -> None:
            old = [self.memory.paths[agent, t, self.node] for t in times]
            for t, entry in zip(times, old, strict=True):
                put(self.memory.saved, (depth, t, self.node), entry, where)
                put(self.memory.paths, (agent, t, self.node), goal | FORCED, where)

        self._for_times(end, write)

    def keep_forced(
        self, agent: jax.Array, depth: jax.Array, same_time: jax.Array, end: jax.Array
    ) -> None:
        """Keep where the old path was forced, if the new one, unconstrained, costs as much."""

        def write(i: jax.Array, _: None) -> None:
            t = jnp.minimum(self.helpers.own(i), self.horizon)
            place = (agent, t, self.node)
            kept = jnp.where(same_time, self.memory.saved[depth, t, self.node] & FORCED, 0)
            put(self.memory.paths, place, (self.memory.paths[place] & CELL) | kept, t < end)

        jax.lax.fori_loop(0, self.helpers.rounds(jnp.max(end)), write, None)
        self.helpers.meet()

    def restore(self, agent: jax.Array, depth: jax.Array, cost: jax.Array, end: jax.Array) -> None:
        """Give an agent the path of some cost that is saved at a level, up to `end`."""
        goal = of_agent(self.task.goals, agent) | FORCED

        def write(times: list[jax.Array]) -> None:
            old = [self.memory.saved[depth, t, self.node] for t in times]
            for t, entry in zip(times, old, strict=True):
                # What is saved may end where the path does.
                entry = jnp.where(t < cost, entry, goal)
                put(self.memory.paths, (agent, t, self.node), entry, t < end)

        self._for_times(end, write)

    def _for_times(self, end: jax.Array, write: Callable[[list[jax.Array]], None]) -> None:
        """Do something at all times before the last `end`, and perhaps at a few more up to T."""
        if self.helpers.count > 1:

            def one(i: jax.Array, _: None) -> None:
                write([jnp.minimum(self.helpers.own(i), self.horizon)])

            jax.lax.fori_loop(0, self.helpers.rounds(jnp.max(end)), one, None)
            self.helpers.meet()
            return

        def some(i: jax.Array, _: None) -> None:
            write([jnp.minimum(_TOGETHER * i + j, self.horizon) for j in range(_TOGETHER)])

        rounds = jax.lax.div(jnp.max(end) + (_TOGETHER - 1), _TOGETHER)
        jax.lax.fori_loop(0, rounds, some, None)

    def keep_roots(
        self,
        costs: tuple[jax.Array, ...],
        root_costs: tuple[jax.Array, ...],
        rooted: jax.Array,
        restored: jax.Array,
    ) -> None:
        """Keep the paths of a root where there is a new one, and bring those that are kept back."""
        longest = largest((*costs, *root_costs))
        end = jnp.max(jnp.where(rooted | restored, jnp.minimum(longest + 1, self.times), 0))

        def write(i: jax.Array, _: None) -> None:
            entry = jnp.minimum(self.helpers.own(i), self.agents * self.times - 1)
            t, k = jax.lax.div(entry, self.agents), jax.lax.rem(entry, self.agents)
            path = self.helpers.read(self.memory.paths, k, t)
            put(self.memory.roots, (k, t, self.node), path, rooted)
            goal = of_agent(self.task.goals, k) | FORCED
            # What is kept may end where the path does.
            kept = self.helpers.read(self.memory.roots, k, t)
            root = jnp.where(t < of_agent(root_costs, k), kept, goal)
            exists = of_agent(self.task.goals, k) >= 0
            put(self.memory.paths, (k, t, self.node), root, restored & exists & (t <= longest))

        jax.lax.fori_loop(0, self.helpers.rounds(end * self.agents), write, None)
        self.helpers.meet()
