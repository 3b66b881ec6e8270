"""Prioritised planning (Erdmann and Lozano-Perez 1987): one agent after the other.

Every agent takes an earliest arrival among the paths of those before it. The plan is legal
whatever the order, and where its cost equals a lower bound it is optimal.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxlake.solver.bitboard import single
from jaxlake.solver.hold import hold
from jaxlake.solver.space_time import (
    NEVER,
    NOBODY,
    Closed,
    Scratch,
    Track,
    occupied,
    reach,
    trace,
    track_of,
)


class Plans(NamedTuple):
    """Plans of many boards, by the rank of the agents in the order in which they were planned."""

    arrival: jax.Array  # int16 (K, B), last arrivals; NEVER from the first that found no path on
    paths: jax.Array  # int16 (K, T + 1, B), cells


def plan_in_order(
    free: jax.Array,
    starts: jax.Array,
    goals: jax.Array,
    latest: jax.Array,
    memory: Scratch,
    *,
    waits: bool = True,
    upwards: bool = False,
) -> tuple[Plans, Scratch]:
    """Plan the agents of every board in the order in which they are given.

    Args:
        free: words (R, B).
        starts: int16 (K, B), cells; NOBODY for agents that do not exist.
        goals: int16 (K, B), cells; NOBODY likewise.
        latest: int16 (K, B), the latest arrival to look for, at most T.
        memory: scratch memory for T steps.
        waits: whether agents may wait before their last arrival.
        upwards: which of the earliest paths to prefer, see `trace`.

    Returns:
        The `Plans`, and the scratch memory for the next call. Agents that do not exist arrive at 0.
    """
    K, B = starts.shape
    rows, T = free.shape[0], memory.cells.shape[0] - 1

    def plan_agent(
        rank: jax.Array, state: tuple[Plans, Closed, Scratch, jax.Array]
    ) -> tuple[Plans, Closed, Scratch, jax.Array]:
        plans, closed, memory, failed = state
        start, goal = single(starts[rank], rows), single(goals[rank], rows)
        absent = goals[rank] == NOBODY
        found = reach(
            start,
            goal,
            (closed,),
            waits=waits,
            earliest=0,
            latest=jnp.where(failed | absent, jnp.int16(-1), latest[rank]),
            layers=memory.layers,
        )
        traced, cells = trace(
            goal, found, (closed,), waits=waits, scratch=memory.cells, upwards=upwards
        )
        arrival = jnp.where(absent, jnp.int16(0), found.arrival)
        failed |= arrival == NEVER
        path = hold(jnp.where(absent, jnp.int16(NOBODY), traced.cells), rank <= K)
        track = hold(Track(*(words[None] for words in track_of(path, rows))), rank <= K)
        plans = Plans(plans.arrival.at[rank].set(arrival), plans.paths.at[rank].set(path))
        return (
            plans,
            closed | occupied(track, rows, jnp.ones((1, B), bool)),
            Scratch(found.layers, cells),
            failed,
        )

    nothing = Plans(
        arrival=jnp.zeros((K, B), jnp.int16), paths=jnp.full((K, T + 1, B), NOBODY, jnp.int16)
    )
    words = jnp.broadcast_to(free, (T + 1, *free.shape))
    nothing_shut = jnp.zeros_like(words)
    empty = Closed(~words, *(nothing_shut,) * 4)
    plans, _, memory, failed = jax.lax.fori_loop(
        0, K, plan_agent, (nothing, empty, memory, jnp.zeros(B, bool))
    )
    return plans._replace(arrival=jnp.where(failed, jnp.int16(NEVER), plans.arrival)), memory
