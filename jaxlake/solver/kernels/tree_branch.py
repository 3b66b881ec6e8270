"""The branch of a node in memory: packed levels, packed constraints, and copies of paths."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxlake.solver.kernels.tree_memory import (
    CELL_MASK,
    Helpers,
    LaneQueries,
    Memory,
    elementwise_max,
    store,
)
from jaxlake.solver.pairs.joint_search import Geometry
from jaxlake.solver.trees.conflicts import ARRIVAL, FORCED, SWAP, VERTEX, PathConflict
from jaxlake.solver.trees.lanes import MAX_DEPTH
from jaxlake.solver.trees.node import constrained_agent, select_entry

LEVEL_WORDS = 5
"""Number of 32-bit words per level."""

_CHILD_SHIFT, _TIME_SHIFT, _FIELD_BITS = 9, 11, 14
"""Layout of a packed level. The first word holds two agents and the kind of the conflict, 3 bits
each; the child, 2 bits; and the time. The other words hold two fields of 14 or more bits each."""

_UNUSED, CLOSED, FIXED, _RIGHT, _LEFT, _DOWN, _UP = range(7)
"""Kinds of constraints: unused; a closed cell; a required cell, which is closed to other agents;
and forbidden moves."""

MOVES = (_RIGHT, _LEFT, _DOWN, _UP)
_CELL_BITS, _AGENT_BITS, _KIND_BITS = 10, 3, 3
CONSTRAINTS_PER_LEVEL = 3
"""Packed constraints per level: two at the time of its conflict, one at the next step."""

_TIMES_PER_ROUND = 4
"""Number of times that a single lane copies in one round."""


def memory_rows(horizon: int, num_agents: int, board: Geometry, num_helpers: int) -> Memory:
    """Return the leading axes of a program's `Memory`, for nodes with `num_helpers` lanes."""
    T, K, W = horizon, num_agents, board.words
    times = -(-(T + 1) // num_helpers) * num_helpers
    return Memory(
        paths=(K, T + 1),
        root_paths=(K, T + 1),
        saved_paths=(MAX_DEPTH, T + 1),
        levels=(LEVEL_WORDS, MAX_DEPTH),
        constraints=(CONSTRAINTS_PER_LEVEL * MAX_DEPTH,),
        list_heads=(T + 1,),
        layers=(2, times, W),
        forbidden=(1,) if num_helpers == 1 else (2, times, 1 + len(MOVES), W),
    )


class Level(NamedTuple):
    """Fields of `trees.node.TreeLevel`, int32 each and below 2**14."""

    conflict: PathConflict
    child: jax.Array
    num_conflicts: jax.Array
    cost: jax.Array
    limit: jax.Array
    list_heads: tuple[jax.Array, jax.Array]  # old heads of the lists that the constraints extend


def limited_agent(level: Level) -> jax.Array:
    """Return the agent whose arrival the current child limits, if any."""
    is_arrival = level.conflict.kind == ARRIVAL
    return jnp.where(is_arrival, constrained_agent(level), level.conflict.second)


class Levels:
    """Levels in memory, int32 (5, L, nodes)."""

    def __init__(self, memory: Any, helpers: Helpers) -> None:
        self.memory, self.helpers, self.node = memory, helpers, helpers.node

    def clear(self) -> None:
        """Clear the level of the root."""
        for i in range(LEVEL_WORDS):
            self.helpers.write(self.memory, (i, 0), jnp.zeros_like(self.node))

    def conflict_time(self, depth: jax.Array) -> jax.Array:
        """Return the time of a level's conflict; `depth` comes from `Helpers.time_of_round`."""
        return self.helpers.read(self.memory, 0, depth) >> _TIME_SHIFT

    def read_child(self, depth: jax.Array) -> jax.Array:
        """Return the child of a level."""
        return (self.memory[0, depth, self.node] >> _CHILD_SHIFT) & 3

    def read(self, depth: jax.Array) -> Level:
        """Return the level at each lane's depth."""
        conflict, cells, next_cells, cost, limit = (
            self.memory[i, depth, self.node] for i in range(LEVEL_WORDS)
        )
        return Level(
            conflict=PathConflict(
                first=conflict & 7,
                second=(conflict >> 3) & 7,
                kind=(conflict >> 6) & 7,
                time=conflict >> _TIME_SHIFT,
                first_cell=cells & CELL_MASK,
                second_cell=cells >> _FIELD_BITS,
                first_next_cell=next_cells & CELL_MASK,
                second_next_cell=next_cells >> _FIELD_BITS,
            ),
            child=(conflict >> _CHILD_SHIFT) & 3,
            num_conflicts=cost & CELL_MASK,
            cost=cost >> _FIELD_BITS,
            limit=limit & CELL_MASK,
            list_heads=((limit >> _FIELD_BITS) & 255, limit >> (_FIELD_BITS + 8)),
        )

    def write(
        self, depth: jax.Array, level: Level, where: jax.Array, with_conflict: bool = True
    ) -> None:
        """Write a new level, or without `with_conflict`, the results of its current child."""
        conflict = level.conflict
        agents_and_kind = conflict.first | (conflict.second << 3) | (conflict.kind << 6)
        words = [
            agents_and_kind | (level.child << _CHILD_SHIFT) | (conflict.time << _TIME_SHIFT),
            conflict.first_cell | (conflict.second_cell << _FIELD_BITS),
            conflict.first_next_cell | (conflict.second_next_cell << _FIELD_BITS),
            level.num_conflicts | (level.cost << _FIELD_BITS),
            level.limit | ((level.list_heads[0] | (level.list_heads[1] << 8)) << _FIELD_BITS),
        ]
        for i in (0, 1, 2, 3) if with_conflict else (0, 3, 4):
            store(self.memory, (i, depth, self.node), words[i], where)

    def set_child(self, depth: jax.Array, child: jax.Array, where: jax.Array) -> None:
        """Change the child of a level."""
        index = (0, depth, self.node)
        word = self.memory[index] & ~(3 << _CHILD_SHIFT)
        store(self.memory, index, word | (child << _CHILD_SHIFT), where)


class Constraint(NamedTuple):
    """Constraint on an agent at one time, int32 each.

    The constraints of one time form a linked list.
    """

    cell: jax.Array  # for a move, its upper or left cell
    agent: jax.Array
    kind: jax.Array
    next: jax.Array  # number of the next constraint in the list, from 1; 0 at its end

    def pack(self) -> jax.Array:
        """Return the constraint as one number."""
        high = self.kind | (self.next << _KIND_BITS)
        return self.cell | ((self.agent | (high << _AGENT_BITS)) << _CELL_BITS)

    @staticmethod
    def unpack(code: jax.Array) -> "Constraint":
        """Return the constraint that `pack` encoded."""
        high = code >> _CELL_BITS
        kind = high >> _AGENT_BITS
        return Constraint(
            cell=code & ((1 << _CELL_BITS) - 1),
            agent=high & ((1 << _AGENT_BITS) - 1),
            kind=kind & ((1 << _KIND_BITS) - 1),
            next=kind >> _KIND_BITS,
        )

    def closes(self, cell: jax.Array, agent: jax.Array) -> jax.Array:
        """Return whether the constraint closes a cell to an agent."""
        is_same_agent, is_same_cell = self.agent == agent, self.cell == cell
        return ((self.kind == CLOSED) & is_same_agent & is_same_cell) | (
            (self.kind == FIXED) & (is_same_agent ^ is_same_cell)
        )


def make_constraints(
    conflict: PathConflict, child: jax.Array, next_numbers: tuple[jax.Array, ...]
) -> list[Constraint]:
    """Return the constraints of a child, each linked to the number in `next_numbers`.

    For a VERTEX or SWAP conflict, the first child forbids a cell or move to the first agent, and
    the second child requires it.
    """
    is_first, is_vertex, is_swap = child == 0, conflict.kind == VERTEX, conflict.kind == SWAP
    cell = jnp.where(is_first, conflict.first_cell, conflict.second_cell)
    next_cell = jnp.where(is_first, conflict.first_next_cell, conflict.second_next_cell)
    step = next_cell - cell
    move = jnp.where(step > 0, _DOWN, _UP)
    move = jnp.where(step == 1, _RIGHT, jnp.where(step == -1, _LEFT, move))
    fixes = ~is_first & (is_vertex | is_swap)
    cell_kind = jnp.where(is_vertex & is_first, CLOSED, jnp.where(fixes, FIXED, _UNUSED))
    move_kind = jnp.where(is_swap, move, _UNUSED)
    next_cell_kind = jnp.where(fixes & is_swap, FIXED, _UNUSED)
    agent = jnp.where(is_first, conflict.first, conflict.second)
    return [
        Constraint(conflict.first_cell, conflict.first, cell_kind, next_numbers[0]),
        Constraint(jnp.minimum(cell, next_cell), agent, move_kind, next_numbers[1]),
        Constraint(conflict.first_next_cell, conflict.first, next_cell_kind, next_numbers[2]),
    ]


class PathStore:
    """Paths of the current nodes, roots and branches in the memory of one program."""

    def __init__(self, memory: Memory, query: LaneQueries, helpers: Helpers) -> None:
        self.memory, self.query, self.helpers = memory, query, helpers
        self.node = helpers.node
        self.agents, self.times = memory.paths.shape[:2]
        self.horizon = self.times - 1

    def replace_with_goal(
        self, agent: jax.Array, depth: jax.Array, goal: jax.Array, end: jax.Array, where: jax.Array
    ) -> None:
        """Save the path of an agent up to `end`, and overwrite it with the agent's goal."""

        def write(times: list[jax.Array]) -> None:
            entries = [self.memory.paths[agent, t, self.node] for t in times]
            for t, entry in zip(times, entries, strict=True):
                store(self.memory.saved_paths, (depth, t, self.node), entry, where)
                store(self.memory.paths, (agent, t, self.node), goal | FORCED, where)

        self._loop_over_times(end, write)

    def restore_forced_flags(
        self, agent: jax.Array, depth: jax.Array, same_time: jax.Array, end: jax.Array
    ) -> None:
        """Copy the FORCED flags of the saved path if `same_time`, and clear them otherwise."""

        def write(i: jax.Array, _: None) -> None:
            t = jnp.minimum(self.helpers.time_of_round(i), self.horizon)
            index = (agent, t, self.node)
            flags = jnp.where(same_time, self.memory.saved_paths[depth, t, self.node] & FORCED, 0)
            store(self.memory.paths, index, (self.memory.paths[index] & CELL_MASK) | flags, t < end)

        jax.lax.fori_loop(0, self.helpers.num_rounds(jnp.max(end)), write, None)
        self.helpers.synchronise()

    def restore(self, agent: jax.Array, depth: jax.Array, cost: jax.Array, end: jax.Array) -> None:
        """Restore the path of an agent, with a given cost, up to `end`."""
        goal = select_entry(self.query.goals, agent) | FORCED

        def write(times: list[jax.Array]) -> None:
            entries = [self.memory.saved_paths[depth, t, self.node] for t in times]
            for t, entry in zip(times, entries, strict=True):
                # The path may have been saved only up to its arrival.
                entry = jnp.where(t < cost, entry, goal)
                store(self.memory.paths, (agent, t, self.node), entry, t < end)

        self._loop_over_times(end, write)

    def _loop_over_times(self, end: jax.Array, write: Callable[[list[jax.Array]], None]) -> None:
        """Call `write` for all times below the largest `end`, rounded up to whole rounds."""
        if self.helpers.count > 1:

            def write_round(i: jax.Array, _: None) -> None:
                write([jnp.minimum(self.helpers.time_of_round(i), self.horizon)])

            jax.lax.fori_loop(0, self.helpers.num_rounds(jnp.max(end)), write_round, None)
            self.helpers.synchronise()
            return

        def write_times(i: jax.Array, _: None) -> None:
            first = _TIMES_PER_ROUND * i
            write([jnp.minimum(first + j, self.horizon) for j in range(_TIMES_PER_ROUND)])

        num_rounds = jax.lax.div(jnp.max(end) + (_TIMES_PER_ROUND - 1), _TIMES_PER_ROUND)
        jax.lax.fori_loop(0, num_rounds, write_times, None)

    def save_or_restore_roots(
        self,
        costs: tuple[jax.Array, ...],
        root_costs: tuple[jax.Array, ...],
        saves: jax.Array,
        restores: jax.Array,
    ) -> None:
        """Save the current paths as root paths where `saves`, or restore them where `restores`."""
        max_cost = elementwise_max((*costs, *root_costs))
        end = jnp.max(jnp.where(saves | restores, jnp.minimum(max_cost + 1, self.times), 0))

        def write(i: jax.Array, _: None) -> None:
            position = jnp.minimum(self.helpers.time_of_round(i), self.agents * self.times - 1)
            t, k = jax.lax.div(position, self.agents), jax.lax.rem(position, self.agents)
            entry = self.helpers.read(self.memory.paths, k, t)
            store(self.memory.root_paths, (k, t, self.node), entry, saves)
            goal = select_entry(self.query.goals, k) | FORCED
            # The path may have been saved only up to its arrival.
            root_entry = self.helpers.read(self.memory.root_paths, k, t)
            root_entry = jnp.where(t < select_entry(root_costs, k), root_entry, goal)
            exists = select_entry(self.query.goals, k) >= 0
            where = restores & exists & (t <= max_cost)
            store(self.memory.paths, (k, t, self.node), root_entry, where)

        jax.lax.fori_loop(0, self.helpers.num_rounds(end * self.agents), write, None)
        self.helpers.synchronise()
