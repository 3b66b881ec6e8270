"""Paths of a program's lanes: replan an agent, trace its path back, and find conflicts."""

from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp

from jaxlake.solver.kernels.lanes import (
    CellSet,
    any_lane,
    intersect,
    intersects,
    reduce_or,
    select,
    shift,
    single_cell,
    subtract,
    to_int32,
    unite,
)
from jaxlake.solver.kernels.tree_branch import (
    CLOSED,
    CONSTRAINTS_PER_LEVEL,
    FIXED,
    MOVES,
    Constraint,
)
from jaxlake.solver.kernels.tree_memory import (
    CELL_MASK,
    Helpers,
    LaneQueries,
    Memory,
    ReplanRequest,
    elementwise_max,
    store,
)
from jaxlake.solver.pairs.bounds import agent_pairs
from jaxlake.solver.pairs.joint_search import Geometry
from jaxlake.solver.space_time import NEVER
from jaxlake.solver.trees.conflicts import FORCED, NONE, SWAP, TARGET, VERTEX, PathConflict
from jaxlake.solver.trees.node import select_entry

_FORCED_BIT = FORCED.bit_length() - 1

# A conflict is encoded as a number, as in `trees.conflicts.choose_conflict`. The largest number is
# the conflict to split on.
_TIME_BITS, _PAIR_BITS, _SWAP_BITS = 13, 4, 1
_TIME_SHIFT = _PAIR_BITS + _SWAP_BITS
_RANK_SHIFT = _TIME_BITS + _TIME_SHIFT


class PathPlanner:
    """Planner for the agents of a program's lanes, with one lane per node."""

    def __init__(
        self, memory: Memory, query: LaneQueries, board: Geometry, helpers: Helpers
    ) -> None:
        self.memory, self.query, self.board, self.helpers = memory, query, board, helpers
        self.node = helpers.node
        self.agents, times = memory.paths.shape[:2]
        self.horizon = times - 1
        self.words = range(board.words)
        self.empty_cells = [jnp.zeros_like(word) for word in query.free]
        self.holes = [~word for word in query.free]
        # Agents with the same goal are in conflict as long as they rest.
        is_shared = [to_int32((x == y) & (x >= 0)) for x, y in combinations(query.goals, 2)]
        self.has_shared_goal = reduce_or(is_shared) != 0
        self.wait_mask = select(query.may_wait, [~word for word in self.empty_cells])

    def find_earliest_arrival(
        self, request: ReplanRequest, earliest: jax.Array, latest: jax.Array
    ) -> jax.Array:
        """Find the arrival after which the agent can stay at its goal, or NEVER.

        Writes the cells that are reachable under the constraints to `layers[0]`, and the cells that
        are reachable without conflicts with other paths to `layers[1]`. The arrival is the first in
        [`earliest`, `latest`], but a patient request prefers the first without conflicts, even if
        another path arrives sooner. `latest` is negative for idle lanes.
        """
        min_time = jnp.maximum(request.goal_open_from, earliest)
        min_patient_time = jnp.maximum(min_time, request.goal_unvisited_from)
        goal_cell = single_cell(request.goal, self.board.words)

        def advance(state: Any) -> Any:
            t, reachable, conflict_free, other_cells, arrival, patient_arrival = state
            next_other_cells = self._read_other_cells(request, jnp.minimum(t + 1, self.horizon))
            forbidden, conflicting = self._find_forbidden(request, t, other_cells, next_other_cells)
            reachable = subtract(reachable, forbidden[0])
            conflict_free = subtract(conflict_free, conflicting[0])
            is_in_time = t <= latest
            at_goal = intersects(reachable, goal_cell) & (t >= min_time) & is_in_time
            arrival = jnp.where(at_goal, jnp.minimum(arrival, t), arrival)
            at_goal = intersects(conflict_free, goal_cell) & (t >= min_patient_time) & is_in_time
            at_goal &= request.patient
            patient_arrival = jnp.where(at_goal, jnp.minimum(patient_arrival, t), patient_arrival)
            for w in self.words:
                self.memory.layers[0, t, w] = reachable[w]
                self.memory.layers[1, t, w] = conflict_free[w]
            reachable = tuple(self._step(reachable, forbidden[1:]))
            conflict_free = tuple(self._step(conflict_free, conflicting[1:]))
            return t + 1, reachable, conflict_free, next_other_cells, arrival, patient_arrival

        def is_unfinished(state: Any) -> jax.Array:
            t, *_, arrival, patient_arrival = state
            is_waiting = (arrival == NEVER) | (request.patient & (patient_arrival == NEVER))
            return any_lane((t <= latest) & is_waiting)

        start = tuple(single_cell(request.start, self.board.words))
        never = jnp.zeros_like(latest) + NEVER
        other_cells = self._read_other_cells(request, jnp.int32(0))
        initial_state = (jnp.int32(0), start, start, other_cells, never, never)
        *_, arrival, patient_arrival = jax.lax.while_loop(is_unfinished, advance, initial_state)
        return jnp.where(patient_arrival != NEVER, patient_arrival, arrival)

    def trace(self, request: ReplanRequest, arrival: jax.Array, active: jax.Array) -> None:
        """Write an earliest path where `active`; it is the path of `space_time.trace_back`."""
        end_time = jnp.where(active, arrival, 0)
        last_time = jnp.max(end_time)

        def step_back(i: jax.Array, state: Any) -> Any:
            t = last_time - i
            cell, possible_cells, next_other_cells = state
            reachable = [self.memory.layers[0, t, w] for w in self.words]
            conflict_free = [self.memory.layers[1, t, w] for w in self.words]
            other_cells = self._read_other_cells(request, t)
            _, forbidden_moves = self._read_constraints(request, t)
            origin = self._choose_origin(
                cell, other_cells, next_other_cells, forbidden_moves, reachable, conflict_free
            )
            is_moving = t < end_time
            cell = jnp.where(is_moving, origin, cell)
            origins = self._find_origins(possible_cells, forbidden_moves, reachable)
            possible_cells = tuple(map(partial(jnp.where, is_moving), origins, possible_cells))
            self._write_entry(request.agent, t, cell, possible_cells, is_moving)
            return cell, possible_cells, other_cells

        goal_cell = single_cell(request.goal, self.board.words)
        # The first round only looks up the other agents' cells.
        no_cells = (jnp.zeros_like(request.goal),) * self.agents
        jax.lax.fori_loop(0, last_time + 1, step_back, (request.goal, tuple(goal_cell), no_cells))

    def _write_entry(
        self, agent: jax.Array, t: jax.Array, cell: jax.Array, possible_cells: Any, where: jax.Array
    ) -> None:
        """Write a cell of a path; it is forced if no earliest path is in another cell."""
        alternatives = subtract(possible_cells, single_cell(cell, self.board.words))
        is_forced = ~(reduce_or(alternatives) != 0)
        entry = cell | jnp.where(is_forced, jnp.int32(FORCED), 0)
        store(self.memory.paths, (agent, t, self.node), entry, where)

    def choose_conflict(
        self, costs: tuple[jax.Array, ...], no_slack: list[jax.Array], active: jax.Array
    ) -> tuple[PathConflict, jax.Array]:
        """Return the result of `trees.conflicts.choose_conflict`."""
        T, pairs = self.horizon, agent_pairs(self.agents)
        # After the last arrival, only agents with the same goal are in conflict.
        max_length = jnp.where(self.has_shared_goal, T, elementwise_max(costs))
        last_time = jnp.max(jnp.where(active, max_length, 0))

        def read_entries(t: jax.Array) -> tuple[jax.Array, ...]:
            return tuple(self.helpers.read(self.memory.paths, k, t) for k in range(self.agents))

        def update(round_index: jax.Array, state: Any) -> Any:
            best_code, count, this_entries = state
            time = self.helpers.time_of_round(round_index)
            t, is_in_range = jnp.minimum(time, T - 1), time < last_time
            this_entries = read_entries(t) if divides_times else this_entries
            next_entries = read_entries(t + 1)
            cells, next_cells = (
                [entry & CELL_MASK for entry in entries] for entries in (this_entries, next_entries)
            )
            forced = [
                to_int32(x) * ((entry >> _FORCED_BIT) & 1)
                for x, entry in zip(no_slack, this_entries, strict=True)
            ]
            forced_move = [
                x * ((entry >> _FORCED_BIT) & 1)
                for x, entry in zip(forced, next_entries, strict=True)
            ]
            stuck = [x | to_int32(t >= cost) for x, cost in zip(forced, costs, strict=True)]
            for p, (i, j) in enumerate(pairs):
                meets = cells[i] == cells[j]
                swaps = (cells[i] == next_cells[j]) & (next_cells[i] == cells[j]) & ~meets
                rank = 1 + jnp.where(meets, stuck[i] + stuck[j], forced_move[i] + forced_move[j])
                code = _pack_conflict(rank, t, p, swaps, T)
                is_conflict = (meets | swaps) & is_in_range
                best_code = jnp.maximum(best_code, jnp.where(is_conflict, code, 0))
                count += to_int32(is_conflict)
            return best_code, count, () if divides_times else next_entries

        # If several lanes divide the times, a lane cannot keep the entries of its previous time.
        divides_times = self.helpers.count > 1
        self.helpers.synchronise()
        zero = jnp.zeros_like(costs[0])
        initial = (zero, zero, () if divides_times else read_entries(jnp.int32(0)))
        code, count, _ = jax.lax.fori_loop(0, self.helpers.num_rounds(last_time), update, initial)
        code, count = self.helpers.max(code), self.helpers.sum(count)
        return self._read_conflict(code, costs, no_slack), count

    def _read_conflict(
        self, code: jax.Array, costs: tuple[jax.Array, ...], no_slack: list[jax.Array]
    ) -> PathConflict:
        """Return the conflict that a number encodes; its first agent is chosen as in the loops."""
        T, pairs = self.horizon, agent_pairs(self.agents)
        time, pair = _unpack_conflict(code, T, len(pairs))
        first, second = (jnp.zeros_like(code) for _ in range(2))
        for p, (i, j) in enumerate(pairs):
            first, second = jnp.where(pair == p, i, first), jnp.where(pair == p, j, second)
        no_slack_flags = tuple(map(to_int32, no_slack))

        def read_entry(agent: jax.Array, t: jax.Array) -> jax.Array:
            return self.memory.paths[agent, t, self.node]

        def is_forced(agent: jax.Array) -> jax.Array:
            has_flag = (read_entry(agent, time) & FORCED) != 0
            return (select_entry(no_slack_flags, agent) != 0) & has_flag

        first_rests = time >= select_entry(costs, first)
        second_rests = time >= select_entry(costs, second)
        kind = jnp.where(first_rests | second_rests, TARGET, VERTEX)
        kind = jnp.where((code & ((1 << _SWAP_BITS) - 1)) != 0, SWAP, kind)
        exchange = to_int32(is_forced(first) & ~is_forced(second))
        exchange = jnp.where(kind == TARGET, to_int32(first_rests), exchange) != 0
        first, second = jnp.where(exchange, second, first), jnp.where(exchange, first, second)
        return PathConflict(
            first=first,
            second=second,
            kind=jnp.where(code > 0, kind, NONE),
            time=time,
            first_cell=read_entry(first, time) & CELL_MASK,
            second_cell=read_entry(second, time) & CELL_MASK,
            first_next_cell=read_entry(first, time + 1) & CELL_MASK,
            second_next_cell=read_entry(second, time + 1) & CELL_MASK,
        )

    def _read_other_cells(self, request: ReplanRequest, t: jax.Array) -> tuple[jax.Array, ...]:
        """Return the cells of all agents at t, with a cell off the board for the agent itself."""
        return tuple(
            jnp.where(request.agent == k, jnp.int32(CELL_MASK), self._read_cell(k, t))
            for k in range(self.agents)
        )

    def _read_cell(self, agent: int, t: jax.Array) -> jax.Array:
        return self.helpers.read(self.memory.paths, agent, t) & CELL_MASK

    def _find_forbidden(
        self, request: ReplanRequest, t: jax.Array, other_cells: Any, next_other_cells: Any
    ) -> tuple[list[CellSet], list[CellSet]]:
        """Return the closed cells at t and, by direction, the forbidden moves to t + 1.

        The second result also includes the cells and moves that conflict with other paths.
        """
        closed_cells, forbidden_moves = self._read_constraints(request, t)
        closed_cells = unite(self.holes, closed_cells, self._find_resting_goals(request, t))
        horizontal, vertical = self._find_edges(other_cells, next_other_cells)
        edges = (horizontal, horizontal, vertical, vertical)
        occupied = unite(*(single_cell(cell, self.board.words) for cell in other_cells))
        conflicting_moves = map(unite, forbidden_moves, edges)
        return [closed_cells, *forbidden_moves], [unite(closed_cells, occupied), *conflicting_moves]

    def _find_edges(
        self, cells: tuple[jax.Array, ...], next_cells: tuple[jax.Array, ...]
    ) -> tuple[CellSet, CellSet]:
        """Return the horizontal and vertical edges in use, by their left or upper cells."""
        horizontal, vertical = [], []
        for cell, next_cell in zip(cells, next_cells, strict=True):
            lesser_cell = single_cell(jnp.minimum(cell, next_cell), self.board.words)
            length = jnp.abs(next_cell - cell)
            horizontal.append(select(length == 1, lesser_cell))
            vertical.append(select(length == self.board.pitch, lesser_cell))
        return unite(*horizontal), unite(*vertical)

    def _read_constraints(
        self, request: ReplanRequest, t: jax.Array
    ) -> tuple[CellSet, list[CellSet]]:
        """Return the cells that constraints close at t, and by direction the forbidden moves."""

        def read_constraint(state: Any) -> Any:
            number, closed_cells, forbidden_moves = state
            constraint = Constraint.unpack(
                self.memory.constraints[jnp.maximum(number - 1, 0), self.node]
            )
            cell = single_cell(constraint.cell, self.board.words)
            exists, applies = number > 0, constraint.agent == request.agent
            is_fixed = exists & (constraint.kind == FIXED)
            closes = (exists & (constraint.kind == CLOSED) & applies) | (is_fixed & ~applies)
            # An agent that must be in a cell cannot be in any other cell.
            other_cells = select(is_fixed & applies, [~word for word in cell])
            closed_cells = unite(closed_cells, select(closes, cell), other_cells)
            forbidden_moves = tuple(
                tuple(unite(cells, select(exists & applies & (constraint.kind == move), cell)))
                for cells, move in zip(forbidden_moves, MOVES, strict=True)
            )
            return jnp.where(exists, constraint.next, 0), tuple(closed_cells), forbidden_moves

        empty = tuple(self.empty_cells)
        initial_state = (self.helpers.read(self.memory.list_heads, t), empty, (empty,) * len(MOVES))
        _, closed_cells, forbidden_moves = jax.lax.while_loop(
            lambda state: any_lane(state[0] > 0), read_constraint, initial_state
        )
        return list(closed_cells), [list(cells) for cells in forbidden_moves]

    def _find_resting_goals(self, request: ReplanRequest, t: jax.Array) -> CellSet:
        """Return the goals at which other agents must rest by time t."""
        rests = [(t >= latest) & (request.agent != k) for k, latest in enumerate(request.latest)]

        def select_goals() -> CellSet:
            cells = [single_cell(goal, self.board.words) for goal in self.query.goals]
            return unite(*map(select, rests, cells))

        any_rests = reduce_or(list(map(to_int32, rests))) != 0
        return jax.lax.cond(any_lane(any_rests), select_goals, lambda: self.empty_cells)

    def find_goal_open_time(
        self,
        agent: jax.Array,
        goal: jax.Array,
        latest: tuple[jax.Array, ...],
        levels: jax.Array,
        conflict_time: Callable[[jax.Array], jax.Array],
    ) -> jax.Array:
        """Return the time from which the first `levels` levels leave the goal open, up to T + 1."""

        def update(i: jax.Array, open_time: jax.Array) -> jax.Array:
            level = self.helpers.time_of_round(i)
            exists, time = level < levels, conflict_time(level)
            for slot in range(CONSTRAINTS_PER_LEVEL):
                code = self.helpers.read(
                    self.memory.constraints, CONSTRAINTS_PER_LEVEL * level + slot
                )
                closes = exists & Constraint.unpack(code).closes(goal, agent)
                # The last constraint of a level applies one step after its conflict.
                next_time = time + (1 if slot < CONSTRAINTS_PER_LEVEL - 1 else 2)
                open_time = jnp.where(closes, jnp.maximum(open_time, next_time), open_time)
            return open_time

        num_rounds = self.helpers.num_rounds(jnp.max(levels))
        zero = jnp.zeros_like(goal)
        open_time = self.helpers.max(jax.lax.fori_loop(0, num_rounds, update, zero))
        is_closed = to_int32(~intersects(self.query.free, single_cell(goal, self.board.words)))
        for k, (limit, other_goal) in enumerate(zip(latest, self.query.goals, strict=True)):
            is_closed |= to_int32((agent != k) & (other_goal == goal) & (limit <= self.horizon))
        return jnp.where(is_closed != 0, self.horizon + 1, open_time)

    def find_goal_unvisited_time(
        self, agent: jax.Array, goal: jax.Array, costs: tuple[jax.Array, ...], active: jax.Array
    ) -> jax.Array:
        """Return the time from which no other agent is at the goal, up to T + 1."""
        last_time = jnp.max(jnp.where(active, elementwise_max(costs) + 1, 0))

        def update(i: jax.Array, unvisited_from: jax.Array) -> jax.Array:
            t = jnp.minimum(self.helpers.time_of_round(i), self.horizon)
            for k in range(self.agents):
                at_goal = (agent != k) & (self._read_cell(k, t) == goal) & (t < last_time)
                unvisited_from = jnp.where(active & at_goal, t + 1, unvisited_from)
            return unvisited_from

        last_time = jnp.minimum(last_time, self.horizon + 1)
        num_rounds = self.helpers.num_rounds(last_time)
        return self.helpers.max(jax.lax.fori_loop(0, num_rounds, update, jnp.zeros_like(goal)))

    def _step(self, cells: CellSet, forbidden_moves: list[CellSet]) -> CellSet:
        """Return the cells that are reachable by a move or a wait, including holes."""
        right, left, down, up = forbidden_moves
        pitch = self.board.pitch
        return unite(
            intersect(cells, self.wait_mask),
            shift(subtract(cells, right), 1),
            subtract(shift(cells, -1), left),
            shift(subtract(cells, down), pitch),
            subtract(shift(cells, -pitch), up),
        )

    def _find_origins(self, cells: Any, forbidden_moves: list[CellSet], layer: CellSet) -> CellSet:
        """Return the cells of a layer from which a move or a wait leads to any of `cells`."""
        right, left, down, up = forbidden_moves
        return intersect(self._step(list(cells), [left, right, up, down]), layer)

    def _choose_origin(
        self,
        cell: jax.Array,
        other_cells: tuple[jax.Array, ...],
        next_other_cells: tuple[jax.Array, ...],
        forbidden_moves: list[CellSet],
        reachable: CellSet,
        conflict_free: CellSet,
    ) -> jax.Array:
        """Return the preferred predecessor of `cell`.

        Origins on conflict-free paths are preferred, then origins whose move is free of conflicts.
        The other agents move from `other_cells` to `next_other_cells` in the same step.
        """
        right, left, down, up = forbidden_moves
        pitch = self.board.pitch
        target_cells = single_cell(cell, self.board.words)
        # Moves from above, the left, the right and below. A move is stored at its lesser cell: its
        # origin in the first two cases, its target in the others.
        moves = [(-pitch, down, True), (-1, right, True), (1, left, False), (pitch, up, False)]
        possible_origin = free_origin = best_origin = cell
        has_free = has_best = jnp.zeros_like(cell)
        for delta, forbidden, origin_is_lesser in reversed(moves):
            origin = cell + delta
            origin_cells = single_cell(origin, self.board.words)
            is_forbidden = intersects(forbidden, origin_cells if origin_is_lesser else target_cells)
            conflicts = reduce_or(
                [
                    to_int32((other == origin) | ((other == cell) & (next_other == origin)))
                    for other, next_other in zip(other_cells, next_other_cells, strict=True)
                ]
            )
            is_possible = intersects(reachable, origin_cells) & ~is_forbidden
            is_free = is_possible & (conflicts == 0)
            is_best = is_free & intersects(conflict_free, origin_cells)
            possible_origin = jnp.where(is_possible, origin, possible_origin)
            free_origin = jnp.where(is_free, origin, free_origin)
            best_origin = jnp.where(is_best, origin, best_origin)
            has_free |= to_int32(is_free)
            has_best |= to_int32(is_best)
        is_occupied = reduce_or([to_int32(other == cell) for other in other_cells])
        is_free_wait = (
            self.query.may_wait & intersects(reachable, target_cells) & (is_occupied == 0)
        )
        is_best_wait = is_free_wait & intersects(conflict_free, target_cells)
        # An origin without a possible move is the cell itself, which is a wait.
        origin = jnp.where((has_free != 0) | is_free_wait, free_origin, possible_origin)
        return jnp.where((has_best != 0) | is_best_wait, best_origin, origin)


def _pack_conflict(rank: jax.Array, t: jax.Array, pair: int, swap: jax.Array, T: int) -> jax.Array:
    pair_and_swap = (pair << _SWAP_BITS) + to_int32(swap)
    return (rank << _RANK_SHIFT) | ((T - t) << _TIME_SHIFT) | pair_and_swap


def _unpack_conflict(code: jax.Array, T: int, num_pairs: int) -> tuple[jax.Array, jax.Array]:
    """Return the time and the index of the pair, which are in range even without a conflict."""
    time = jnp.clip(T - ((code >> _TIME_SHIFT) & ((1 << _TIME_BITS) - 1)), 0, T - 1)
    return time, jnp.clip((code >> _SWAP_BITS) & ((1 << _PAIR_BITS) - 1), 0, num_pairs - 1)
