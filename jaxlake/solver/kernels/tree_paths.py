"""Path operations of a program's lanes: plan a path, trace it back, find conflicts."""

from collections.abc import Callable
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
from jaxlake.solver.kernels.tree_branch import CLOSED, FIXED, MOVES, NOTES, Note
from jaxlake.solver.kernels.tree_memory import CELL, Helpers, Memory, Route, Task, largest, put
from jaxlake.solver.pairs.bounds import agent_pairs
from jaxlake.solver.pairs.joint_search import Geometry
from jaxlake.solver.space_time import NEVER
from jaxlake.solver.trees.conflicts import FORCED, NONE, SWAP, TARGET, VERTEX, PathConflict
from jaxlake.solver.trees.node import take_agent

_FORCED_BIT = FORCED.bit_length() - 1

# Conflicts as numbers: rank | T - t (13 bits) | pair (4) | swap (1). The largest number is the most
# forced conflict, then the earliest.
_TIME_BITS, _PAIR_BITS, _SWAP_BITS = 13, 4, 1
_TIME_SHIFT = _PAIR_BITS + _SWAP_BITS
_RANK_SHIFT = _TIME_BITS + _TIME_SHIFT


class Paths:
    """Paths on the boards of one program."""

    def __init__(self, memory: Memory, task: Task, board: Geometry, helpers: Helpers) -> None:
        self.memory, self.task, self.board, self.helpers = memory, task, board, helpers
        self.node = helpers.node
        self.agents, times = memory.paths.shape[:2]
        self.horizon = times - 1
        self.words = range(board.words)
        self.none = [jnp.zeros_like(word) for word in task.free]
        # Agents with the same goal are in conflict as long as they rest.
        same = [to_int32((x == y) & (x >= 0)) for x, y in combinations(task.goals, 2)]
        self.shared_goal = reduce_or(same) != 0
        self.still = select(task.waits, [~word for word in self.none])

    def earliest_arrival(self, route: Route, earliest: jax.Array, latest: jax.Array) -> jax.Array:
        """Find the first time at which the agent can reach its goal and stay there, or NEVER.

        Writes the reachable cells of every step to `layers[0]` (constraints only) and `layers[1]`
        (also free of conflicts with other paths). `patient` agents take the first time in
        `layers[1]`, if there is one. Times are limited to `earliest` to `latest`, which is negative
        for idle lanes.
        """
        first = jnp.maximum(route.stay_from, earliest)
        first_clean = jnp.maximum(first, route.clean_stay_from)
        home = single_cell(route.goal, self.board.words)
        holes = [~word for word in self.task.free]

        def advance(state: Any) -> Any:
            t, plain, clean, others, arrival, clean_arrival = state
            closed, bans = self._constraints(route, t)
            shut = unite(holes, closed, self._resting_goals(route, t))
            plain, clean = subtract(plain, shut), subtract(clean, unite(shut, self._cells(others)))
            in_time = t <= latest
            at_goal = intersects(plain, home) & (t >= first) & in_time
            arrival = jnp.where(at_goal, jnp.minimum(arrival, t), arrival)
            at_goal = route.patient & intersects(clean, home) & (t >= first_clean) & in_time
            clean_arrival = jnp.where(at_goal, jnp.minimum(clean_arrival, t), clean_arrival)
            for w in self.words:
                self.memory.layers[0, t, w] = plain[w]
                self.memory.layers[1, t, w] = clean[w]
            next_others = self._other_cells(route, jnp.minimum(t + 1, self.horizon))
            across, along = self._edges(others, next_others)
            edges = (across, across, along, along)
            clean_bans = [unite(ban, edge) for ban, edge in zip(bans, edges, strict=True)]
            plain, clean = self._step(plain, bans), self._step(clean, clean_bans)
            return t + 1, tuple(plain), tuple(clean), next_others, arrival, clean_arrival

        def unfinished(state: Any) -> jax.Array:
            t, *_, arrival, clean_arrival = state
            waiting = (arrival == NEVER) | (route.patient & (clean_arrival == NEVER))
            return any_lane((t <= latest) & waiting)

        start = tuple(single_cell(route.start, self.board.words))
        never = jnp.zeros_like(latest) + NEVER
        state = (jnp.int32(0), start, start, self._other_cells(route, jnp.int32(0)), never, never)
        *_, arrival, clean_arrival = jax.lax.while_loop(unfinished, advance, state)
        return jnp.where(clean_arrival != NEVER, clean_arrival, arrival)

    def trace(self, route: Route, arrival: jax.Array, active: jax.Array) -> None:
        """Write an earliest path where `active`, preferring steps as `space_time.trace_back`."""
        end = jnp.where(active, arrival, 0)
        last = jnp.max(end)

        def step_back(i: jax.Array, state: Any) -> Any:
            t = last - i
            cell, places, next_others = state
            plain = [self.memory.layers[0, t, w] for w in self.words]
            clean = [self.memory.layers[1, t, w] for w in self.words]
            others, (_, bans) = self._other_cells(route, t), self._constraints(route, t)
            previous = self._step_back(cell, others, next_others, bans, plain, clean)
            walking = t < end
            cell = jnp.where(walking, previous, cell)
            before = self._places_before(places, bans, plain)
            places = [jnp.where(walking, x, y) for x, y in zip(before, places, strict=True)]
            is_forced = ~(reduce_or(subtract(places, single_cell(cell, self.board.words))) != 0)
            entry = cell | jnp.where(is_forced, jnp.int32(FORCED), 0)
            put(self.memory.paths, (route.agent, t, self.node), entry, walking)
            return cell, tuple(places), others

        home = single_cell(route.goal, self.board.words)
        # The first round only looks up the other agents' cells.
        off_board = (jnp.zeros_like(route.goal),) * self.agents
        jax.lax.fori_loop(0, last + 1, step_back, (route.goal, tuple(home), off_board))

    def choose_conflict(
        self, costs: tuple[jax.Array, ...], tight: list[jax.Array], active: jax.Array
    ) -> tuple[PathConflict, jax.Array]:
        """Return the conflict to split on and the number of conflicts, as in `trees.conflicts`."""
        T, pairs = self.horizon, agent_pairs(self.agents)
        # After the last arrival all agents are at their goals, which usually differ.
        length = jnp.where(self.shared_goal, T, largest(costs))
        last = jnp.max(jnp.where(active, length, 0))

        def entries(t: jax.Array) -> tuple[jax.Array, ...]:
            return tuple(self.helpers.read(self.memory.paths, k, t) for k in range(self.agents))

        def update(i: jax.Array, state: Any) -> Any:
            best, count, current = state
            t = jnp.minimum(self.helpers.time_of_round(i), T - 1)
            inside = self.helpers.time_of_round(i) < last
            current = entries(t) if shared else current
            following = entries(t + 1)
            now, then = [[entry & CELL for entry in side] for side in (current, following)]
            forced = [
                to_int32(x) * ((entry >> _FORCED_BIT) & 1)
                for x, entry in zip(tight, current, strict=True)
            ]
            move = [
                x * ((entry >> _FORCED_BIT) & 1) for x, entry in zip(forced, following, strict=True)
            ]
            stuck = [x | to_int32(t >= cost) for x, cost in zip(forced, costs, strict=True)]
            for p, (a, b) in enumerate(pairs):
                meets = now[a] == now[b]
                swap = (now[a] == then[b]) & (then[a] == now[b]) & ~meets
                rank = 1 + jnp.where(meets, stuck[a] + stuck[b], move[a] + move[b])
                key = _pack_conflict(rank, t, p, swap, T)
                conflict = (meets | swap) & inside
                best = jnp.maximum(best, jnp.where(conflict, key, 0))
                count += to_int32(conflict)
            return best, count, () if shared else following

        shared = self.helpers.count > 1
        self.helpers.meet()
        zero = jnp.zeros_like(costs[0])
        state = (zero, zero, () if shared else entries(jnp.int32(0)))
        best, count, _ = jax.lax.fori_loop(0, self.helpers.rounds(last), update, state)
        best, count = self.helpers.max(best), self.helpers.sum(count)
        return self._read_conflict(best, costs, tight), count

    def _read_conflict(
        self, best: jax.Array, costs: tuple[jax.Array, ...], tight: list[jax.Array]
    ) -> PathConflict:
        T, pairs = self.horizon, agent_pairs(self.agents)
        time, pair = _unpack_conflict(best, T, len(pairs))
        first, second = (jnp.zeros_like(best) for _ in range(2))
        for p, (i, j) in enumerate(pairs):
            first, second = jnp.where(pair == p, i, first), jnp.where(pair == p, j, second)
        sure = tuple(map(to_int32, tight))

        def entry(agent: jax.Array, t: jax.Array) -> jax.Array:
            return self.memory.paths[agent, t, self.node]

        def is_forced(agent: jax.Array) -> jax.Array:
            return (take_agent(sure, agent) != 0) & ((entry(agent, time) & FORCED) != 0)

        first_rests, second_rests = (
            time >= take_agent(costs, first),
            time >= take_agent(costs, second),
        )
        kind = jnp.where(first_rests | second_rests, TARGET, VERTEX)
        kind = jnp.where((best & ((1 << _SWAP_BITS) - 1)) != 0, SWAP, kind)
        flip = to_int32(is_forced(first) & ~is_forced(second))
        flip = jnp.where(kind == TARGET, to_int32(first_rests), flip) != 0
        first, second = jnp.where(flip, second, first), jnp.where(flip, first, second)
        return PathConflict(
            first=first,
            second=second,
            kind=jnp.where(best > 0, kind, NONE),
            time=time,
            first_cell=entry(first, time) & CELL,
            second_cell=entry(second, time) & CELL,
            first_next_cell=entry(first, time + 1) & CELL,
            second_next_cell=entry(second, time + 1) & CELL,
        )

    def _other_cells(self, route: Route, t: jax.Array) -> tuple[jax.Array, ...]:
        """Return the other agents' cells at t, and a cell off the board for the agent itself."""
        return tuple(
            jnp.where(route.agent == k, jnp.int32(CELL), self._cell_at(k, t))
            for k in range(self.agents)
        )

    def _cell_at(self, agent: int, t: jax.Array) -> jax.Array:
        return self.helpers.read(self.memory.paths, agent, t) & CELL

    def _cells(self, cells: tuple[jax.Array, ...]) -> CellSet:
        return unite(*(single_cell(cell, self.board.words) for cell in cells))

    def _edges(
        self, cells: tuple[jax.Array, ...], next_cells: tuple[jax.Array, ...]
    ) -> tuple[CellSet, CellSet]:
        """Return the edges that others use, in rows and in columns, by left or upper cell."""
        across, along = [], []
        for cell, next_cell in zip(cells, next_cells, strict=True):
            lower = single_cell(jnp.minimum(cell, next_cell), self.board.words)
            length = jnp.abs(next_cell - cell)
            across.append(select(length == 1, lower))
            along.append(select(length == self.board.pitch, lower))
        return unite(*across), unite(*along)

    def _constraints(self, route: Route, t: jax.Array) -> tuple[CellSet, list[CellSet]]:
        """Return the cells that constraints close at t, and the moves to t + 1 by direction."""

        def read_note(state: Any) -> Any:
            number, closed, bans = state
            note = Note.unpack(self.memory.notes[jnp.maximum(number - 1, 0), self.node])
            cell = single_cell(note.cell, self.board.words)
            exists, applies = number > 0, note.agent == route.agent
            fixed = exists & (note.kind == FIXED)
            shut = (exists & (note.kind == CLOSED) & applies) | (fixed & ~applies)
            # An agent that must be in a cell avoids all others.
            only = select(fixed & applies, [~word for word in cell])
            closed = unite(closed, select(shut, cell), only)
            bans = tuple(
                tuple(unite(ban, select(exists & applies & (note.kind == move), cell)))
                for ban, move in zip(bans, MOVES, strict=True)
            )
            return jnp.where(exists, note.next, 0), tuple(closed), bans

        empty = tuple(self.none)
        initial = (self.helpers.read(self.memory.heads, t), empty, (empty,) * len(MOVES))
        _, closed, bans = jax.lax.while_loop(
            lambda state: any_lane(state[0] > 0), read_note, initial
        )
        return list(closed), [list(ban) for ban in bans]

    def _resting_goals(self, route: Route, t: jax.Array) -> CellSet:
        """Return the goals of other agents that must rest there by time t."""
        rests = [(t >= limit) & (route.agent != k) for k, limit in enumerate(route.latest)]

        def goals() -> CellSet:
            cells = [single_cell(goal, self.board.words) for goal in self.task.goals]
            return unite(*(select(rest, cell) for rest, cell in zip(rests, cells, strict=True)))

        any_rests = reduce_or([to_int32(rest) for rest in rests]) != 0
        return jax.lax.cond(any_lane(any_rests), goals, lambda: self.none)

    def stay_from(
        self,
        agent: jax.Array,
        goal: jax.Array,
        latest: tuple[jax.Array, ...],
        levels: jax.Array,
        conflict_time: Callable[[jax.Array], jax.Array],
    ) -> jax.Array:
        """Return the first time, up to T + 1, after which none of `levels` closes the goal."""

        def update(i: jax.Array, first: jax.Array) -> jax.Array:
            level = self.helpers.time_of_round(i)
            now, time = level < levels, conflict_time(level)
            for slot in range(NOTES):
                code = self.helpers.read(self.memory.notes, NOTES * level + slot)
                note = Note.unpack(code)
                after = time + (1 if slot < NOTES - 1 else 2)
                closed = now & note.closes(goal, agent)
                first = jnp.where(closed, jnp.maximum(first, after), first)
            return first

        rounds = self.helpers.rounds(jnp.max(levels))
        first = self.helpers.max(jax.lax.fori_loop(0, rounds, update, jnp.zeros_like(goal)))
        closed = to_int32(~intersects(self.task.free, single_cell(goal, self.board.words)))
        for k, (limit, other_goal) in enumerate(zip(latest, self.task.goals, strict=True)):
            closed |= to_int32((agent != k) & (other_goal == goal) & (limit <= self.horizon))
        return jnp.where(closed != 0, self.horizon + 1, first)

    def clean_stay_from(
        self, agent: jax.Array, goal: jax.Array, costs: tuple[jax.Array, ...], active: jax.Array
    ) -> jax.Array:
        """Return the first time, up to T + 1, after which no other agent passes a goal."""
        last = jnp.max(jnp.where(active, largest(costs) + 1, 0))

        def update(i: jax.Array, first: jax.Array) -> jax.Array:
            t = jnp.minimum(self.helpers.time_of_round(i), self.horizon)
            for k in range(self.agents):
                at_goal = (agent != k) & (self._cell_at(k, t) == goal) & (t < last)
                first = jnp.where(active & at_goal, t + 1, first)
            return first

        last = jnp.minimum(last, self.horizon + 1)
        rounds = self.helpers.rounds(last)
        return self.helpers.max(jax.lax.fori_loop(0, rounds, update, jnp.zeros_like(goal)))

    def _step(self, cells: CellSet, bans: list[CellSet]) -> CellSet:
        """Return the cells reachable by a step or a wait, holes included."""
        right, left, down, up = bans
        pitch = self.board.pitch
        return unite(
            intersect(cells, self.still),
            shift(subtract(cells, right), 1),
            subtract(shift(cells, -1), left),
            shift(subtract(cells, down), pitch),
            subtract(shift(cells, -pitch), up),
        )

    def _places_before(self, places: Any, bans: list[CellSet], layer: CellSet) -> CellSet:
        """Return the cells of a layer from which a step or a wait leads to any of the places."""
        right, left, down, up = bans
        backwards = self._step(list(places), [left, right, up, down])
        return [x & y for x, y in zip(backwards, layer, strict=True)]

    def _step_back(
        self,
        cell: jax.Array,
        others: tuple[jax.Array, ...],
        next_others: tuple[jax.Array, ...],
        bans: list[CellSet],
        plain: CellSet,
        clean: CellSet,
    ) -> jax.Array:
        """Return the preferred predecessor of `cell`.

        The other agents move from `others` to `next_others` in the same step.
        """
        right, left, down, up = bans
        pitch = self.board.pitch
        place = single_cell(cell, self.board.words)
        # From above, from the left, from the right, from below. A move is stored at its lesser
        # cell: either its origin or its target.
        ways = [(-pitch, down, True), (-1, right, True), (1, left, False), (pitch, up, False)]
        plain_way = polite_way = clean_way = cell
        has_polite = has_clean = jnp.zeros_like(cell)
        for delta, ban, comes_from_lesser in reversed(ways):
            origin = cell + delta
            source = single_cell(origin, self.board.words)
            banned = intersects(ban, source if comes_from_lesser else place)
            disturbed = reduce_or(
                [
                    to_int32((now == origin) | ((now == cell) & (then == origin)))
                    for now, then in zip(others, next_others, strict=True)
                ]
            )
            open_way = intersects(plain, source) & ~banned
            polite = open_way & (disturbed == 0)
            spotless = polite & intersects(clean, source)
            plain_way = jnp.where(open_way, origin, plain_way)
            polite_way = jnp.where(polite, origin, polite_way)
            clean_way = jnp.where(spotless, origin, clean_way)
            has_polite |= to_int32(polite)
            has_clean |= to_int32(spotless)
        occupied = reduce_or([to_int32(now == cell) for now in others])
        polite_wait = self.task.waits & intersects(plain, place) & (occupied == 0)
        clean_wait = polite_wait & intersects(clean, place)
        # Impossible ways hold the cell itself. The least preferred way comes first.
        predecessor = jnp.where((has_polite != 0) | polite_wait, polite_way, plain_way)
        return jnp.where((has_clean != 0) | clean_wait, clean_way, predecessor)


def _pack_conflict(rank: jax.Array, t: jax.Array, pair: int, swap: jax.Array, T: int) -> jax.Array:
    pair_and_swap = (pair << _SWAP_BITS) + to_int32(swap)
    return (rank << _RANK_SHIFT) | ((T - t) << _TIME_SHIFT) | pair_and_swap


def _unpack_conflict(code: jax.Array, T: int, pairs: int) -> tuple[jax.Array, jax.Array]:
    """Return the time and the pair of a conflict, in range even if there is none."""
    time = jnp.clip(T - ((code >> _TIME_SHIFT) & ((1 << _TIME_BITS) - 1)), 0, T - 1)
    return time, jnp.clip((code >> _SWAP_BITS) & ((1 << _PAIR_BITS) - 1), 0, pairs - 1)
