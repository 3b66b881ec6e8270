"""Staircases: joint lower bounds on the arrival times of two agents.

The delay of an agent is the number of steps by which it arrives later than alone. Entry e of a
staircase is the least delay of the second agent if the delay of the first is at most e
(design_notes/solver.md).
Shapes: B lanes, P pairs of agents, E = STAIRCASE_LENGTH, M and W as in `joint_search`.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.distance_fields import UNREACHABLE, flood
from jaxlake.solver.chunks import Limits, map_chunks
from jaxlake.solver.kernels.pair_lanes import max_pairs, select_backend
from jaxlake.solver.kernels.staircases import (
    BITS_PER_DELAY,
    DELAYS_PER_WORD,
    MAX_DELAY,
    STAIRCASE_LENGTH,
    search_delays_in_kernel,
)
from jaxlake.solver.pairs import joint_search
from jaxlake.solver.pairs.joint_search import Geometry, TwoAgentBoards, TwoAgentLanes


class Stair(NamedTuple):
    """Bounds that a staircase implies for given delays of both agents."""

    gain: jax.Array  # int (B,), least sum by which the pair must exceed the given delays
    foot: jax.Array  # int (B,), least delay of the first agent that permits the second delay
    top: jax.Array  # int (B,), least delay of the second agent if the first delay is below `foot`


def look_up_stair(words: Sequence[jax.Array], first: jax.Array, second: jax.Array) -> Stair:
    """Look up the delays of two agents in a staircase. They are infeasible if foot > first.

    Args:
        words: The two words of the staircase, uint32 (..., B).
        first: int (..., B), delay of the first agent.
        second: int (..., B), delay of the second agent.
    """
    foot = jnp.zeros_like(first)
    top = jnp.zeros_like(first)
    min_sum = jnp.full_like(first, STAIRCASE_LENGTH) + second
    for e in range(STAIRCASE_LENGTH):
        w, i = divmod(e, DELAYS_PER_WORD)
        delay = (words[w] >> np.uint32(BITS_PER_DELAY * i)) & np.uint32(MAX_DELAY)
        delay = delay.astype(first.dtype)
        is_late = delay > second
        foot = jnp.where(is_late, e + 1, foot).astype(first.dtype)
        top = jnp.where(is_late, delay, top)
        delay_sum = e + jnp.maximum(delay, second)
        min_sum = jnp.where(first <= e, jnp.minimum(min_sum, delay_sum), min_sum)
        min_sum = min_sum.astype(first.dtype)
    gain = jnp.where(first < STAIRCASE_LENGTH, min_sum - first - second, 0).astype(first.dtype)
    return Stair(gain, foot, top)


def look_up_pairs(words: Sequence[Sequence[jax.Array]], delays: Sequence[jax.Array]) -> list[Stair]:
    """Look up the delays of K agents, int (B,), for each pair in its words, uint32 (B,)."""
    return [
        look_up_stair([words[0][p], words[1][p]], delays[i], delays[j])
        for p, (i, j) in enumerate(combinations(range(len(delays)), 2))
    ]


def look_up_all_pairs(words: jax.Array, delays: Sequence[jax.Array]) -> Stair:
    """Look up all pairs at once, with words uint32 (2, P, B). Return leaves int (P, B)."""
    first, second = (
        jnp.stack([delays[pair[side]] for pair in combinations(range(len(delays)), 2)])
        for side in (0, 1)
    )
    return look_up_stair([words[0], words[1]], first, second)


class _StairSearch(NamedTuple):
    time: jax.Array  # int32 ()
    layer: jax.Array  # uint32 (W, M, B), L_time
    delays: jax.Array  # int32 (2, E, B), of the second agent, by the delay of the first
    running: jax.Array  # bool (B,)


def staircases(
    free: jax.Array,
    starts: jax.Array,
    goals: jax.Array,
    solo_distances: jax.Array,
    active: jax.Array,
    limits: Limits,
) -> jax.Array:
    """Return the staircases of the active pairs.

    Args:
        free: bool (F, N, N), cells that can be entered; pair i is on board i % F.
        starts: int8 (B, 2, 2), (row, column) of both agents.
        goals: int8 (B, 2, 2), likewise; each agent can reach its goal alone.
        solo_distances: int16 (2, B), distance of each agent alone.
        active: bool (B,), pairs to search.
        limits: Number of pairs to process at once.

    Returns:
        uint32 (2, B), with four bits per entry, from the lowest bits of word 0 on; 0 for inactive
        pairs.
    """
    B = active.shape[0]
    if B == 0:
        return jnp.zeros((2, B), jnp.uint32)
    board = joint_search.geometry(free.shape[-1])
    backend = select_backend(limits.kernels, None, board)
    width = min(B, max_pairs(backend, None, board, limits))
    pairs = joint_search.two_agent_lanes(free, starts, goals, active, board, solo_distances)

    def search(chunk: TwoAgentLanes, _: None) -> tuple[jax.Array, None]:
        boards, running = chunk.lay_out(free, board), chunk.connected
        if backend is None:
            return _pack_delays(_search_delays(boards, running, board)), None
        return _pack_delays(search_delays_in_kernel(boards, running, board, backend)), None

    defaults = jnp.zeros((2, B), jnp.uint32)
    length = jnp.max(pairs.solo_distances, axis=0)
    words, _ = map_chunks(search, pairs, pairs.connected, length, defaults, width, None)
    # A chunk may be padded with other pairs.
    return jnp.where(pairs.connected, words, defaults)


def _search_delays(boards: TwoAgentBoards, running: jax.Array, board: Geometry) -> jax.Array:
    """Return the delays of `search_delays_in_kernel`, before their cumulative minimum."""
    B = boards.free.shape[-1]
    solo_distances = boards.solo_distances
    distances = _distances_past_goals(boards, board)
    layer, allowed_cells = joint_search.first_layer(boards, board)

    def examine(time: jax.Array, layer: jax.Array, state: _StairSearch) -> _StairSearch:
        partner_cells = _partner_cells(layer, boards.goals, board)
        distance = jnp.min(jnp.where(partner_cells, distances, UNREACHABLE), axis=1)
        delay = jnp.clip(time + distance - solo_distances[::-1], 0, MAX_DELAY)
        mask = np.arange(STAIRCASE_LENGTH)[:, None] == (time - solo_distances)[:, None]
        delays = jnp.where(mask, delay[:, None], state.delays)
        is_finished = jnp.all(jnp.any(delays == 0, axis=1), axis=0)
        is_finished |= time >= jnp.max(solo_distances, axis=0) + MAX_DELAY
        return _StairSearch(time, layer, delays, state.running & ~is_finished)

    def advance(state: _StairSearch) -> _StairSearch:
        next_layer = joint_search.expand(state.layer, board, may_wait=True) & allowed_cells
        return examine(state.time + 1, next_layer | state.layer, state)

    delays = jnp.full((2, STAIRCASE_LENGTH, B), MAX_DELAY)
    initial_state = examine(jnp.int32(0), layer, _StairSearch(jnp.int32(0), layer, delays, running))
    return jax.lax.while_loop(lambda state: jnp.any(state.running), advance, initial_state).delays


def _pack_delays(delays: jax.Array) -> jax.Array:
    """Return staircases, uint32 (2, B), from delays, int32 (2, E, B), by first agent."""
    B = delays.shape[-1]
    if_0_first, if_1_first = jax.lax.cummin(delays, axis=1)
    # If agent 1 arrives first, its least delay for which agent 0 is delayed by at most e.
    e = np.arange(STAIRCASE_LENGTH)[:, None, None]
    is_allowed = if_1_first[None] <= e
    inverse = jnp.where(jnp.any(is_allowed, axis=1), jnp.argmax(is_allowed, axis=1), MAX_DELAY)
    entries = jnp.minimum(if_0_first, inverse).astype(jnp.uint32)
    shifts = (BITS_PER_DELAY * (np.arange(STAIRCASE_LENGTH) % DELAYS_PER_WORD)).astype(np.uint32)
    return jnp.sum(
        (entries << shifts[:, None]).reshape(2, DELAYS_PER_WORD, B), axis=1, dtype=jnp.uint32
    )


def _distances_past_goals(boards: TwoAgentBoards, board: Geometry) -> jax.Array:
    """Return distances of agents 1 and 0 to their goals past the other's goal, int32 (2, M, B)."""
    M, B = boards.free.shape
    cell, goals = np.arange(M)[:, None, None], boards.goals
    free, at_goal = boards.free[:, None] & (cell != goals), cell == goals[::-1]
    shape = (M // board.pitch, board.pitch, 2, B)
    steps = flood(free.reshape(shape), at_goal.reshape(shape)).reshape(M, 2, B)
    return jnp.swapaxes(steps, 0, 1).astype(jnp.int32)


def _partner_cells(layer: jax.Array, goals: jax.Array, board: Geometry) -> jax.Array:
    """Return the cells of agents 1 and 0 while the other is at its goal, bool (2, M, B)."""
    cells_1, cells_0 = joint_search.partner_cells(layer, goals)
    cell = jnp.arange(board.cells)
    return jnp.stack([joint_search.has_cells(cells_1[cell // 32], cell[:, None]), cells_0])
