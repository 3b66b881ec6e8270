"""Distances and prioritised planning with one board per lane and one register per row."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxlake.solver.bitboard import PITCH, ROW_SHIFT
from jaxlake.solver.chunks import Kernels
from jaxlake.solver.kernels.lanes import (
    EMPTY_WORD,
    Words,
    any_lane,
    bit,
    fits,
    intersects,
    launch,
    to_int32,
    union,
)
from jaxlake.solver.space_time import ABSENT, NEVER

_MAX_ROWS = 16
"""Largest number of rows of a board: each is a register, and more take minutes to compile."""


def select_backend(backend: Kernels | None, rows: int, agents: int, horizon: int) -> Kernels | None:
    """Return the planning kernel for boards with this many rows, or None if unsupported."""
    words = (horizon + 1) * (rows + agents)
    return backend if backend and rows <= _MAX_ROWS and fits(backend, words) else None


def distances(free: jax.Array, starts: jax.Array, goals: jax.Array, backend: Kernels) -> jax.Array:
    """Return the result of `space_time.distances_alone`, computed in one launch."""
    kernel = partial(_distances, agents=len(starts))
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
    """Return the arrivals (K, B) and paths (K, T + 1, B) of `certificates.plan_in_order`.

    Boards are words (R, B); the other arrays and the results are int16.
    """
    K, T = len(starts), horizon
    kernel = partial(_plan, upwards=upwards, agents=K, horizon=T)
    cells = [array.astype(jnp.int32) for array in (starts, goals, latest)]
    outputs = [((K,), jnp.int32), ((K, T + 1), jnp.int32)]
    layers = ((T + 1, len(free)), jnp.uint32)
    arrival, paths = launch(kernel, backend, [free.astype(jnp.uint32), *cells], outputs, [layers])
    return arrival.astype(jnp.int16), paths.astype(jnp.int16)


def _row_and_bit(cell: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the row of a cell and its bit in that row; no bit for an absent cell."""
    word = bit(jnp.maximum(cell, 0) & (PITCH - 1))
    return cell >> ROW_SHIFT, jnp.where(cell >= 0, word, EMPTY_WORD)


def _cell_rows(cell: jax.Array, rows: int) -> Words:
    row, word = _row_and_bit(cell)
    return [jnp.where(row == r, word, EMPTY_WORD) for r in range(rows)]


def _spread(rows: Words, across: Words | None = None, along: Words | None = None) -> Words:
    """Return the cells after a step over open edges or a wait, holes included."""
    empty = rows[0] ^ rows[0]
    beside = rows if across is None else [x & ~shut for x, shut in zip(rows, across, strict=True)]
    west = [x >> 1 for x in rows]
    below, above = rows, [*rows[1:], empty]
    if across is not None and along is not None:
        west = [x & ~shut for x, shut in zip(west, across, strict=True)]
        below = [x & ~shut for x, shut in zip(below, along, strict=True)]
        above = [x & ~shut for x, shut in zip(above, along, strict=True)]
    below = [empty, *below[:-1]]
    steps = zip(rows, beside, west, below, above, strict=True)
    return [x | (east << 1) | w | b | a for x, east, w, b, a in steps]


def _distances(free: Any, starts: Any, goals: Any, steps: Any, *, agents: int) -> None:
    R = free.shape[0]
    open_cells = [free[r] for r in range(R)]

    def measure(k: jax.Array, _: None) -> None:
        start, goal = starts[k], _cell_rows(goals[k], R)

        def spread(state: Any) -> Any:
            t, rows, distance, _ = state
            distance = jnp.where(intersects(rows, goal), jnp.minimum(distance, t), distance)
            wider = [x | (y & z) for x, y, z in zip(rows, _spread(rows), open_cells, strict=True)]
            grown = union([x ^ y for x, y in zip(rows, wider, strict=True)]) != 0
            return t + 1, tuple(wider), distance, any_lane(grown & (distance == NEVER))

        distance = jnp.where(start == ABSENT, jnp.int32(0), jnp.int32(NEVER))
        initial = (jnp.int32(0), tuple(_cell_rows(start, R)), distance, jnp.bool_(True))
        steps[k] = jax.lax.while_loop(lambda state: state[3], spread, initial)[2]

    jax.lax.fori_loop(0, agents, measure, None)


def _plan(*refs: Any, upwards: bool, agents: int, horizon: int) -> None:
    """Plan agent after agent, each around the paths of the previous ones."""
    free, starts, goals, latest, arrivals, paths, layers = refs
    R, K, T = free.shape[0], agents, horizon
    open_cells = [free[r] for r in range(R)]
    off_board = jnp.zeros_like(starts[0]) + ABSENT

    def clear(t: jax.Array, _: None) -> None:
        for k in range(K):
            paths[k, t] = off_board

    jax.lax.fori_loop(0, T + 1, clear, None)

    def occupied(t: jax.Array) -> Words:
        """Return the cells that other agents occupy at t."""
        places = [_cell_rows(paths[k, t], R) for k in range(K)]
        return [union([place[r] for place in places]) for r in range(R)]

    def edges(t: jax.Array) -> tuple[Words, Words]:
        """Return the edges that other agents use from t to t + 1, in rows and in columns."""
        used = []
        for k in range(K):
            (row, word), (next_row, next_word) = (
                _row_and_bit(paths[k, t]),
                _row_and_bit(paths[k, t + 1]),
            )
            left = jnp.where(next_word == word << 1, word, next_word)
            across = jnp.where(word != next_word, left, EMPTY_WORD)
            along = jnp.where(row != next_row, word, EMPTY_WORD)
            across = jnp.where(row == next_row, across, EMPTY_WORD)
            used.append((jnp.minimum(row, next_row), across, along))
        return (
            [union([jnp.where(u[0] == r, u[1], EMPTY_WORD) for u in used]) for r in range(R)],
            [union([jnp.where(u[0] == r, u[2], EMPTY_WORD) for u in used]) for r in range(R)],
        )

    def plan_agent(rank: jax.Array, failed: jax.Array) -> jax.Array:
        start, goal = starts[rank], goals[rank]
        absent = goal == ABSENT
        last = jnp.where((failed != 0) | absent, jnp.int32(-1), latest[rank])
        home = _cell_rows(goal, R)

        def disturb(t: jax.Array, first: jax.Array) -> jax.Array:
            at_goal = union([to_int32(paths[k, t] == goal) for k in range(K)])
            return jnp.where(at_goal != 0, t + 1, first)

        # The agent can only stay after the last time at which another agent was at its goal.
        first = jax.lax.fori_loop(0, T + 1, disturb, jnp.zeros_like(start))

        def arrive(now: jax.Array, rows: Words, arrival: jax.Array) -> jax.Array:
            at_goal = intersects(rows, home) & (now >= first) & (now <= last)
            return jnp.where(at_goal, jnp.minimum(arrival, now), arrival)

        def advance(state: Any) -> Any:
            t, rows, arrival = state
            for r in range(R):
                layers[t, r] = rows[r]
            wider, shut = _spread(list(rows), *edges(t)), occupied(t + 1)
            rows = [x & ~y & z for x, y, z in zip(wider, shut, open_cells, strict=True)]
            return t + 1, tuple(rows), arrive(t + 1, rows, arrival)

        def unfinished(state: Any) -> jax.Array:
            return any_lane((state[0] < last) & (state[2] == NEVER))

        shut = occupied(jnp.int32(0))
        begin = [x & ~y & z for x, y, z in zip(_cell_rows(start, R), shut, open_cells, strict=True)]
        arrival = arrive(jnp.int32(0), begin, jnp.zeros_like(start) + NEVER)
        state = (jnp.int32(0), tuple(begin), arrival)
        arrival = jax.lax.while_loop(unfinished, advance, state)[2]
        _trace(rank, goal, arrival, paths, layers, rows=R, upwards=upwards)
        failed = jnp.where(~absent & (arrival == NEVER), jnp.int32(1), failed)
        arrivals[rank] = jnp.where(absent, jnp.int32(0), arrival)
        return failed

    failed = jax.lax.fori_loop(0, K, plan_agent, jnp.zeros_like(starts[0]))
    for k in range(K):
        arrivals[k] = jnp.where(failed != 0, jnp.int32(NEVER), arrivals[k])


def _trace(
    rank: jax.Array,
    goal: jax.Array,
    arrival: jax.Array,
    paths: Any,
    layers: Any,
    *,
    rows: int,
    upwards: bool,
) -> None:
    """Write the path back from the goal, with the preferences of `space_time.trace_back`."""
    K, times = paths.shape[:2]
    end = jnp.where(arrival == NEVER, jnp.int32(0), arrival)
    last = jnp.max(end)
    final_cell = jnp.where(goal == ABSENT, jnp.int32(ABSENT), goal)

    def stay(t: jax.Array, _: None) -> None:
        paths[rank, t] = final_cell

    jax.lax.fori_loop(last, times, stay, None)

    def step_back(i: jax.Array, cell: jax.Array) -> jax.Array:
        t = last - 1 - i
        row, word = _row_and_bit(cell)
        layer = [layers[t, r] for r in range(rows)]

        def in_layer(at: jax.Array, where: jax.Array) -> jax.Array:
            row_word = union([jnp.where(at == r, layer[r], EMPTY_WORD) for r in range(rows)])
            return (row_word & where) != 0

        def swaps(origin: jax.Array) -> jax.Array:
            met: Callable[[int], jax.Array] = lambda k: to_int32(  # noqa: E731
                (paths[k, t] == cell) & (paths[k, t + 1] == origin)
            )
            return union([met(k) for k in range(K)]) != 0

        above = (in_layer(row - 1, word), cell - PITCH)
        below = (in_layer(row + 1, word), cell + PITCH)
        beside = [(in_layer(row, word >> 1), cell - 1), (in_layer(row, word << 1), cell + 1)]
        order = [below, *beside, above] if upwards else [above, *beside, below]
        predecessor = cell
        for is_reachable, origin in reversed(order):
            predecessor = jnp.where(is_reachable & ~swaps(origin), origin, predecessor)
        cell = jnp.where(t < end, predecessor, cell)
        paths[rank, t] = cell
        return cell

    jax.lax.fori_loop(0, last, step_back, final_cell)
