"""Prioritised planning (Erdmann and Lozano-Perez 1987): one agent after the other.

Every agent takes a path of earliest arrival among the paths of those before it. The plan is legal
whatever the order, and where its cost equals a lower bound it is optimal.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxlake.solver.bitboard import bitboard_of
from jaxlake.solver.materialize import materialize
from jaxlake.solver.space_time import (
    NEVER,
    NOBODY,
    Blocked,
    PathBits,
    SearchBuffers,
    blocked_by,
    path_bits,
    reach_goal,
    trace_back,
)


class PrioritisedPlans(NamedTuple):
    """Plans of many boards, by the rank of the agents in the order in which they were planned."""

    arrival: jax.Array  # int16 (K, B), last arrivals; NEVER from the first that found no path on
    paths: jax.Array  # int16 (K, T + 1, B), cells


def plan_in_order(
    free: jax.Array,
    starts: jax.Array,
    goals: jax.Array,
    latest: jax.Array,
    buffers: SearchBuffers,
    *,
    upwards: bool = False,
) -> tuple[PrioritisedPlans, SearchBuffers]:
    """Plan the agents of every board in the order in which they are given.

    Args:
        free: words (R, B).
        starts: int16 (K, B), cells; NOBODY for agents that do not exist: they arrive at 0.
        goals: int16 (K, B), cells; NOBODY likewise.
        latest: int16 (K, B), the latest arrival to look for, at most T.
        buffers: Buffers for T steps; they are returned for the next call.
        upwards: Which of the earliest paths to prefer, see `trace_back`.
    """
    K, B = starts.shape
    rows, T = free.shape[0], buffers.cells.shape[0] - 1
    State = tuple[PrioritisedPlans, Blocked, SearchBuffers, jax.Array]

    def plan_agent(rank: jax.Array, state: State) -> State:
        plans, blocked, buffers, failed = state
        start, goal = bitboard_of(starts[rank], rows), bitboard_of(goals[rank], rows)
        absent = goals[rank] == NOBODY
        last = jnp.where(failed | absent, jnp.int16(-1), latest[rank])
        found = reach_goal(
            start, goal, (blocked,), waits=True, earliest=0, latest=last, layers=buffers.layers
        )
        traced, cells = trace_back(
            goal, found, (blocked,), waits=True, buffer=buffers.cells, upwards=upwards
        )
        arrival = jnp.where(absent, jnp.int16(0), found.arrival)
        failed |= arrival == NEVER
        true = rank <= K
        path = materialize(jnp.where(absent, jnp.int16(NOBODY), traced.cells), true)
        bits = materialize(PathBits(*(words[None] for words in path_bits(path, rows))), true)
        plans = PrioritisedPlans(
            plans.arrival.at[rank].set(arrival), plans.paths.at[rank].set(path)
        )
        blocked |= blocked_by(bits, rows, jnp.ones((1, B), bool))
        return plans, blocked, SearchBuffers(found.layers, cells), failed

    unplanned = PrioritisedPlans(
        arrival=jnp.zeros((K, B), jnp.int16), paths=jnp.full((K, T + 1, B), NOBODY, jnp.int16)
    )
    words = jnp.broadcast_to(free, (T + 1, *free.shape))
    holes = Blocked(~words, *(jnp.zeros_like(words),) * 4)
    plans, _, buffers, failed = jax.lax.fori_loop(
        0, K, plan_agent, (unplanned, holes, buffers, jnp.zeros(B, bool))
    )
    return plans._replace(arrival=jnp.where(failed, jnp.int16(NEVER), plans.arrival)), buffers
