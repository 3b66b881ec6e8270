"""Kernel programs for pairs of agents.

A lane holds one cell of agent 0, and words with the cells of agent 1. Flags of a cell are one word
per lane, with bit 0 for agent 0 and bit 1 for agent 1.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver.chunks import Kernels, Widths
from jaxlake.solver.kernels.lanes import (
    EMPTY_WORD,
    VECTOR_REGISTER,
    WARP,
    Words,
    fits,
    intersect,
    intersects,
    run_programs,
    select,
    shift,
    single_cell,
    subtract,
    to_int32,
    union,
    unite,
)
from jaxlake.solver.pairs.joint_search import Geometry, TwoAgentBoards, max_joint_boards, pack_cells

BOTH = np.uint32(3)
"""Flags of both agents."""

MAX_ROWS = 16
"""Largest number of rows of a board: 512 lanes with 9 words of cells each."""

BOARDS = {Kernels.GPU: 1, Kernels.TPU: VECTOR_REGISTER[0], Kernels.INTERPRETED: 32}
"""Number of boards per program."""


def num_lanes(backend: Kernels, board: Geometry) -> int:
    """Return the lanes per board: one for each cell, and empty ones for steps off the board."""
    least = VECTOR_REGISTER[1] if backend is Kernels.TPU else WARP
    return max(least, 1 << (board.cells + board.pitch - 1).bit_length())


class OutputRows(NamedTuple):
    """Numbers of output rows by content: action i is in lane i % lanes of row i // lanes."""

    numbers: int
    actions: int  # of the lone walker, by the cost that each leads to
    heads: int  # of each plan, 5 times the action of agent 0 plus that of agent 1, by time

    @property
    def total(self) -> int:
        """Number of all rows: numbers, actions, and two plans."""
        return self.numbers + self.actions + 2 * self.heads


def output_rows(horizon: int | None, lanes: int) -> OutputRows:
    """Return the rows of a program's output; without a horizon, plans are left out."""
    if horizon is None:
        return OutputRows(1, 0, 0)
    return OutputRows(1, -(-(2 * horizon + 2) // lanes), -(-horizon // lanes))


LAST_TIMES = 2
"""Times kept in memory if none is revisited: one is read, one is written."""


def memory_rows(horizon: int | None, board: Geometry) -> tuple[int, int]:
    """Return the leading axes of a program's memory: all or the last times, and words."""
    return LAST_TIMES if horizon is None else horizon + 1, board.words + 1


def select_backend(backend: Kernels | None, horizon: int | None, board: Geometry) -> Kernels | None:
    """Return the kernel for boards of this geometry, or None; without a horizon it has no plans."""
    if backend is None or board.pitch > MAX_ROWS + 1:
        return None
    registers = -(-num_lanes(backend, board) // VECTOR_REGISTER[1])
    return backend if fits(backend, registers * _rows(backend, horizon, board)) else None


def max_pairs(backend: Kernels | None, horizon: int | None, board: Geometry, widths: Widths) -> int:
    """Return how many pairs the kernel, or the loops if there is no kernel, process at once."""
    if backend is None:
        return max_joint_boards(board, widths, horizon)
    row_bytes = 4 * num_lanes(backend, board)
    return widths.fitting(widths.joint_boards, row_bytes * _rows(backend, horizon, board))


def _rows(backend: Kernels, horizon: int | None, board: Geometry) -> int:
    """Return the number of rows of lanes that a pair takes in memory and output."""
    output = output_rows(horizon, num_lanes(backend, board)).total
    return int(np.prod(memory_rows(horizon, board))) + output


def run_pairs(
    kernel: Callable[..., None],
    boards: TwoAgentBoards,
    columns: Sequence[jax.Array],
    horizon: int | None,
    board: Geometry,
    backend: Kernels,
) -> jax.Array:
    """Run a kernel over pairs with columns (B,) of numbers; return its output (rows, B, lanes)."""
    from jax.experimental import pallas as pl  # as slow to import as all of JAX

    words = (*pack_cells(boards.free, board), *boards.starts, *boards.goals, *columns)
    table = jnp.stack([word.astype(jnp.int32) for word in words], axis=1)
    at_once, lanes = BOARDS[backend], num_lanes(backend, board)
    B, rows = len(table), output_rows(horizon, lanes).total
    programs = -(-B // at_once)
    table = jnp.pad(table, [(0, programs * at_once - B), (0, 0)])
    output = (
        jax.ShapeDtypeStruct((rows, programs * at_once, lanes), jnp.int32),
        pl.BlockSpec((rows, at_once, lanes), lambda i: (0, i, 0)),
    )
    (results,) = run_programs(
        kernel,
        backend,
        programs,
        [(table, pl.BlockSpec((at_once, table.shape[1]), lambda i: (i, 0)))],
        [output],
        [((*memory_rows(horizon, board), at_once, lanes), jnp.uint32)],
        warps=lanes // WARP,
    )
    return results[:, :B]


class PairLanes:
    """Pairs of one program, and its memory (times, words and one for walks, boards, lanes)."""

    def __init__(self, columns: Any, memory: Any, board: Geometry, backend: Kernels) -> None:
        self.board, self.backend, self.memory = board, backend, memory
        self.deltas = (0, *board.deltas)
        shape = memory.shape[-2:]
        self.lanes = shape[1]
        self.lane = jax.lax.broadcasted_iota(jnp.int32, shape, 1)
        self.number = jax.lax.broadcasted_iota(jnp.int32, shape, 0)  # of a board in its program

        W = board.words
        numbers = [columns[:, i : i + 1] for i in range(columns.shape[1])]
        free = [word.astype(jnp.uint32) for word in numbers[:W]]
        start_0, start_1, goal_0, goal_1, self.running, *self.more = numbers[W:]
        self.starts, self.goals = (start_0, start_1), (goal_0, goal_1)
        self.own_cell = single_cell(self.lane, W)
        is_free = intersects(free, self.own_cell)
        self.allowed = select(is_free, subtract(free, self.own_cell))  # joint cells on the ice
        at_goal = [jnp.where(self.lane == goal, np.uint32(1), EMPTY_WORD) for goal in self.goals]
        self.home = at_goal[0] | (at_goal[1] << 1)
        # Neither agent may pass through the goal where the other has retired.
        passable = BOTH & ~(at_goal[1] | (at_goal[0] << 1))
        self.clear = jnp.where(is_free, passable, EMPTY_WORD)
        self.goal_1 = single_cell(self.goals[1], W)

    def first_layer(self) -> Words:
        """Return L_0, with both agents at their starts."""
        start = select(self.lane == self.starts[0], single_cell(self.starts[1], self.board.words))
        return intersect(start, self.allowed)

    def expand(self, t: jax.Array, layer: Sequence[jax.Array], waiting: bool) -> Words:
        """Return the layer after the one at t, as `joint_search.expand`."""
        deltas, words = self.board.deltas, range(self.board.words)
        moved = {delta: [self.moved(t, w, delta) for w in words] for delta in deltas}
        beside = unite(*moved.values(), *([layer] if waiting else []))
        beside = subtract(beside, self.own_cell)
        onto = {
            delta: jnp.where(intersects(cells, self.own_cell), ~EMPTY_WORD, EMPTY_WORD)
            for delta, cells in moved.items()
        }
        rows = [beside] if waiting else []
        for move in deltas:
            # If agent 0 steps onto agent 1, agent 1 leaves by any move but the swapping one.
            leaves = union([onto[delta] for delta in deltas if delta != -move])
            origins = [x | (cell & leaves) for x, cell in zip(beside, self.own_cell, strict=True)]
            rows.append(shift(origins, move))
        row = intersect(unite(*rows), self.allowed)
        return unite(row, layer) if waiting else row

    def step_walk(self, t: jax.Array, part: int) -> jax.Array:
        """Return the cells one step away from the walk at t, in a part of its word."""
        near = [self.moved(t, self.board.words, delta) for delta in self.board.deltas]
        return (union(near) >> part) & BOTH

    def mark_origin(
        self, place: jax.Array, action: int, value: int, otherwise: jax.Array
    ) -> jax.Array:
        """Return `value` in the lane of the cell from which an action leads to a place."""
        return jnp.where(self.lane == place - self.deltas[action], value, otherwise)

    def select_cell(self, cell: jax.Array, values: jax.Array, otherwise: int) -> jax.Array:
        """Return the values in the lane of a cell, and `otherwise` in the other lanes."""
        return jnp.where(self.lane == cell, values, otherwise)

    def min(self, values: jax.Array) -> jax.Array:
        """Return the minimum over the lanes of each board, (boards, 1)."""
        return jnp.min(values, axis=1, keepdims=True)

    def pack_row(self, numbers: Sequence[jax.Array]) -> jax.Array:
        """Return a row with number i of each board in lane i."""
        row = jnp.zeros_like(self.lane)
        for i, number in enumerate(numbers):
            row = jnp.where(self.lane == i, number, row)
        return row

    def write_layer(self, t: jax.Array, layer: Words) -> None:
        """Write the layer of time t."""
        for w, word in enumerate(layer):
            self.memory[t, w] = word

    def write_walk(self, t: jax.Array, word: jax.Array) -> None:
        """Write a word of walks: S_{2t}, the cells from which walks start, and S_{2t+1}."""
        self.memory[t, self.board.words] = word

    def moved(self, t: jax.Array, w: int, delta: int) -> jax.Array:
        """Return the words of the lanes from which a step of `delta` leads here."""
        if self.backend is Kernels.TPU:
            from jax.experimental.pallas import tpu as pltpu

            return pltpu.roll(self.memory[t, w], delta % self.lanes, axis=1)
        return self.memory[t, w, self.number, (self.lane - delta) & (self.lanes - 1)]

    def column_of_goal_0(self, t: jax.Array, layer: Sequence[jax.Array]) -> jax.Array:
        """Return 1 (uint32) for cells of agent 1 at t with agent 0 at its goal, else 0."""
        if self.backend is Kernels.TPU:
            at_goal = [self.select_cell(self.goals[0], word.astype(jnp.int32), 0) for word in layer]
            row = [jnp.sum(word, axis=1, keepdims=True).astype(jnp.uint32) for word in at_goal]
            return to_uint32(intersects(row, self.own_cell))
        last = self.board.words - 1  # lanes beyond the last cell have no word and may read any
        word = self.memory[t, jnp.minimum(self.lane >> 5, last), self.number, self.goals[0]]
        return (word >> (self.lane & 31).astype(jnp.uint32)) & 1

    def meet_lanes(self) -> None:
        """Synchronise the lanes after writes."""
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
