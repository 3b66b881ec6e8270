"""Staircases, which are joint lower bounds on the arrivals of two agents.

Entry e of a staircase is the least delay of the second agent if the first is delayed by at most e
steps (design_notes/solver.md).
"""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.distance_fields import UNREACHABLE, flood
from jaxlake.solver.chunks import Widths, map_chunks
from jaxlake.solver.kernels import stairs
from jaxlake.solver.kernels.pair_lanes import max_pairs, select_backend
from jaxlake.solver.kernels.stairs import BITS_PER_DELAY, DELAYS_PER_WORD, EXCESSES, MAX_DELAY
from jaxlake.solver.pairs import joint_search
from jaxlake.solver.pairs.joint_search import Geometry, TwoAgentBoards, TwoAgentLanes


class Stair(NamedTuple):
    """Position of a pair on its staircase, given the delays of both agents."""

    gain: jax.Array  # int (B,), steps that both need at least beyond their arrivals
    foot: jax.Array  # int (B,), minimum delay of the first agent for the second to be in time
    top: jax.Array  # int (B,), minimum delay of the second agent if the first is earlier than that


def look_up_stairs(words: list[jax.Array], first: jax.Array, second: jax.Array) -> Stair:
    """Look up delays of two agents, int (..., B), in a staircase of two words, uint32 (..., B).

    The pair cannot arrive with these delays if the foot exceeds the first delay.
    """
    foot = jnp.zeros_like(first)
    top = jnp.zeros_like(first)
    least = jnp.full_like(first, EXCESSES) + second
    for e in range(EXCESSES):
        word, place = divmod(e, DELAYS_PER_WORD)
        delay = ((words[word] >> np.uint32(BITS_PER_DELAY * place)) & np.uint32(MAX_DELAY)).astype(
            first.dtype
        )
        late = delay > second
        foot = jnp.where(late, e + 1, foot).astype(first.dtype)
        top = jnp.where(late, delay, top)
        excess = e + jnp.maximum(delay, second)
        least = jnp.where(first <= e, jnp.minimum(least, excess), least).astype(first.dtype)
    gain = jnp.where(first < EXCESSES, least - first - second, 0).astype(first.dtype)
    return Stair(gain, foot, top)


def look_up_pairs(
    words: Sequence[Sequence[jax.Array]], excesses: Sequence[jax.Array]
) -> list[Stair]:
    """Look up the delays of agents, int (B,) each, pair by pair in words uint32 (B,), 2 by P."""
    return [
        look_up_stairs([words[0][p], words[1][p]], excesses[i], excesses[j])
        for p, (i, j) in enumerate(combinations(range(len(excesses)), 2))
    ]


def look_up_all_pairs(words: jax.Array, excesses: Sequence[jax.Array]) -> Stair:
    """Look up all pairs at once, with words uint32 (2, P, B); return leaves int (P, B)."""
    first, second = (
        jnp.stack([excesses[pair[side]] for pair in combinations(range(len(excesses)), 2)])
        for side in (0, 1)
    )
    return look_up_stairs([words[0], words[1]], first, second)


class _Climb(NamedTuple):
    time: jax.Array  # int32 ()
    layer: jax.Array  # uint32 (W, M, B), L_time
    delays: jax.Array  # int32 (2, EXCESSES, B), of the second agent, by the excess of the first
    running: jax.Array  # bool (B,)


def staircases(
    free: jax.Array,
    starts: jax.Array,
    goals: jax.Array,
    solo_distances: jax.Array,
    active: jax.Array,
    widths: Widths,
) -> jax.Array:
    """Return the staircases of the active pairs, uint32 (2, B), and 0 for other pairs.

    Entry e has four bits, starting with the lowest bits of word 0.

    Args:
        free: bool (F, N, N), cells that can be entered; pair i is on board i % F.
        starts: int8 (B, 2, 2), (row, column) of both agents.
        goals: int8 (B, 2, 2), likewise; each agent can reach its goal alone.
        solo_distances: int16 (2, B), distances.
        active: bool (B,).
        widths: Number of pairs to process at once.
    """
    B = active.shape[0]
    if B == 0:
        return jnp.zeros((2, B), jnp.uint32)
    board = joint_search.geometry(free.shape[-1])
    backend = select_backend(widths.kernels, None, board)
    width = min(B, max_pairs(backend, None, board, widths))
    pairs = joint_search.two_agent_lanes(free, starts, goals, active, board, solo_distances)

    def climb(chunk: TwoAgentLanes, _: None) -> tuple[jax.Array, None]:
        boards, running = chunk.lay_out(free, board), chunk.connected
        if backend is None:
            return _words(_climb(boards, running, board)), None
        return _words(stairs.climb(boards, running, board, backend)), None

    blank = jnp.zeros((2, B), jnp.uint32)
    length = jnp.max(pairs.solo_distances, axis=0)
    words, _ = map_chunks(climb, pairs, pairs.connected, length, blank, width, None)
    # A chunk may be padded with other pairs.
    return jnp.where(pairs.connected, words, blank)


def _climb(boards: TwoAgentBoards, running: jax.Array, board: Geometry) -> jax.Array:
    """Equivalent of the kernel `stairs.climb`; `_words` fills in entries that were skipped."""
    B = boards.free.shape[-1]
    solo_distances = boards.solo_distances
    distances = _distances_around(boards, board)
    layer, allowed = joint_search.first_layer(boards, board)

    def examine(time: jax.Array, layer: jax.Array, state: _Climb) -> _Climb:
        beside = _partner_cells(layer, boards.goals, board)
        # Distances of the agent that is not at its goal.
        distance = jnp.min(jnp.where(beside, distances, UNREACHABLE), axis=1)
        delay = jnp.clip(time + distance - solo_distances[::-1], 0, MAX_DELAY)
        mask = np.arange(EXCESSES)[:, None] == (time - solo_distances)[:, None]
        delays = jnp.where(mask, delay[:, None], state.delays)
        ended = jnp.all(jnp.any(delays == 0, axis=1), axis=0)
        ended |= time >= jnp.max(solo_distances, axis=0) + MAX_DELAY
        return _Climb(time, layer, delays, state.running & ~ended)

    def advance(state: _Climb) -> _Climb:
        wider = joint_search.expand(state.layer, board, waiting=True) & allowed
        return examine(state.time + 1, wider | state.layer, state)

    delays = jnp.full((2, EXCESSES, B), MAX_DELAY)
    initial = examine(jnp.int32(0), layer, _Climb(jnp.int32(0), layer, delays, running))
    return jax.lax.while_loop(lambda state: jnp.any(state.running), advance, initial).delays


def _words(delays: jax.Array) -> jax.Array:
    """Return staircases, uint32 (2, B), of delays int32 (2, EXCESSES, B) by first agent."""
    B = delays.shape[-1]
    first, second = jax.lax.cummin(delays, axis=1)
    # If agent 1 arrives first: its least excess that lets agent 0 arrive in time.
    e = np.arange(EXCESSES)[:, None, None]
    in_time = second[None] <= e
    inverse = jnp.where(jnp.any(in_time, axis=1), jnp.argmax(in_time, axis=1), MAX_DELAY)
    least = jnp.minimum(first, inverse).astype(jnp.uint32)
    shifts = (BITS_PER_DELAY * (np.arange(EXCESSES) % DELAYS_PER_WORD)).astype(np.uint32)
    return jnp.sum(
        (least << shifts[:, None]).reshape(2, DELAYS_PER_WORD, B), axis=1, dtype=jnp.uint32
    )


def _distances_around(boards: TwoAgentBoards, board: Geometry) -> jax.Array:
    """Return distances of agents 1 and 0 to their goals past the other's goal, int32 (2, M, B)."""
    M, B = boards.free.shape
    cell, goals = np.arange(M)[:, None, None], boards.goals
    around, ends = boards.free[:, None] & (cell != goals), cell == goals[::-1]
    rows = (M // board.pitch, board.pitch, 2, B)
    steps = flood(around.reshape(rows), ends.reshape(rows)).reshape(M, 2, B)
    return jnp.swapaxes(steps, 0, 1).astype(jnp.int32)


def _partner_cells(layer: jax.Array, goals: jax.Array, board: Geometry) -> jax.Array:
    """Return the cells of the other agent while an agent stands at its goal, bool (2, M, B)."""
    row, column = joint_search.partner_cells(layer, goals)
    cell = jnp.arange(board.cells)
    return jnp.stack([joint_search.has_cells(row[cell // 32], cell[:, None]), column])
