"""Prioritised planning (Erdmann and Lozano-Perez 1987): one agent after the other.

Every agent takes an earliest arrival among the paths of those before it. The plan is legal
whatever the order, and where its cost equals a lower bound it is optimal.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxlake.dynamics import Action
from jaxlake.solver.bitboard import holds
from jaxlake.solver.space_time import NEVER, NOBODY, Closed, occupied, reach, swaps, trace

MOVES = (Action.UP, Action.DOWN, Action.LEFT, Action.RIGHT)


class Plans(NamedTuple):
    """Plans of many boards, by the rank of the agents in the order in which they were planned."""

    arrival: jax.Array  # int16 (K, B), last arrivals; NEVER from the first that found no path on
    paths: jax.Array  # int16 (K, T + 1, B), cells


def plan_in_order(
    free: jax.Array,
    starts: jax.Array,
    goals: jax.Array,
    latest: jax.Array,
    layers: jax.Array,
    *,
    waits: bool = True,
    order: tuple[Action, ...] = MOVES,
) -> tuple[Plans, jax.Array]:
    """Plan the agents of every board in the order in which they are given.

    Args:
        free: words (R, B).
        starts: int16 (K, B), cells; NOBODY for agents that do not exist.
        goals: int16 (K, B), cells; NOBODY likewise.
        latest: int16 (K, B), the latest arrival to look for, at most T.
        layers: words (T + 1, R, B), scratch.
        waits: whether agents may wait before their last arrival.
        order: the moves, those first that a path prefers.

    Returns:
        The `Plans`, and the scratch memory for the next call. Agents that do not exist arrive at 0.
    """
    K, B = starts.shape
    rows, T = free.shape[0], layers.shape[0] - 1
    likes = (*order, Action.WAIT) if waits else order

    def plan_agent(
        rank: jax.Array, state: tuple[Plans, jax.Array, jax.Array]
    ) -> tuple[Plans, jax.Array, jax.Array]:
        plans, layers, failed = state
        paths, goal = plans.paths, goals[rank]
        absent = goal == NOBODY

        def closed(t: jax.Array) -> Closed:
            return occupied(paths, t, rows)

        found = reach(
            starts[rank],
            goal,
            free,
            closed,
            waits=waits,
            earliest=0,
            latest=jnp.where(failed | absent, jnp.int16(-1), latest[rank]),
            quiet=jnp.max(plans.arrival, axis=0),
            layers=layers,
        )
        arrival = jnp.where(absent, jnp.int16(0), found.arrival)
        failed |= arrival == NEVER

        def liking(t: jax.Array, here: jax.Array, there: jax.Array) -> jax.Array:
            return (holds(found.layers[t], here) & ~swaps(paths, t, here, there)).astype(jnp.int8)

        path = trace(goal, arrival, T, liking, likes)
        plans = Plans(arrival=plans.arrival.at[rank].set(arrival), paths=paths.at[rank].set(path))
        return plans, found.layers, failed

    nothing = Plans(
        arrival=jnp.zeros((K, B), jnp.int16), paths=jnp.full((K, T + 1, B), NOBODY, jnp.int16)
    )
    plans, layers, failed = jax.lax.fori_loop(
        0, K, plan_agent, (nothing, layers, jnp.zeros(B, bool))
    )
    return plans._replace(arrival=jnp.where(failed, jnp.int16(NEVER), plans.arrival)), layers
