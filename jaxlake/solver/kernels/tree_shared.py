"""Path planning shared by the lanes of one node, which is faster than planning in one lane.

Each lane looks up the open cells and moves of a different time. Lanes then work in pairs: the first
lane of a pair expands all reachable cells, and the second lane the conflict-free ones.
"""

from typing import Any

import jax
import jax.numpy as jnp

from jaxlake.solver.kernels.lanes import (
    CellSet,
    any_lane,
    bit,
    intersect,
    intersects,
    reduce_or,
    shift,
    single_cell,
    subtract,
    to_int32,
    unite,
)
from jaxlake.solver.kernels.tree_memory import Route, put
from jaxlake.solver.kernels.tree_paths import Paths
from jaxlake.solver.space_time import NEVER
from jaxlake.solver.trees.conflicts import FORCED
from jaxlake.solver.trees.node import take_agent

_MOVES = 4
_SPOTLESS, _POLITE, _OPEN = 3, 2, 1
"""Quality of a step: on a conflict-free path, conflict-free itself, or merely possible."""

_RANK = 3
"""Bits that identify a step, below its quality."""


class SharedPaths(Paths):
    """As `Paths`, for nodes with eight lanes each."""

    def earliest_arrival(self, route: Route, earliest: jax.Array, latest: jax.Array) -> jax.Array:
        """Find the first time at which the agent can reach its goal and stay there, or NEVER."""
        side = self.helpers.rank & 1
        clean = side != 0
        first = jnp.maximum(route.stay_from, earliest)
        first = jnp.where(clean, jnp.maximum(first, route.clean_stay_from), first)
        counts = ~clean | route.patient
        home = single_cell(route.goal, self.board.words)

        def unfinished(t: jax.Array, arrival: jax.Array) -> jax.Array:
            return any_lane((t <= latest) & counts & (arrival == NEVER))

        def advance(state: Any) -> Any:
            t, cells, arrival = state
            cells_open, *moves = self._masks(side, t)
            cells = intersect(cells, cells_open)
            at_goal = counts & intersects(cells, home) & (t >= first) & (t <= latest)
            arrival = jnp.where(at_goal, jnp.minimum(arrival, t), arrival)
            for w in self.words:
                put(self.memory.layers, (side, t, w, self.node), cells[w])
            return t + 1, tuple(self._move(cells, moves)), arrival

        def advance_round(state: Any) -> Any:
            self._write_masks(route, state[0] + self.helpers.rank)
            self.helpers.meet()
            end = state[0] + self.helpers.count
            return jax.lax.while_loop(
                lambda state: (state[0] < end) & unfinished(state[0], state[2]), advance, state
            )

        start = tuple(single_cell(route.start, self.board.words))
        state = (jnp.int32(0), start, jnp.zeros_like(latest) + NEVER)
        *_, arrival = jax.lax.while_loop(
            lambda state: unfinished(state[0], state[2]), advance_round, state
        )
        plain_arrival = self.helpers.min(jnp.where(clean, NEVER, arrival))
        clean_arrival = self.helpers.min(jnp.where(clean, arrival, NEVER))
        return jnp.where(clean_arrival != NEVER, clean_arrival, plain_arrival)

    def _write_masks(self, route: Route, times: jax.Array) -> None:
        """Write the open cells and moves at each lane's time: all, and without conflicts."""
        t = jnp.minimum(times, self.horizon)
        closed, bans = self._constraints(route, t)
        shut = unite([~word for word in self.task.free], closed, self._resting_goals(route, t))
        others = self._other_cells(route, t)
        across, along = self._edges(
            others, self._other_cells(route, jnp.minimum(t + 1, self.horizon))
        )
        edges = (across, across, along, along)
        polite = [unite(ban, edge) for ban, edge in zip(bans, edges, strict=True)]
        plain, clean = [shut, *bans], [unite(shut, self._cells(others)), *polite]
        for side, masks in enumerate((plain, clean)):
            for i, words in enumerate(masks):
                for w, word in enumerate(words):
                    put(self.memory.masks, (side, times, i, w, self.node), ~word)

    def _masks(self, side: jax.Array | int, t: jax.Array) -> list[CellSet]:
        """Read the open cells and, by direction, the open moves at a time."""
        return [
            [self.memory.masks[side, t, i, w, self.node] for w in self.words]
            for i in range(1 + _MOVES)
        ]

    def trace(self, route: Route, arrival: jax.Array, active: jax.Array) -> None:
        """Write an earliest path where `active`; its end at the goal is already written."""
        self.helpers.meet()
        end = jnp.where(active, arrival, 0)
        last = jnp.max(end)
        # From above, from the left, from the right, from below, and a wait.
        deltas = tuple(map(jnp.int32, (-self.board.pitch, -1, 1, self.board.pitch, 0)))
        way = jnp.minimum(self.helpers.rank, _MOVES)
        delta = take_agent(deltas, way)
        mask = 1 + take_agent(tuple(map(jnp.int32, (2, 0, 1, 3, 0))), way)  # down, right, left, up

        def step_back(i: jax.Array, state: Any) -> Any:
            t = last - i
            cell, places = state
            layer = [self.memory.layers[0, t, w, self.node] for w in self.words]
            right, left, down, up = self._masks(0, t)[1:]
            walking = t < end
            step = take_agent(deltas, self._step_from(cell, t, way, delta, mask))
            cell = jnp.where(walking, cell + step, cell)
            before = intersect(self._move(list(places), [left, right, up, down]), layer)
            places = [jnp.where(walking, x, y) for x, y in zip(before, places, strict=True)]
            is_forced = ~(reduce_or(subtract(places, single_cell(cell, self.board.words))) != 0)
            entry = cell | jnp.where(is_forced, jnp.int32(FORCED), 0)
            put(self.memory.paths, (route.agent, t, self.node), entry, walking)
            return cell, tuple(places)

        home = tuple(single_cell(route.goal, self.board.words))
        # The entry of the last arrival is already written.
        jax.lax.fori_loop(1, last + 1, step_back, (route.goal, home))

    def _move(self, cells: CellSet, moves: list[CellSet]) -> CellSet:
        """Return the cells reachable by a step or a wait, as `_step`, from the open moves."""
        right, left, down, up = moves
        pitch = self.board.pitch
        return unite(
            intersect(cells, self.still),
            shift(intersect(cells, right), 1),
            intersect(shift(cells, -1), left),
            shift(intersect(cells, down), pitch),
            intersect(shift(cells, -pitch), up),
        )

    def _step_from(
        self, cell: jax.Array, t: jax.Array, way: jax.Array, delta: jax.Array, mask: jax.Array
    ) -> jax.Array:
        """Return the preferred way to a cell, as `Paths.trace`; each lane examines one `way`."""
        waits, origin = way == _MOVES, cell + delta
        inside = (origin >= 0) & (origin < 32 * self.board.words)
        # A move is stored at its lesser cell.
        origin_bit, move = self._place_of(origin), self._place_of(jnp.minimum(cell, origin))
        memory = self.memory

        def has(ref: Any, place: tuple[Any, ...], bit: tuple[jax.Array, jax.Array]) -> jax.Array:
            return ref[(*place, bit[0], self.node)] & bit[1] != 0

        possible = inside & has(memory.layers, (0, t), origin_bit)
        possible &= waits | has(memory.masks, (0, t, mask), move)
        polite = possible & has(memory.masks, (1, t, 0), origin_bit)
        polite &= (waits & self.task.waits) | (~waits & has(memory.masks, (1, t, mask), move))
        clean = has(memory.layers, (1, t), origin_bit)
        good = jnp.where(polite, jnp.where(clean, _SPOTLESS, _POLITE), to_int32(possible) * _OPEN)
        # If no step leads here, the agent stays; among equally good steps the first one wins.
        key = jnp.where(good > 0, (good << _RANK) | (_MOVES - way), 0)
        key = jnp.where(waits, jnp.maximum(key, _OPEN << _RANK), key)
        return _MOVES - (self.helpers.max(key) & ((1 << _RANK) - 1))

    def _place_of(self, cell: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the word and the bit of a cell in a set; arbitrary for cells off the board."""
        word = jnp.clip(cell >> 5, 0, self.board.words - 1)
        return word, bit(cell & 31)
