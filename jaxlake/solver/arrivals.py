"""What two agents prove about their arrivals together, for searches with more agents.

In a corridor either the one agent waits for the other or the other for the one, and no delay that
the two share is of any use. So the least sum of costs of a pair says too little. What can be said
of both arrivals is a staircase: if agent 0 arrives at most `e` steps later than it would alone,
agent 1 arrives at least `g(e)` steps later than it would alone, and `g` never rises.

Let L_t be the set of joint cells that two agents can occupy after t steps (`joint_search`). If
agent 0 is the first to arrive for good, at time t, agent 1 stands on some cell beside it in L_t and
walks on alone around it. So its arrival is at least t plus the least of the distances of these
cells, and the other way round if agent 1 is the first.

With such a staircase the constraint tree splits a pair that can't arrive as early as its paths do:
either agent 0 arrives at the foot of the stair or later, or agent 1 at its top or later. That is
what corridor reasoning (Li et al. 2021) does for one kind of place; here it is exact for any two
agents, whatever is in their way.
"""

from collections.abc import Sequence
from functools import reduce
from itertools import combinations
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver import joint_search
from jaxlake.solver.chunks import Widths, in_chunks
from jaxlake.solver.joint_search import FAR, Geometry, TwoAgentBoards

EXCESSES = 16
"""Arrivals that a staircase has, from the earliest on. A delay is at most 15 in it, or more."""

_BITS = 4
_MOST = EXCESSES - 1
_PER_WORD = 32 // _BITS


class Stair(NamedTuple):
    """Where a pair stands on its staircase."""

    gain: jax.Array  # int16 (B,), what both need beyond their arrivals, at least
    foot: jax.Array  # int16 (B,), the least excess of the one that leaves the other its arrival
    top: jax.Array  # int16 (B,), the least excess of the other if the one arrives before that


def look_up(words: list[jax.Array], one: jax.Array, other: jax.Array) -> Stair:
    """Look up two excesses, int16 (B,), in a staircase of words uint32 (B,).

    Where the pair can arrive like that as far as the staircase says, the foot is not above `one`.
    """
    foot = jnp.zeros_like(one)
    top = jnp.zeros_like(one)
    least = jnp.full_like(one, EXCESSES) + other
    for e in range(EXCESSES):
        word, place = divmod(e, _PER_WORD)
        delay = ((words[word] >> np.uint32(_BITS * place)) & np.uint32(_MOST)).astype(one.dtype)
        late = delay > other
        foot = jnp.where(late, e + 1, foot).astype(one.dtype)
        top = jnp.where(late, delay, top)
        both = e + jnp.maximum(delay, other)
        least = jnp.where(one <= e, jnp.minimum(least, both), least).astype(one.dtype)
    gain = jnp.where(one < EXCESSES, least - one - other, 0).astype(one.dtype)
    return Stair(gain, foot, top)


def look_up_pairs(
    words: jax.Array | Sequence[Sequence[jax.Array]], excesses: Sequence[jax.Array]
) -> list[Stair]:
    """Look up the excesses, int16 (B,) each, of all pairs of agents in words uint32 (2, P, B)."""
    return [
        look_up([words[0][p], words[1][p]], excesses[i], excesses[j])
        for p, (i, j) in enumerate(combinations(range(len(excesses)), 2))
    ]


class _Climb(NamedTuple):
    time: jax.Array  # int32 ()
    layer: jax.Array  # uint32 (W, M, B), L_time
    delays: jax.Array  # int32 (2, EXCESSES, B), of the other agent, by the excess of the first
    running: jax.Array  # bool (B,)


def staircases(
    free: jax.Array,
    starts: jax.Array,
    goals: jax.Array,
    wanted: jax.Array,
    widths: Widths,
    alone: jax.Array | None = None,
) -> jax.Array:
    """Compute the staircases of the wanted pairs, uint32 (2, B); 0 says nothing.

    Cells that can be entered are `free`, bool (B, N, N); starts and goals int8 (B, 2, 2), (row,
    column) of both agents, that can both reach their goals. The distances `alone`, int16 (2, B),
    are computed unless they are known. Entry e has four bits, from the lowest ones of word 0 on.
    """
    B = wanted.shape[0]
    if B == 0:
        return jnp.zeros((2, B), jnp.uint32)
    board = joint_search.geometry(free.shape[-1])
    width = min(B, joint_search.lanes_at_once(board, widths))
    pairs = joint_search.two_agent_boards(free, starts, goals, wanted, board, widths, alone)

    def climb(chunk: TwoAgentBoards, _: None) -> tuple[jax.Array, None]:
        return _climb(chunk, board), None

    blank = jnp.zeros((2, B), jnp.uint32)
    length = jnp.max(pairs.alone, axis=0)
    stairs, _ = in_chunks(climb, pairs, pairs.connected, length, blank, width, None)
    # A chunk may have been filled up with other pairs.
    return jnp.where(pairs.connected, stairs, blank)


def _climb(boards: TwoAgentBoards, board: Geometry) -> jax.Array:
    B = boards.free.shape[-1]
    alone = boards.alone
    left = _distances_around(boards, board)
    layer, allowed = joint_search.first_layer(boards, board)

    def examine(time: jax.Array, layer: jax.Array, state: _Climb) -> _Climb:
        beside = _beside(layer, boards.goals, board)
        distance = jnp.min(jnp.where(beside, left, FAR), axis=1)  # of the agent that is not there
        delay = jnp.clip(time + distance - alone[::-1], 0, _MOST)
        here = np.arange(EXCESSES)[:, None] == (time - alone)[:, None]
        delays = jnp.where(here, delay[:, None], state.delays)
        ended = jnp.all(jnp.any(delays == 0, axis=1), axis=0)
        ended |= time >= jnp.max(alone, axis=0) + _MOST
        return _Climb(time, layer, delays, state.running & ~ended)

    def advance(state: _Climb) -> _Climb:
        wider = joint_search.expand(state.layer, board, waiting=True) & allowed
        return examine(state.time + 1, wider | state.layer, state)

    delays = jnp.full((2, EXCESSES, B), _MOST)
    begun = examine(jnp.int32(0), layer, _Climb(jnp.int32(0), layer, delays, boards.connected))
    ended = jax.lax.while_loop(lambda state: jnp.any(state.running), advance, begun)
    first, second = jax.lax.cummin(ended.delays, axis=1)
    # If agent 1 is the first to arrive: the least excess of it that lets agent 0 arrive in time.
    e = np.arange(EXCESSES)[:, None, None]
    in_time = second[None] <= e
    other = jnp.where(jnp.any(in_time, axis=1), jnp.argmax(in_time, axis=1), _MOST)
    stairs = jnp.minimum(first, other).astype(jnp.uint32)
    shifts = (_BITS * (np.arange(EXCESSES) % _PER_WORD)).astype(np.uint32)
    return jnp.sum((stairs << shifts[:, None]).reshape(2, _PER_WORD, B), axis=1, dtype=jnp.uint32)


def _distances_around(boards: TwoAgentBoards, board: Geometry) -> jax.Array:
    """Count the steps to its goal of an agent in any cell, with the other agent at its own.

    Gives int32 (2, M, B): of agent 1 around agent 0 at its goal, and of agent 0 around agent 1.
    """
    M = board.cells
    cell = np.arange(M)[:, None]
    open_cells = jnp.stack([boards.free & (cell != goal) for goal in boards.goals])
    at_goal = jnp.stack([boards.free & (cell == goal) for goal in boards.goals[::-1]])

    Spreading = tuple[jax.Array, jax.Array, jax.Array]

    def spread(state: Spreading) -> Spreading:
        steps, distance, _ = state
        reached = distance < FAR
        ends = jnp.pad(reached, [(0, 0), (board.pitch, board.pitch), (0, 0)])
        moved = [ends[:, board.pitch - d : board.pitch - d + M] for d in board.deltas]
        new = reduce(jnp.logical_or, moved) & open_cells & ~reached
        return steps + 1, jnp.where(new, steps + 1, distance), jnp.any(new)

    begun = (jnp.int32(0), jnp.where(at_goal, 0, FAR), jnp.bool_(True))
    return jax.lax.while_loop(lambda state: state[2], spread, begun)[1]


def _beside(layer: jax.Array, goals: jax.Array, board: Geometry) -> jax.Array:
    """Return where the other agent can be while an agent stands at its goal, bool (2, M, B)."""
    M = board.cells
    row = jnp.take_along_axis(layer, goals[0][None, None], axis=1)[:, 0]
    cell = np.arange(M)
    of_one = (row[cell // 32] >> (cell % 32).astype(np.uint32)[:, None]) & 1 != 0
    column = reduce(
        jnp.bitwise_or,
        (jnp.where(goals[1] // 32 == w, layer[w], jnp.uint32(0)) for w in range(board.words)),
    )
    return jnp.stack([of_one, joint_search.has_cells(column, goals[1])])
