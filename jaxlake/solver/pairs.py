"""The two optima of pairs of agents, without plans: lower bounds for searches with more agents."""

from itertools import combinations
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxlake.solver.chunks import in_chunks
from jaxlake.solver.joint import (
    FAR,
    Lanes,
    geometry,
    lanes_at_once,
    prepare,
    search,
    search_without_waits,
)


class PairOptima(NamedTuple):
    """What two agents need when they are alone on the board."""

    solvable: jax.Array  # bool (B,), False only where proved unsolvable
    known: jax.Array  # bool (B,), the three below are exact
    sum_of_costs: jax.Array  # int32 (B,), least sum of costs, -1 unless known
    makespan: jax.Array  # int32 (B,), least makespan, -1 unless known
    waitless: jax.Array  # bool (B,), a plan of that sum of costs exists in which nobody waits
    #   before its last arrival; False unless known


def pair_optima(
    free: jax.Array, starts: jax.Array, goals: jax.Array, wanted: jax.Array, horizon: int
) -> PairOptima:
    """Exact costs of pairs of agents, by the joint search of `jaxlake.solver.joint`.

    The cost in time is that of the wanted pairs; a batch in which there is none costs next to
    nothing.

    Args:
        free: bool (B, N, N), cells that can be entered.
        starts: int8 (B, 2, 2), (row, column) of both agents.
        goals: int8 (B, 2, 2).
        wanted: bool (B,), pairs to look at.
        horizon: longest makespan to look for, in steps (static).

    Returns:
        A `PairOptima`. Pairs that are not wanted, or whose makespan is longer than `horizon`, are
        neither known nor proved unsolvable.
    """
    B = wanted.shape[0]
    if B == 0:
        nothing, none = jnp.zeros(0, bool), jnp.zeros(0, jnp.int32)
        return PairOptima(~nothing, nothing, none, none, nothing)
    board = geometry(free.shape[-1])
    width = min(B, lanes_at_once(board))
    lanes = prepare(free, starts, goals, wanted, board)
    far = jnp.full(B, FAR, jnp.int32)
    length = jnp.max(lanes.alone, axis=0)

    def cost(own: Lanes, scratch: None) -> tuple[tuple[jax.Array, jax.Array, jax.Array], None]:
        found = search(own, own.connected, horizon, board)
        return (found.sum_of_costs, found.makespan, found.stuck), scratch

    (sum_of_costs, makespan, stuck), _ = in_chunks(
        cost, lanes, lanes.connected, length, (far, far, jnp.zeros(B, bool)), width, None
    )
    known = makespan < FAR
    excess = sum_of_costs - jnp.sum(lanes.alone, axis=0)
    # Without an excess nobody waits; on a bipartite grid an odd excess can only come from waiting.
    undecided = known & (excess > 0) & (excess % 2 == 0)

    def look(own: tuple[Lanes, jax.Array, jax.Array], scratch: None) -> tuple[jax.Array, None]:
        return search_without_waits(*own, horizon, board)[0], scratch

    waitless, _ = in_chunks(
        look,
        (lanes, sum_of_costs, undecided),
        undecided,
        sum_of_costs,
        jnp.zeros(B, bool),
        width,
        None,
    )
    none = jnp.int32(-1)
    return PairOptima(
        solvable=~(stuck | (wanted & ~lanes.connected)),
        known=known,
        sum_of_costs=jnp.where(known, sum_of_costs, none),
        makespan=jnp.where(known, makespan, none),
        waitless=known & ((excess == 0) | waitless),
    )


def pairs_of(agents: int) -> list[tuple[int, int]]:
    """The pairs of agents in the order in which arrays list them."""
    return list(combinations(range(agents), 2))


def matching_bound(costs: jax.Array, pair_costs: jax.Array) -> jax.Array:
    """A lower bound on the sum of costs: the best matching of agents into pairs.

    Args:
        costs: int16 (K, B), a lower bound for each agent.
        pair_costs: int16 (P, B), lower bounds for both agents of each pair together.

    Returns:
        int16 (B,).
    """
    pairs = pairs_of(costs.shape[0])
    gains = [jnp.maximum(pair_costs[p] - costs[i] - costs[j], 0) for p, (i, j) in enumerate(pairs)]
    both = [
        gains[p] + gains[q]
        for p, first in enumerate(pairs)
        for q in range(p)
        if not set(first) & set(pairs[q])
    ]
    best = jnp.max(jnp.stack([*gains, *both]), axis=0)
    return jnp.sum(costs, axis=0, dtype=jnp.int16) + best
