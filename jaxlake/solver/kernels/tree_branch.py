"""The branch of a node in memory: packed levels, constraint notes, and copies of paths."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxlake.solver.kernels.tree_memory import CELL, Helpers, Memory, Task, largest, put
from jaxlake.solver.pairs.joint_search import Geometry
from jaxlake.solver.trees.conflicts import ARRIVAL, FORCED, SWAP, VERTEX, PathConflict
from jaxlake.solver.trees.lanes import MAX_DEPTH
from jaxlake.solver.trees.node import constrained_agent, take_agent

LEVEL_WORDS = 5
"""Number of 32-bit words per level."""

_SIDE, _TIME, _WIDE = 9, 11, 14
"""Offsets of the fields of a packed level: after two agents and a kind; after a side; and after a
number of 14 bits."""


_UNUSED, CLOSED, FIXED, _RIGHT, _LEFT, _DOWN, _UP = range(7)
"""Kinds of notes for an agent: unused, closed cell, required cell that others must avoid, and
forbidden moves."""

MOVES = (_RIGHT, _LEFT, _DOWN, _UP)
_CELL_BITS, _AGENT_BITS, _KIND_BITS = 10, 3, 3
NOTES = 3
"""Notes per level of a branch: two at the time of its conflict, one a step later."""


_TIMES_PER_STEP = 4
"""Times that a single lane copies at once."""


def memory_rows(horizon: int, agents: int, board: Geometry, helpers: int) -> Memory:
    """Return the leading axes of a program's `Memory`, with times in whole rounds of `helpers`."""
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
    heads: tuple[jax.Array, jax.Array]  # previous heads of the lists of notes that grew


def limited_agent(level: Level) -> jax.Array:
    """Return the agent whose arrival the current child limits, if any."""
    arrival = level.conflict.kind == ARRIVAL
    return jnp.where(arrival, constrained_agent(level), level.conflict.second)


class Levels:
    """Levels in memory, int32 (5, L, nodes)."""

    def __init__(self, memory: Any, helpers: Helpers) -> None:
        self.memory, self.helpers, self.node = memory, helpers, helpers.node

    def clear(self) -> None:
        """Clear the level of the root."""
        for i in range(LEVEL_WORDS):
            self.helpers.write(self.memory, (i, 0), jnp.zeros_like(self.node))

    def conflict_time(self, depth: jax.Array) -> jax.Array:
        """Return the time of a level's conflict; `depth` is laid out as a round of `Helpers`."""
        return self.helpers.read(self.memory, 0, depth) >> _TIME

    def current_side(self, depth: jax.Array) -> jax.Array:
        """Return the side of a level."""
        return (self.memory[0, depth, self.node] >> _SIDE) & 3

    def read(self, depth: jax.Array) -> Level:
        """Return the level at each lane's depth."""
        conflict, now, then, cost, limit = (self.memory[i, depth, self.node] for i in range(5))
        return Level(
            conflict=PathConflict(
                first=conflict & 7,
                second=(conflict >> 3) & 7,
                kind=(conflict >> 6) & 7,
                time=conflict >> _TIME,
                first_cell=now & CELL,
                second_cell=now >> _WIDE,
                first_next_cell=then & CELL,
                second_next_cell=then >> _WIDE,
            ),
            side=(conflict >> _SIDE) & 3,
            conflicts=cost & CELL,
            cost=cost >> _WIDE,
            limit=limit & CELL,
            heads=((limit >> _WIDE) & 255, limit >> (_WIDE + 8)),
        )

    def write(
        self, depth: jax.Array, level: Level, where: jax.Array, with_conflict: bool = True
    ) -> None:
        """Write a level; its conflict changes only if `with_conflict`."""
        conflict = level.conflict
        top = conflict.first | (conflict.second << 3) | (conflict.kind << 6)
        words = [
            top | (level.side << _SIDE) | (conflict.time << _TIME),
            conflict.first_cell | (conflict.second_cell << _WIDE),
            conflict.first_next_cell | (conflict.second_next_cell << _WIDE),
            level.conflicts | (level.cost << _WIDE),
            level.limit | ((level.heads[0] | (level.heads[1] << 8)) << _WIDE),
        ]
        for i in (0, 1, 2, 3) if with_conflict else (0, 3, 4):
            put(self.memory, (i, depth, self.node), words[i], where)

    def turn(self, depth: jax.Array, side: jax.Array, where: jax.Array) -> None:
        """Change the side of a level."""
        place = (0, depth, self.node)
        word = self.memory[place] & ~(3 << _SIDE)
        put(self.memory, place, word | (side << _SIDE), where)


class Note(NamedTuple):
    """Constraint at one time, int32 each. The notes of one time form a linked list."""

    cell: jax.Array  # for a move, its upper or left cell
    agent: jax.Array
    kind: jax.Array
    next: jax.Array

    def pack(self) -> jax.Array:
        """Return the note as one number."""
        high = self.kind | (self.next << _KIND_BITS)
        return self.cell | ((self.agent | (high << _AGENT_BITS)) << _CELL_BITS)

    @staticmethod
    def unpack(code: jax.Array) -> "Note":
        """Return the note that `pack` encoded."""
        high = code >> _CELL_BITS
        kind = high >> _AGENT_BITS
        return Note(
            cell=code & ((1 << _CELL_BITS) - 1),
            agent=high & ((1 << _AGENT_BITS) - 1),
            kind=kind & ((1 << _KIND_BITS) - 1),
            next=kind >> _KIND_BITS,
        )

    def closes(self, cell: jax.Array, agent: jax.Array) -> jax.Array:
        """Return whether the note bars an agent from a cell."""
        same_agent, same_cell = self.agent == agent, self.cell == cell
        return ((self.kind == CLOSED) & same_agent & same_cell) | (
            (self.kind == FIXED) & (same_agent ^ same_cell)
        )


def make_notes(
    conflict: PathConflict, side: jax.Array, following: tuple[jax.Array, ...]
) -> list[Note]:
    """Return the notes of a child node, each linked to the next note of its time.

    One child bans the first agent from a cell or move. The other child requires the agent there.
    """
    first, vertex, swap = side == 0, conflict.kind == VERTEX, conflict.kind == SWAP
    cell = jnp.where(first, conflict.first_cell, conflict.second_cell)
    next_cell = jnp.where(first, conflict.first_next_cell, conflict.second_next_cell)
    step = next_cell - cell
    move = jnp.where(step > 0, _DOWN, _UP)
    move = jnp.where(step == 1, _RIGHT, jnp.where(step == -1, _LEFT, move))
    fixes = ~first & (vertex | swap)
    now = jnp.where(vertex & first, CLOSED, jnp.where(fixes, FIXED, _UNUSED))
    moves = jnp.where(swap, move, _UNUSED)
    then = jnp.where(fixes & swap, FIXED, _UNUSED)
    mover = jnp.where(first, conflict.first, conflict.second)
    return [
        Note(conflict.first_cell, conflict.first, now, following[0]),
        Note(jnp.minimum(cell, next_cell), mover, moves, following[1]),
        Note(conflict.first_next_cell, conflict.first, then, following[2]),
    ]


class PathCopies:
    """Paths of the current nodes, roots and branches, in the memory of one program."""

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
        """Save the path of an agent up to `end`, and overwrite it with its goal."""

        def write(times: list[jax.Array]) -> None:
            old = [self.memory.paths[agent, t, self.node] for t in times]
            for t, entry in zip(times, old, strict=True):
                put(self.memory.saved, (depth, t, self.node), entry, where)
                put(self.memory.paths, (agent, t, self.node), goal | FORCED, where)

        self._for_times(end, write)

    def restore_forced_flags(
        self, agent: jax.Array, depth: jax.Array, same_time: jax.Array, end: jax.Array
    ) -> None:
        """Keep FORCED flags of the old path if the new, unconstrained path has the same cost."""

        def write(i: jax.Array, _: None) -> None:
            t = jnp.minimum(self.helpers.time_of_round(i), self.horizon)
            place = (agent, t, self.node)
            flags = jnp.where(same_time, self.memory.saved[depth, t, self.node] & FORCED, 0)
            put(self.memory.paths, place, (self.memory.paths[place] & CELL) | flags, t < end)

        jax.lax.fori_loop(0, self.helpers.rounds(jnp.max(end)), write, None)
        self.helpers.meet()

    def restore(self, agent: jax.Array, depth: jax.Array, cost: jax.Array, end: jax.Array) -> None:
        """Restore an agent's path of a given cost from a level, up to `end`."""
        goal = take_agent(self.task.goals, agent) | FORCED

        def write(times: list[jax.Array]) -> None:
            old = [self.memory.saved[depth, t, self.node] for t in times]
            for t, entry in zip(times, old, strict=True):
                # The saved part may end where the path does.
                entry = jnp.where(t < cost, entry, goal)
                put(self.memory.paths, (agent, t, self.node), entry, t < end)

        self._for_times(end, write)

    def _for_times(self, end: jax.Array, write: Callable[[list[jax.Array]], None]) -> None:
        """Call `write` for all times below the largest `end`, and maybe a few more up to T."""
        if self.helpers.count > 1:

            def write_round(i: jax.Array, _: None) -> None:
                write([jnp.minimum(self.helpers.time_of_round(i), self.horizon)])

            jax.lax.fori_loop(0, self.helpers.rounds(jnp.max(end)), write_round, None)
            self.helpers.meet()
            return

        def write_group(i: jax.Array, _: None) -> None:
            write(
                [jnp.minimum(_TIMES_PER_STEP * i + j, self.horizon) for j in range(_TIMES_PER_STEP)]
            )

        rounds = jax.lax.div(jnp.max(end) + (_TIMES_PER_STEP - 1), _TIMES_PER_STEP)
        jax.lax.fori_loop(0, rounds, write_group, None)

    def save_or_restore_roots(
        self,
        costs: tuple[jax.Array, ...],
        root_costs: tuple[jax.Array, ...],
        rooted: jax.Array,
        restored: jax.Array,
    ) -> None:
        """Save the paths of new roots, and restore saved ones."""
        longest = largest((*costs, *root_costs))
        end = jnp.max(jnp.where(rooted | restored, jnp.minimum(longest + 1, self.times), 0))

        def write(i: jax.Array, _: None) -> None:
            entry = jnp.minimum(self.helpers.time_of_round(i), self.agents * self.times - 1)
            t, k = jax.lax.div(entry, self.agents), jax.lax.rem(entry, self.agents)
            path = self.helpers.read(self.memory.paths, k, t)
            put(self.memory.roots, (k, t, self.node), path, rooted)
            goal = take_agent(self.task.goals, k) | FORCED
            # The saved part may end where the path does.
            saved = self.helpers.read(self.memory.roots, k, t)
            root = jnp.where(t < take_agent(root_costs, k), saved, goal)
            exists = take_agent(self.task.goals, k) >= 0
            put(self.memory.paths, (k, t, self.node), root, restored & exists & (t <= longest))

        jax.lax.fori_loop(0, self.helpers.rounds(end * self.agents), write, None)
        self.helpers.meet()
