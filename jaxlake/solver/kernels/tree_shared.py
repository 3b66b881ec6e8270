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
from jaxlake.solver.kernels.tree_memory import ReplanRequest, store
from jaxlake.solver.kernels.tree_paths import PathPlanner
from jaxlake.solver.space_time import NEVER
from jaxlake.solver.trees.conflicts import FORCED
from jaxlake.solver.trees.node import select_agent

_MOVES = 4
_CONFLICT_FREE_PATH, _CONFLICT_FREE_STEP, _POSSIBLE_STEP = 3, 2, 1
"""Qualities of a step: it continues a conflict-free path, causes no conflict, or is possible."""

_STEP_BITS = 3
"""Number of bits that identify a step."""


class SharedPathPlanner(PathPlanner):
    """Planner with the results of `PathPlanner`, for nodes with eight lanes each."""

    def earliest_arrival(
        self, request: ReplanRequest, earliest: jax.Array, latest: jax.Array
    ) -> jax.Array:
        """Find the first time at which the agent can reach its goal and stay there, or NEVER."""
        layer = self.helpers.rank & 1
        is_conflict_free = layer != 0
        first = jnp.maximum(request.goal_open_from, earliest)
        first = jnp.where(is_conflict_free, jnp.maximum(first, request.goal_unvisited_from), first)
        can_arrive = ~is_conflict_free | request.patient
        goal_cell = single_cell(request.goal, self.board.words)

        def is_unfinished(t: jax.Array, arrival: jax.Array) -> jax.Array:
            return any_lane((t <= latest) & can_arrive & (arrival == NEVER))

        def advance(state: Any) -> Any:
            t, cells, arrival = state
            open_cells, *open_moves = self._read_masks(layer, t)
            cells = intersect(cells, open_cells)
            at_goal = can_arrive & intersects(cells, goal_cell) & (t >= first) & (t <= latest)
            arrival = jnp.where(at_goal, jnp.minimum(arrival, t), arrival)
            for w in self.words:
                store(self.memory.layers, (layer, t, w, self.node), cells[w])
            return t + 1, tuple(self._move(cells, open_moves)), arrival

        def advance_round(state: Any) -> Any:
            self._write_masks(request, state[0] + self.helpers.rank)
            self.helpers.synchronise()
            end = state[0] + self.helpers.count
            return jax.lax.while_loop(
                lambda state: (state[0] < end) & is_unfinished(state[0], state[2]), advance, state
            )

        start = tuple(single_cell(request.start, self.board.words))
        state = (jnp.int32(0), start, jnp.zeros_like(latest) + NEVER)
        *_, arrival = jax.lax.while_loop(
            lambda state: is_unfinished(state[0], state[2]), advance_round, state
        )
        patient_arrival = self.helpers.min(jnp.where(is_conflict_free, arrival, NEVER))
        arrival = self.helpers.min(jnp.where(is_conflict_free, NEVER, arrival))
        return jnp.where(patient_arrival != NEVER, patient_arrival, arrival)

    def _write_masks(self, request: ReplanRequest, times: jax.Array) -> None:
        """Write the open cells and moves at each lane's time: all, and those without conflicts."""
        t = jnp.minimum(times, self.horizon)
        closed, forbidden_moves = self._constraints_at(request, t)
        holes = [~word for word in self.query.free]
        closed = unite(holes, closed, self._resting_goals(request, t))
        other_cells = self._other_cells(request, t)
        horizontal, vertical = self._edges(
            other_cells, self._other_cells(request, jnp.minimum(t + 1, self.horizon))
        )
        edges = (horizontal, horizontal, vertical, vertical)
        conflicting_cells = unite(closed, self._union_of_cells(other_cells))
        conflicting_moves = map(unite, forbidden_moves, edges)
        layers = [closed, *forbidden_moves], [conflicting_cells, *conflicting_moves]
        for layer, closed_masks in enumerate(layers):
            for i, words in enumerate(closed_masks):
                for w, word in enumerate(words):
                    store(self.memory.open_masks, (layer, times, i, w, self.node), ~word)

    def _read_masks(self, layer: jax.Array | int, t: jax.Array) -> list[CellSet]:
        """Read the open cells of a layer at a time and, by direction, the open moves."""
        return [
            [self.memory.open_masks[layer, t, i, w, self.node] for w in self.words]
            for i in range(1 + _MOVES)
        ]

    def trace(self, request: ReplanRequest, arrival: jax.Array, active: jax.Array) -> None:
        """Write an earliest path where `active`; its end at the goal is already written."""
        self.helpers.synchronise()
        end = jnp.where(active, arrival, 0)
        last = jnp.max(end)
        # Each lane examines one step into the cell: from above, the left, the right or below, or a
        # wait. The masks of these moves are down, right, left and up.
        deltas = tuple(map(jnp.int32, (-self.board.pitch, -1, 1, self.board.pitch, 0)))
        masks = tuple(map(jnp.int32, (3, 1, 2, 4, 1)))
        step = jnp.minimum(self.helpers.rank, _MOVES)
        delta, mask = select_agent(deltas, step), select_agent(masks, step)

        def step_back(i: jax.Array, state: Any) -> Any:
            t = last - i
            cell, possible_cells = state
            layer = [self.memory.layers[0, t, w, self.node] for w in self.words]
            right, left, down, up = self._read_masks(0, t)[1:]
            is_moving = t < end
            best_step = self._choose_step(cell, t, step, delta, mask)
            cell = jnp.where(is_moving, cell + select_agent(deltas, best_step), cell)
            previous_cells = self._move(list(possible_cells), [left, right, up, down])
            possible_cells = [
                jnp.where(is_moving, x, y)
                for x, y in zip(intersect(previous_cells, layer), possible_cells, strict=True)
            ]
            # The agent has no choice if all earliest paths are in the same cell.
            alternatives = subtract(possible_cells, single_cell(cell, self.board.words))
            is_forced = ~(reduce_or(alternatives) != 0)
            entry = cell | jnp.where(is_forced, jnp.int32(FORCED), 0)
            store(self.memory.paths, (request.agent, t, self.node), entry, is_moving)
            return cell, tuple(possible_cells)

        goal_cell = tuple(single_cell(request.goal, self.board.words))
        # The entry of the last arrival is already written.
        jax.lax.fori_loop(1, last + 1, step_back, (request.goal, goal_cell))

    def _move(self, cells: CellSet, open_moves: list[CellSet]) -> CellSet:
        """Return the cells that are reachable by an open move or a wait."""
        right, left, down, up = open_moves
        pitch = self.board.pitch
        return unite(
            intersect(cells, self.wait_mask),
            shift(intersect(cells, right), 1),
            intersect(shift(cells, -1), left),
            shift(intersect(cells, down), pitch),
            intersect(shift(cells, -pitch), up),
        )

    def _choose_step(
        self, cell: jax.Array, t: jax.Array, step: jax.Array, delta: jax.Array, mask: jax.Array
    ) -> jax.Array:
        """Return the preferred step to a cell; each lane examines one `step`."""
        is_wait, origin = step == _MOVES, cell + delta
        on_board = (origin >= 0) & (origin < 32 * self.board.words)
        memory = self.memory

        def contains(ref: Any, index: tuple[Any, ...], cell: jax.Array) -> jax.Array:
            word = jnp.clip(cell >> 5, 0, self.board.words - 1)
            return ref[(*index, word, self.node)] & bit(cell & 31) != 0

        # A move is stored at its lesser cell.
        move = jnp.minimum(cell, origin)
        possible = on_board & contains(memory.layers, (0, t), origin)
        possible &= is_wait | contains(memory.open_masks, (0, t, mask), move)
        free = possible & contains(memory.open_masks, (1, t, 0), origin)
        is_free_move = contains(memory.open_masks, (1, t, mask), move)
        free &= (is_wait & self.query.may_wait) | (~is_wait & is_free_move)
        is_path_free = contains(memory.layers, (1, t), origin)
        quality = jnp.where(
            free,
            jnp.where(is_path_free, _CONFLICT_FREE_PATH, _CONFLICT_FREE_STEP),
            to_int32(possible) * _POSSIBLE_STEP,
        )
        # Among steps of the same quality the first one is preferred. If none is possible, the agent
        # stays in its cell.
        code = jnp.where(quality > 0, (quality << _STEP_BITS) | (_MOVES - step), 0)
        code = jnp.where(is_wait, jnp.maximum(code, _POSSIBLE_STEP << _STEP_BITS), code)
        return _MOVES - (self.helpers.max(code) & ((1 << _STEP_BITS) - 1))
