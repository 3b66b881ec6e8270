"""Path planning shared by the lanes of one node, which is faster than planning in one lane.

Each lane looks up the forbidden cells and moves of a different time. Lanes then work in pairs. The
first lane of a pair expands all reachable cells, the second lane the conflict-free ones.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxlake.solver.kernels.lanes import (
    CellSet,
    any_lane,
    bit,
    intersects,
    single_cell,
    subtract,
    to_int32,
)
from jaxlake.solver.kernels.tree_memory import ReplanRequest, store
from jaxlake.solver.kernels.tree_paths import PathPlanner
from jaxlake.solver.space_time import NEVER
from jaxlake.solver.trees.node import select_entry

_MOVES = 4
_CONFLICT_FREE_PATH, _CONFLICT_FREE_STEP, _POSSIBLE_STEP = 3, 2, 1
"""Qualities of a step: it continues a conflict-free path, causes no conflict, or is possible."""

_STEP_BITS = 3
"""Number of bits that identify a step."""


class SharedPathPlanner(PathPlanner):
    """Planner with the results of `PathPlanner`, for nodes with eight lanes each."""

    def find_earliest_arrival(
        self, request: ReplanRequest, earliest: jax.Array, latest: jax.Array
    ) -> jax.Array:
        """Return the result of `PathPlanner.find_earliest_arrival`; lane pairs write the layers."""
        layer = self.helpers.rank & 1
        is_conflict_free = layer != 0
        min_time = jnp.maximum(request.goal_open_from, earliest)
        min_time = jnp.where(
            is_conflict_free, jnp.maximum(min_time, request.goal_unvisited_from), min_time
        )
        can_arrive = ~is_conflict_free | request.patient
        goal_cell = single_cell(request.goal, self.board.words)

        def is_unfinished(t: jax.Array, arrival: jax.Array) -> jax.Array:
            return any_lane((t <= latest) & can_arrive & (arrival == NEVER))

        def advance(state: Any) -> Any:
            t, cells, arrival = state
            closed, *forbidden_moves = self._read_forbidden(layer, t)
            cells = subtract(cells, closed)
            at_goal = can_arrive & intersects(cells, goal_cell) & (t >= min_time) & (t <= latest)
            arrival = jnp.where(at_goal, jnp.minimum(arrival, t), arrival)
            for w in self.words:
                store(self.memory.layers, (layer, t, w, self.node), cells[w])
            return t + 1, tuple(self._step(cells, forbidden_moves)), arrival

        def advance_round(state: Any) -> Any:
            self._write_forbidden(request, state[0] + self.helpers.rank)
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

    def _write_forbidden(self, request: ReplanRequest, times: jax.Array) -> None:
        """Write the results of `_find_forbidden` for the time of each lane."""
        t = jnp.minimum(times, self.horizon)
        other_cells = self._read_other_cells(request, t)
        next_other_cells = self._read_other_cells(request, jnp.minimum(t + 1, self.horizon))
        layers = self._find_forbidden(request, t, other_cells, next_other_cells)
        for layer, cell_sets in enumerate(layers):
            for i, words in enumerate(cell_sets):
                for w, word in enumerate(words):
                    store(self.memory.forbidden, (layer, times, i, w, self.node), word)

    def _read_forbidden(self, layer: jax.Array | int, t: jax.Array) -> list[CellSet]:
        """Read the closed cells of a layer at a time and, by direction, the forbidden moves."""
        return [
            [self.memory.forbidden[layer, t, i, w, self.node] for w in self.words]
            for i in range(1 + _MOVES)
        ]

    def trace(self, request: ReplanRequest, arrival: jax.Array, active: jax.Array) -> None:
        """Write an earliest path where `active`; its end at the goal is already written."""
        self.helpers.synchronise()
        end_time = jnp.where(active, arrival, 0)
        last_time = jnp.max(end_time)
        # Each lane examines one step into the cell: from above, the left, the right or below, or a
        # wait. `move_indices` are the positions of these moves in `Memory.forbidden`.
        deltas = tuple(map(jnp.int32, (-self.board.pitch, -1, 1, self.board.pitch, 0)))
        move_indices = tuple(map(jnp.int32, (3, 1, 2, 4, 1)))
        step = jnp.minimum(self.helpers.rank, _MOVES)
        delta, move_index = select_entry(deltas, step), select_entry(move_indices, step)

        def step_back(i: jax.Array, state: Any) -> Any:
            t = last_time - i
            cell, possible_cells = state
            reachable = [self.memory.layers[0, t, w, self.node] for w in self.words]
            is_moving = t < end_time
            best_step = self._choose_step(cell, t, step, delta, move_index)
            cell = jnp.where(is_moving, cell + select_entry(deltas, best_step), cell)
            forbidden_moves = self._read_forbidden(0, t)[1:]
            origins = self._find_origins(possible_cells, forbidden_moves, reachable)
            possible_cells = tuple(map(partial(jnp.where, is_moving), origins, possible_cells))
            self._write_entry(request.agent, t, cell, possible_cells, is_moving)
            return cell, possible_cells

        goal_cell = tuple(single_cell(request.goal, self.board.words))
        # The entry of the last arrival is already written.
        jax.lax.fori_loop(1, last_time + 1, step_back, (request.goal, goal_cell))

    def _choose_step(
        self,
        cell: jax.Array,
        t: jax.Array,
        step: jax.Array,
        delta: jax.Array,
        move_index: jax.Array,
    ) -> jax.Array:
        """Return the preferred step to a cell; each lane examines one `step`."""
        is_wait, origin = step == _MOVES, cell + delta
        is_on_board = (origin >= 0) & (origin < 32 * self.board.words)
        memory = self.memory

        def contains(ref: Any, index: tuple[Any, ...], cell: jax.Array) -> jax.Array:
            word = jnp.clip(cell >> 5, 0, self.board.words - 1)
            return ref[(*index, word, self.node)] & bit(cell & 31) != 0

        # A move is stored at its lesser cell.
        move = jnp.minimum(cell, origin)
        is_possible = is_on_board & contains(memory.layers, (0, t), origin)
        is_possible &= is_wait | ~contains(memory.forbidden, (0, t, move_index), move)
        is_free = is_possible & ~contains(memory.forbidden, (1, t, 0), origin)
        is_free_move = ~contains(memory.forbidden, (1, t, move_index), move)
        is_free &= (is_wait & self.query.may_wait) | (~is_wait & is_free_move)
        is_path_free = contains(memory.layers, (1, t), origin)
        quality = jnp.where(
            is_free,
            jnp.where(is_path_free, _CONFLICT_FREE_PATH, _CONFLICT_FREE_STEP),
            to_int32(is_possible) * _POSSIBLE_STEP,
        )
        # Among steps of the same quality the first one is preferred. If none is possible, the agent
        # stays in its cell.
        code = jnp.where(quality > 0, (quality << _STEP_BITS) | (_MOVES - step), 0)
        code = jnp.where(is_wait, jnp.maximum(code, _POSSIBLE_STEP << _STEP_BITS), code)
        return _MOVES - (self.helpers.max(code) & ((1 << _STEP_BITS) - 1))
