"""Kernels for distances and prioritised planning, with one board per lane.

A set of cells has R words, one per row of the board. Shapes: B boards, K agents, T time steps.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxlake.solver.bitboard import PITCH, ROW_SHIFT
from jaxlake.solver.chunks import Kernels
from jaxlake.solver.kernels.lanes import (
    EMPTY_WORD,
    CellSet,
    any_lane,
    bit,
    fits,
    intersect,
    intersects,
    launch,
    reduce_or,
    subtract,
    to_int32,
    unite,
)
from jaxlake.solver.space_time import ABSENT, NEVER

_MAX_ROWS = 16
"""Largest number of rows of a board. Each row is a register; more rows take minutes to compile."""


def select_backend(
    backend: Kernels | None, num_rows: int, num_agents: int, horizon: int
) -> Kernels | None:
    """Return the backend, or None if the kernels do not support boards with this many rows."""
    words = (horizon + 1) * (num_rows + num_agents)
    return backend if backend and num_rows <= _MAX_ROWS and fits(backend, words) else None


def compute_solo_distances(
    free: jax.Array, starts: jax.Array, goals: jax.Array, backend: Kernels
) -> jax.Array:
    """Return the result of `space_time.compute_solo_distances`, computed in one launch."""
    kernel = partial(_distances, num_agents=len(starts))
    inputs = [free.astype(jnp.uint32), starts.astype(jnp.int32), goals.astype(jnp.int32)]
    (steps,) = launch(kernel, backend, inputs, [((len(starts),), jnp.int32)], [])
    return steps.astype(jnp.int16)


def plan_in_order(
    free: jax.Array,
    starts: jax.Array,
    goals: jax.Array,
    latest: jax.Array,
    horizon: int,
    backend: Kernels,
    *,
    upwards: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Return the arrivals and paths of `certificates.plan_in_order`, computed in one launch.

    Args:
        free: words (R, B), cells that can be entered.
        starts: int16 (K, B), cells.
        goals: int16 (K, B), cells.
        latest: int16 (K, B), latest arrivals.
        horizon: Number T of steps (static).
        backend: Backend from `select_backend`.
        upwards: Preference of steps, see `space_time.trace_back` (static).

    Returns:
        Arrivals int16 (K, B), and paths int16 (K, T + 1, B).
    """
    K, T = len(starts), horizon
    kernel = partial(_plan, upwards=upwards, num_agents=K, horizon=T)
    cells = [array.astype(jnp.int32) for array in (starts, goals, latest)]
    outputs = [((K,), jnp.int32), ((K, T + 1), jnp.int32)]
    layers = ((T + 1, len(free)), jnp.uint32)
    arrival, paths = launch(kernel, backend, [free.astype(jnp.uint32), *cells], outputs, [layers])
    return arrival.astype(jnp.int16), paths.astype(jnp.int16)


def _row_and_bit(cell: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the row of a cell and its bit in that row, 0 for `ABSENT`."""
    word = bit(jnp.maximum(cell, 0) & (PITCH - 1))
    return cell >> ROW_SHIFT, jnp.where(cell >= 0, word, EMPTY_WORD)


def _cell_rows(cell: jax.Array, num_rows: int) -> CellSet:
    row, word = _row_and_bit(cell)
    return [jnp.where(row == r, word, EMPTY_WORD) for r in range(num_rows)]


def _expand_rows(
    rows: CellSet, horizontal: CellSet | None = None, vertical: CellSet | None = None
) -> CellSet:
    """Return the cells after a wait or a step, holes included. Edges in the sets are blocked."""
    no_cells = rows[0] ^ rows[0]
    right = rows if horizontal is None else subtract(rows, horizontal)
    left = [x >> 1 for x in rows]
    down, up = rows, [*rows[1:], no_cells]
    if horizontal is not None and vertical is not None:
        left = subtract(left, horizontal)
        down = subtract(down, vertical)
        up = subtract(up, vertical)
    down = [no_cells, *down[:-1]]
    return unite(rows, [x << 1 for x in right], left, down, up)


def _distances(free: Any, starts: Any, goals: Any, steps: Any, *, num_agents: int) -> None:
    R = free.shape[0]
    free_rows = [free[r] for r in range(R)]

    def measure(k: jax.Array, _: None) -> None:
        start, goal = starts[k], _cell_rows(goals[k], R)

        def advance(state: Any) -> Any:
            t, rows, distance, _ = state
            distance = jnp.where(intersects(rows, goal), jnp.minimum(distance, t), distance)
            next_rows = [
                x | (y & z) for x, y, z in zip(rows, _expand_rows(rows), free_rows, strict=True)
            ]
            has_grown = reduce_or([x ^ y for x, y in zip(rows, next_rows, strict=True)]) != 0
            return t + 1, tuple(next_rows), distance, any_lane(has_grown & (distance == NEVER))

        distance = jnp.where(start == ABSENT, jnp.int32(0), jnp.int32(NEVER))
        initial_state = (jnp.int32(0), tuple(_cell_rows(start, R)), distance, jnp.bool_(True))
        steps[k] = jax.lax.while_loop(lambda state: state[3], advance, initial_state)[2]

    jax.lax.fori_loop(0, num_agents, measure, None)


def _plan(*refs: Any, upwards: bool, num_agents: int, horizon: int) -> None:
    """Plan the agents in order, each around the paths of the previous ones."""
    free, starts, goals, latest, arrivals, paths, layers = refs
    R, K, T = free.shape[0], num_agents, horizon
    free_rows = [free[r] for r in range(R)]
    off_board = jnp.zeros_like(starts[0]) + ABSENT

    def clear(t: jax.Array, _: None) -> None:
        for k in range(K):
            paths[k, t] = off_board

    jax.lax.fori_loop(0, T + 1, clear, None)

    def find_occupied_cells(t: jax.Array) -> CellSet:
        """Return the cells that the planned agents occupy at t."""
        return unite(*[_cell_rows(paths[k, t], R) for k in range(K)])

    def find_used_edges(t: jax.Array) -> tuple[CellSet, CellSet]:
        """Return the horizontal and vertical edges that the planned agents use from t to t + 1."""
        edges = []
        for k in range(K):
            (row, word), (next_row, next_word) = (
                _row_and_bit(paths[k, t]),
                _row_and_bit(paths[k, t + 1]),
            )
            left = jnp.where(next_word == word << 1, word, next_word)
            horizontal = jnp.where(word != next_word, left, EMPTY_WORD)
            vertical = jnp.where(row != next_row, word, EMPTY_WORD)
            horizontal = jnp.where(row == next_row, horizontal, EMPTY_WORD)
            edges.append((jnp.minimum(row, next_row), horizontal, vertical))
        return (
            [reduce_or([jnp.where(e[0] == r, e[1], EMPTY_WORD) for e in edges]) for r in range(R)],
            [reduce_or([jnp.where(e[0] == r, e[2], EMPTY_WORD) for e in edges]) for r in range(R)],
        )

    def remove_blocked(rows: CellSet, occupied: CellSet) -> CellSet:
        return intersect(subtract(rows, occupied), free_rows)

    def plan_agent(rank: jax.Array, has_failed: jax.Array) -> jax.Array:
        start, goal = starts[rank], goals[rank]
        is_absent = goal == ABSENT
        latest_arrival = jnp.where((has_failed != 0) | is_absent, jnp.int32(-1), latest[rank])
        goal_rows = _cell_rows(goal, R)

        def delay_arrival(t: jax.Array, earliest: jax.Array) -> jax.Array:
            is_occupied = reduce_or([to_int32(paths[k, t] == goal) for k in range(K)])
            return jnp.where(is_occupied != 0, t + 1, earliest)

        # The agent can only stay at its goal after all other agents have left it for good.
        earliest = jax.lax.fori_loop(0, T + 1, delay_arrival, jnp.zeros_like(start))

        def update_arrival(t: jax.Array, rows: CellSet, arrival: jax.Array) -> jax.Array:
            at_goal = intersects(rows, goal_rows) & (t >= earliest) & (t <= latest_arrival)
            return jnp.where(at_goal, jnp.minimum(arrival, t), arrival)

        def advance(state: Any) -> Any:
            t, rows, arrival = state
            for r in range(R):
                layers[t, r] = rows[r]
            next_rows = _expand_rows(list(rows), *find_used_edges(t))
            rows = remove_blocked(next_rows, find_occupied_cells(t + 1))
            return t + 1, tuple(rows), update_arrival(t + 1, rows, arrival)

        def is_unfinished(state: Any) -> jax.Array:
            return any_lane((state[0] < latest_arrival) & (state[2] == NEVER))

        occupied = find_occupied_cells(jnp.int32(0))
        rows = remove_blocked(_cell_rows(start, R), occupied)
        arrival = update_arrival(jnp.int32(0), rows, jnp.zeros_like(start) + NEVER)
        state = (jnp.int32(0), tuple(rows), arrival)
        arrival = jax.lax.while_loop(is_unfinished, advance, state)[2]
        _trace_path(rank, goal, arrival, paths, layers, num_rows=R, upwards=upwards)
        has_failed = jnp.where(~is_absent & (arrival == NEVER), jnp.int32(1), has_failed)
        arrivals[rank] = jnp.where(is_absent, jnp.int32(0), arrival)
        return has_failed

    has_failed = jax.lax.fori_loop(0, K, plan_agent, jnp.zeros_like(starts[0]))
    for k in range(K):
        arrivals[k] = jnp.where(has_failed != 0, jnp.int32(NEVER), arrivals[k])


def _trace_path(
    rank: jax.Array,
    goal: jax.Array,
    arrival: jax.Array,
    paths: Any,
    layers: Any,
    *,
    num_rows: int,
    upwards: bool,
) -> None:
    """Write the path back from the goal, with the preferences of `space_time.trace_back`."""
    K, times = paths.shape[:2]
    end_time = jnp.where(arrival == NEVER, jnp.int32(0), arrival)
    last_time = jnp.max(end_time)
    final_cell = jnp.where(goal == ABSENT, jnp.int32(ABSENT), goal)

    def stay(t: jax.Array, _: None) -> None:
        paths[rank, t] = final_cell

    jax.lax.fori_loop(last_time, times, stay, None)

    def step_back(i: jax.Array, cell: jax.Array) -> jax.Array:
        t = last_time - 1 - i
        row, word = _row_and_bit(cell)
        layer = [layers[t, r] for r in range(num_rows)]

        def is_in_layer(row: jax.Array, word_bit: jax.Array) -> jax.Array:
            row_word = reduce_or(
                [jnp.where(row == r, layer[r], EMPTY_WORD) for r in range(num_rows)]
            )
            return (row_word & word_bit) != 0

        def is_swap(origin: jax.Array) -> jax.Array:
            swaps = [(paths[k, t] == cell) & (paths[k, t + 1] == origin) for k in range(K)]
            return reduce_or([to_int32(swap) for swap in swaps]) != 0

        above = (is_in_layer(row - 1, word), cell - PITCH)
        below = (is_in_layer(row + 1, word), cell + PITCH)
        sides = [(is_in_layer(row, word >> 1), cell - 1), (is_in_layer(row, word << 1), cell + 1)]
        origins = [below, *sides, above] if upwards else [above, *sides, below]
        predecessor = cell
        for is_reachable, origin in reversed(origins):
            predecessor = jnp.where(is_reachable & ~is_swap(origin), origin, predecessor)
        cell = jnp.where(t < end_time, predecessor, cell)
        paths[rank, t] = cell
        return cell

    jax.lax.fori_loop(0, last_time, step_back, final_cell)
