"""Common parts of the kernels that search the joint cells of two agents.

Each lane of a program stands for one cell of agent 0 and holds a set of cells of agent 1. A set of
cells of one agent is stored as flags: one word per lane, with bit 0 for agent 0, bit 1 for agent 1.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver.chunks import Kernels, Limits
from jaxlake.solver.kernels.lanes import (
    EMPTY_WORD,
    VECTOR_REGISTER,
    WARP,
    CellSet,
    fits,
    intersect,
    intersects,
    reduce_or,
    run_programs,
    select,
    shift,
    single_cell,
    subtract,
    to_int32,
    unite,
)
from jaxlake.solver.pairs.joint_search import Geometry, TwoAgentBoards, max_joint_boards, pack_cells

BOTH_AGENTS = np.uint32(3)
"""Flags of a cell that is in the sets of both agents."""

MAX_ROWS = 16
"""Largest number of rows of a board, which takes 512 lanes with 9 words each."""

BOARDS_PER_PROGRAM = {Kernels.GPU: 1, Kernels.TPU: VECTOR_REGISTER[0], Kernels.INTERPRETED: 32}
"""Number of boards per program."""


def num_lanes(backend: Kernels, board: Geometry) -> int:
    """Return the number of lanes per board: one per cell, plus empty ones beyond the board."""
    min_lanes = VECTOR_REGISTER[1] if backend is Kernels.TPU else WARP
    return max(min_lanes, 1 << (board.cells + board.pitch - 1).bit_length())


class OutputRows(NamedTuple):
    """Number of output rows per kind of value. Value i is in lane i % lanes of row i // lanes."""

    results: int
    actions: int  # actions of one agent after the other has retired, by resulting cost
    joint_actions: int  # of each plan, by time: 5 times the action of agent 0 plus that of agent 1

    @property
    def total(self) -> int:
        """Number of all rows, for two plans."""
        return self.results + self.actions + 2 * self.joint_actions


def output_rows(horizon: int | None, lane_count: int) -> OutputRows:
    """Return the rows of a program's output, which has no plans if `horizon` is None."""
    if horizon is None:
        return OutputRows(1, 0, 0)
    return OutputRows(1, -(-(2 * horizon + 2) // lane_count), -(-horizon // lane_count))


RECENT_TIMES = 2
"""Number of times kept in memory without plans: one is read and one is written."""


def memory_shape(horizon: int | None, board: Geometry) -> tuple[int, int]:
    """Return the leading axes of a program's memory: times, and words plus one for walks."""
    return RECENT_TIMES if horizon is None else horizon + 1, board.words + 1


def select_backend(backend: Kernels | None, horizon: int | None, board: Geometry) -> Kernels | None:
    """Return the backend, or None if the kernels do not support boards of this geometry."""
    if backend is None or board.pitch > MAX_ROWS + 1:
        return None
    registers = -(-num_lanes(backend, board) // VECTOR_REGISTER[1])
    return backend if fits(backend, registers * _num_rows(backend, horizon, board)) else None


def max_pairs(backend: Kernels | None, horizon: int | None, board: Geometry, limits: Limits) -> int:
    """Return how many pairs a kernel, or an XLA loop if `backend` is None, processes at once."""
    if backend is None:
        return max_joint_boards(board, limits, horizon)
    row_bytes = 4 * num_lanes(backend, board)
    return limits.max_items(limits.joint_boards, row_bytes * _num_rows(backend, horizon, board))


def _num_rows(backend: Kernels, horizon: int | None, board: Geometry) -> int:
    """Return the number of rows of lanes that a pair takes in memory and output."""
    output = output_rows(horizon, num_lanes(backend, board)).total
    return int(np.prod(memory_shape(horizon, board))) + output


def run_pairs(
    kernel: Callable[..., None],
    boards: TwoAgentBoards,
    columns: Sequence[jax.Array],
    horizon: int | None,
    board: Geometry,
    backend: Kernels,
) -> jax.Array:
    """Run a kernel on pairs of agents, with extra inputs `columns` of shape (B,).

    Returns:
        The output, int32 (rows, B, lanes), see `output_rows`.
    """
    from jax.experimental import pallas as pl  # as slow to import as all of JAX

    inputs = (*pack_cells(boards.free, board), *boards.starts, *boards.goals, *columns)
    table = jnp.stack([array.astype(jnp.int32) for array in inputs], axis=1)
    boards_per_program, lanes = BOARDS_PER_PROGRAM[backend], num_lanes(backend, board)
    B, rows = len(table), output_rows(horizon, lanes).total
    num_programs = -(-B // boards_per_program)
    table = jnp.pad(table, [(0, num_programs * boards_per_program - B), (0, 0)])
    output = (
        jax.ShapeDtypeStruct((rows, num_programs * boards_per_program, lanes), jnp.int32),
        pl.BlockSpec((rows, boards_per_program, lanes), lambda i: (0, i, 0)),
    )
    (results,) = run_programs(
        kernel,
        backend,
        num_programs,
        [(table, pl.BlockSpec((boards_per_program, table.shape[1]), lambda i: (i, 0)))],
        [output],
        [((*memory_shape(horizon, board), boards_per_program, lanes), jnp.uint32)],
        warps=lanes // WARP,
    )
    return results[:, :B]


class PairLanes:
    """Inputs and memory of one program. The memory has axes (times, words + 1, boards, lanes)."""

    def __init__(self, columns: Any, memory: Any, board: Geometry, backend: Kernels) -> None:
        self.board, self.backend, self.memory = board, backend, memory
        self.deltas = (0, *board.deltas)
        shape = memory.shape[-2:]
        self.lanes = shape[1]
        self.lane = jax.lax.broadcasted_iota(jnp.int32, shape, 1)
        self.board_index = jax.lax.broadcasted_iota(jnp.int32, shape, 0)

        W = board.words
        numbers = [columns[:, i : i + 1] for i in range(columns.shape[1])]
        free = [word.astype(jnp.uint32) for word in numbers[:W]]
        start_0, start_1, goal_0, goal_1, self.running, *self.extra_columns = numbers[W:]
        self.starts, self.goals = (start_0, start_1), (goal_0, goal_1)
        self.lane_cell = single_cell(self.lane, W)
        is_free = intersects(free, self.lane_cell)
        self.allowed = select(is_free, subtract(free, self.lane_cell))  # legal joint cells
        at_goal = [jnp.where(self.lane == goal, np.uint32(1), EMPTY_WORD) for goal in self.goals]
        self.goal_flags = at_goal[0] | (at_goal[1] << 1)
        # An agent must not pass through the goal where the other agent has retired.
        open_flags = BOTH_AGENTS & ~(at_goal[1] | (at_goal[0] << 1))
        self.open_flags = jnp.where(is_free, open_flags, EMPTY_WORD)
        self.goal_1 = single_cell(self.goals[1], W)

    def first_layer(self) -> CellSet:
        """Return L_0, with both agents at their starts."""
        start = select(self.lane == self.starts[0], single_cell(self.starts[1], self.board.words))
        return intersect(start, self.allowed)

    def expand(self, t: jax.Array, layer: Sequence[jax.Array], may_wait: bool) -> CellSet:
        """Return the layer at t + 1, as `joint_search.expand`."""
        deltas, words = self.board.deltas, range(self.board.words)
        moved_sets = {delta: [self.read_moved(t, w, delta) for w in words] for delta in deltas}
        moved_0 = unite(*moved_sets.values(), *([layer] if may_wait else []))
        moved_0 = subtract(moved_0, self.lane_cell)
        entered = {
            delta: jnp.where(intersects(cells, self.lane_cell), ~EMPTY_WORD, EMPTY_WORD)
            for delta, cells in moved_sets.items()
        }
        moved_both = [moved_0] if may_wait else []
        for move in deltas:
            # If agent 0 enters agent 1's cell, agent 1 must leave by a move that is not a swap.
            may_leave = reduce_or([entered[delta] for delta in deltas if delta != -move])
            origins = [
                x | (cell & may_leave) for x, cell in zip(moved_0, self.lane_cell, strict=True)
            ]
            moved_both.append(shift(origins, move))
        new_layer = intersect(unite(*moved_both), self.allowed)
        return unite(new_layer, layer) if may_wait else new_layer

    def step_walk(self, t: jax.Array, part: int) -> jax.Array:
        """Return the flags one move away from a walk written at t; `part` is its first bit."""
        moved_flags = [self.read_moved(t, self.board.words, delta) for delta in self.board.deltas]
        return (reduce_or(moved_flags) >> part) & BOTH_AGENTS

    def mark_origin(
        self, cell: jax.Array, action: int, value: int, default: jax.Array
    ) -> jax.Array:
        """Return `value` in the lane of the cell from which an action leads to `cell`."""
        return jnp.where(self.lane == cell - self.deltas[action], value, default)

    def select_cell(self, cell: jax.Array, values: jax.Array, default: int) -> jax.Array:
        """Return the values in the lane of a cell, and `default` in the other lanes."""
        return jnp.where(self.lane == cell, values, default)

    def lane_min(self, values: jax.Array) -> jax.Array:
        """Return the minimum over the lanes of each board, (boards, 1)."""
        return jnp.min(values, axis=1, keepdims=True)

    def pack_row(self, numbers: Sequence[jax.Array]) -> jax.Array:
        """Return a row with number i of each board in lane i."""
        row = jnp.zeros_like(self.lane)
        for i, number in enumerate(numbers):
            row = jnp.where(self.lane == i, number, row)
        return row

    def write_layer(self, t: jax.Array, layer: CellSet) -> None:
        """Write the layer of time t."""
        for w, word in enumerate(layer):
            self.memory[t, w] = word

    def write_walk(self, t: jax.Array, word: jax.Array) -> None:
        """Write a word of walks: S_{2t}, the cells from which walks start, and S_{2t+1}."""
        self.memory[t, self.board.words] = word

    def read_moved(self, t: jax.Array, w: int, delta: int) -> jax.Array:
        """Return, for each lane, the word of the lane from which a move of `delta` leads to it."""
        if self.backend is Kernels.TPU:
            from jax.experimental.pallas import tpu as pltpu

            return pltpu.roll(self.memory[t, w], delta % self.lanes, axis=1)
        return self.memory[t, w, self.board_index, (self.lane - delta) & (self.lanes - 1)]

    def find_partner_cells(self, t: jax.Array, layer: Sequence[jax.Array]) -> jax.Array:
        """Return whether agent 1 can be on each cell at t with agent 0 at its goal, uint32."""
        if self.backend is Kernels.TPU:
            at_goal = [self.select_cell(self.goals[0], word.astype(jnp.int32), 0) for word in layer]
            cells = [jnp.sum(word, axis=1, keepdims=True).astype(jnp.uint32) for word in at_goal]
            return to_uint32(intersects(cells, self.lane_cell))
        W = self.board.words
        word = self.memory[t, jnp.minimum(self.lane >> 5, W - 1), self.board_index, self.goals[0]]
        if self.lanes > 32 * W:
            word = jnp.where(self.lane < 32 * W, word, EMPTY_WORD)
        return (word >> (self.lane & 31).astype(jnp.uint32)) & 1

    def synchronise(self) -> None:
        """Wait until all lanes have written."""
        if self.backend is Kernels.GPU:
            from jax.experimental.pallas import triton

            triton.debug_barrier()

    def action_delta(self, action: jax.Array) -> jax.Array:
        """Return the change of the cell number by an action."""
        delta = jnp.zeros_like(action)
        for number, value in enumerate(self.deltas):
            delta = jnp.where(action == number, value, delta)
        return delta


def to_uint32(condition: jax.Array) -> jax.Array:
    """Convert bool to a uint32 of 0 or 1."""
    return to_int32(condition).astype(jnp.uint32)
