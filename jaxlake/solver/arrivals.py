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
from itertools import combinations
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.distance_fields import UNREACHABLE, flood
from jaxlake.solver import joint_search
from jaxlake.solver.chunks import Widths, in_chunks
from jaxlake.solver.joint_search import Geometry, TwoAgentBoards, TwoAgentLanes
from jaxlake.solver.kernels import stairs

EXCESSES = 16
"""Delays of the one agent that a staircase knows: 0 to 15. 15 for the other agent is 15 or more."""

_BITS = 4
_MOST = EXCESSES - 1
_PER_WORD = 32 // _BITS


class Stair(NamedTuple):
    """Where a pair stands on its staircase, given how late both arrive."""

    gain: jax.Array  # int (B,), steps that both need at least beyond their arrivals
    foot: jax.Array  # int (B,), how late the one must be at least for the other to be in time
    top: jax.Array  # int (B,), how late the other must be at least if the one comes before that


def look_up(words: list[jax.Array], one: jax.Array, other: jax.Array) -> Stair:
    """Look up how late two agents are, int (..., B), in a staircase of two words, uint32 (..., B).

    Lateness counts from the arrival alone. Where the foot is above `one`, they can't arrive so
    early; elsewhere the staircase says nothing against it.
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
    words: Sequence[Sequence[jax.Array]], excesses: Sequence[jax.Array]
) -> list[Stair]:
    """Look up how late agents are, int (B,) each, pair by pair in words uint32 (B,), 2 by P."""
    return [
        look_up([words[0][p], words[1][p]], excesses[i], excesses[j])
        for p, (i, j) in enumerate(combinations(range(len(excesses)), 2))
    ]


def look_up_all_pairs(words: jax.Array, excesses: Sequence[jax.Array]) -> Stair:
    """Do the same for all P pairs together: words uint32 (2, P, B) to leaves int (P, B).

    It is one look-up to compile, where pairs one by one are P of them.
    """
    one, other = (
        jnp.stack([excesses[pair[side]] for pair in combinations(range(len(excesses)), 2)])
        for side in (0, 1)
    )
    return look_up([words[0], words[1]], one, other)


class _Climb(NamedTuple):
    time: jax.Array  # int32 ()
    layer: jax.Array  # uint32 (W, M, B), L_time
    delays: jax.Array  # int32 (2, EXCESSES, B), of the other agent, by the excess of the first
    running: jax.Array  # bool (B,)


def staircases(
    free: jax.Array,
    starts: jax.Array,
    goals: jax.Array,
    alone: jax.Array,
    wanted: jax.Array,
    widths: Widths,
) -> jax.Array:
    """Compute the staircases of the wanted pairs, uint32 (2, B); 0 where not wanted.

    Cells that can be entered are `free`, bool (F, N, N), and pair i is on board i % F; starts and
    goals int8 (B, 2, 2), (row, column) of both agents, that can both reach their goals, the
    distances `alone` int16 (2, B). Entry e has four bits, from the lowest ones of word 0 on.
    """
    B = wanted.shape[0]
    if B == 0:
        return jnp.zeros((2, B), jnp.uint32)
    board = joint_search.geometry(free.shape[-1])
    kernels = stairs.serves(widths.kernels, board)
    if kernels is None:
        width = joint_search.lanes_at_once(board, widths)
    else:
        width = stairs.pairs_at_once(board, widths)
    width = min(B, width)
    pairs = joint_search.two_agent_lanes(free, starts, goals, wanted, board, alone)

    def climb(chunk: TwoAgentLanes, _: None) -> tuple[jax.Array, None]:
        boards, running = chunk.on(free, board), chunk.connected
        if kernels is None:
            return _words(_climb(boards, running, board)), None
        sizes = {"entries": EXCESSES, "bits": _BITS}
        return _words(stairs.climb(boards, running, board, kernels, **sizes)), None

    blank = jnp.zeros((2, B), jnp.uint32)
    length = jnp.max(pairs.alone, axis=0)
    words, _ = in_chunks(climb, pairs, pairs.connected, length, blank, width, None)
    # A chunk may have been filled up with other pairs.
    return jnp.where(pairs.connected, words, blank)


def _climb(boards: TwoAgentBoards, running: jax.Array, board: Geometry) -> jax.Array:
    """Find the delays of the other agent, by which one is the first to arrive, as `stairs.climb`.

    Where the search knew enough before an entry's time, an entry says more than is so; `_words`
    takes what those before it say.
    """
    B = boards.free.shape[-1]
    alone = boards.alone
    left = _distances_around(boards, board)
    layer, allowed = joint_search.first_layer(boards, board)

    def examine(time: jax.Array, layer: jax.Array, state: _Climb) -> _Climb:
        beside = _beside(layer, boards.goals, board)
        # Of the agent that is not there.
        distance = jnp.min(jnp.where(beside, left, UNREACHABLE), axis=1)
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
    begun = examine(jnp.int32(0), layer, _Climb(jnp.int32(0), layer, delays, running))
    return jax.lax.while_loop(lambda state: jnp.any(state.running), advance, begun).delays


def _words(delays: jax.Array) -> jax.Array:
    """Make staircases, uint32 (2, B), of delays int32 (2, EXCESSES, B), either agent the first."""
    B = delays.shape[-1]
    first, second = jax.lax.cummin(delays, axis=1)
    # If agent 1 is the first to arrive: the least excess of it that lets agent 0 arrive in time.
    e = np.arange(EXCESSES)[:, None, None]
    in_time = second[None] <= e
    other = jnp.where(jnp.any(in_time, axis=1), jnp.argmax(in_time, axis=1), _MOST)
    least = jnp.minimum(first, other).astype(jnp.uint32)
    shifts = (_BITS * (np.arange(EXCESSES) % _PER_WORD)).astype(np.uint32)
    return jnp.sum((least << shifts[:, None]).reshape(2, _PER_WORD, B), axis=1, dtype=jnp.uint32)


def _distances_around(boards: TwoAgentBoards, board: Geometry) -> jax.Array:
    """Count the steps to its goal of an agent in any cell, with the other agent at its own.

    Gives int32 (2, M, B): of agent 1 around agent 0 at its goal, and of agent 0 around agent 1.
    """
    M, B = boards.free.shape
    cell, goals = np.arange(M)[:, None, None], boards.goals
    around, ends = boards.free[:, None] & (cell != goals), cell == goals[::-1]
    rows = (M // board.pitch, board.pitch, 2, B)
    steps = flood(around.reshape(rows), ends.reshape(rows)).reshape(M, 2, B)
    return jnp.swapaxes(steps, 0, 1).astype(jnp.int32)


def _beside(layer: jax.Array, goals: jax.Array, board: Geometry) -> jax.Array:
    """Return where the other agent can be while an agent stands at its goal, bool (2, M, B)."""
    row, column = joint_search.beside_goals(layer, goals)
    cell = jnp.arange(board.cells)
    return jnp.stack([joint_search.has_cells(row[cell // 32], cell[:, None]), column])
