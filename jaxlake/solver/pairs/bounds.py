"""Lower bounds for B boards with K agents, from exact solutions of their P pairs of agents."""

from collections.abc import Sequence
from functools import reduce
from itertools import combinations
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.instance import Instance
from jaxlake.solver.certificates import PreparedBoards, delay_free_pairs
from jaxlake.solver.chunks import Limits, map_chunks
from jaxlake.solver.kernels import joint
from jaxlake.solver.kernels.pair_lanes import max_pairs, select_backend
from jaxlake.solver.pairs import arrivals, joint_search
from jaxlake.solver.pairs.arrivals import Stair
from jaxlake.solver.pairs.joint_search import FAR, JointOptima, TwoAgentBoards, TwoAgentLanes


class PairOptima(NamedTuple):
    """Optima of B pairs of agents, each alone on its board."""

    sum_of_costs: jax.Array  # int32 (B,), FAR if unknown
    makespan: jax.Array  # int32 (B,), FAR if unknown
    unsolvable: jax.Array  # bool (B,), proved
    waitless: jax.Array  # bool (B,), some plan with this cost has no waits; False if unknown


def pair_optima(
    free: jax.Array,
    starts: jax.Array,
    goals: jax.Array,
    solo_distances: jax.Array,
    active: jax.Array,
    horizon: int,
    limits: Limits,
) -> PairOptima:
    """Solve the active pairs of agents by a joint search.

    The optima of inactive pairs, and of pairs with a makespan above `horizon`, are unknown.

    Args:
        free: bool (F, N, N), cells that can be entered; pair i is on board i % F.
        starts: int8 (B, 2, 2), (row, column) of both agents.
        goals: int8 (B, 2, 2), likewise.
        solo_distances: int16 (2, B), distance of each agent alone.
        active: bool (B,), pairs to solve.
        horizon: Longest plan in steps (static).
        limits: Number of pairs to process at once.
    """
    B = active.shape[0]
    if B == 0:
        no_flags, no_costs = jnp.zeros(0, bool), jnp.zeros(0, jnp.int32)
        return PairOptima(no_costs, no_costs, no_flags, no_flags)
    board = joint_search.geometry(free.shape[-1])
    backend = select_backend(limits.kernels, horizon, board)
    width = min(B, max_pairs(backend, None, board, limits))
    pairs = joint_search.two_agent_lanes(free, starts, goals, active, board, solo_distances)
    far = jnp.full(B, FAR, jnp.int32)

    def search(
        boards: TwoAgentBoards, running: jax.Array, cost: jax.Array, may_wait: jax.Array | bool
    ) -> JointOptima:
        if backend is None:
            return joint_search.joint_search(
                boards, running, horizon, board, waitless_cost=cost, may_wait=may_wait
            )[0]
        waitless_cost = None if may_wait else cost
        return joint.search_costs(boards, running, horizon, board, backend, waitless_cost)

    max_distance = jnp.max(pairs.solo_distances, axis=0)

    def find_optima(optima: PairOptima, may_wait: jax.Array | bool) -> tuple[PairOptima, None]:
        """Find the optima or, if `may_wait` is False, whether plans without waits exist."""
        is_solved, sum_of_costs = optima.makespan < FAR, optima.sum_of_costs
        is_undecided = joint_search.needs_waitless_search(
            pairs.solo_distances, is_solved, sum_of_costs
        )
        is_searched = jnp.where(may_wait, pairs.connected, is_undecided)
        length = jnp.where(may_wait, max_distance, sum_of_costs)

        def solve_chunk(
            chunk: tuple[TwoAgentLanes, PairOptima, jax.Array], _: None
        ) -> tuple[PairOptima, None]:
            lanes, known_optima, is_searched = chunk
            result = search(
                lanes.lay_out(free, board), is_searched, known_optima.sum_of_costs, may_wait
            )
            optima = PairOptima(
                result.sum_of_costs, result.makespan, result.stuck, known_optima.waitless
            )
            waitless_optima = known_optima._replace(waitless=result.sum_of_costs < FAR)
            return jax.tree.map(
                lambda x, y: jnp.where(may_wait, x, y), optima, waitless_optima
            ), None

        operands = (pairs, optima, is_searched)
        return map_chunks(solve_chunk, operands, is_searched, length, optima, width, None)[0], None

    false = jnp.zeros(B, bool)
    initial_optima = PairOptima(far, far, false, false)
    if backend is None:  # in a loop, so that the search is compiled once
        optima, _ = jax.lax.scan(find_optima, initial_optima, jnp.array([True, False]))
    else:
        optima, _ = find_optima(find_optima(initial_optima, True)[0], False)
    is_solved = optima.makespan < FAR
    excess = optima.sum_of_costs - jnp.sum(pairs.solo_distances, axis=0, dtype=jnp.int32)
    return PairOptima(
        sum_of_costs=jnp.where(is_solved, optima.sum_of_costs, FAR),
        makespan=optima.makespan,
        unsolvable=optima.unsolvable | (active & ~pairs.connected),
        waitless=is_solved & ((excess == 0) | optima.waitless),
    )


class PairBounds(NamedTuple):
    """Bounds from the pairs of agents."""

    costs: jax.Array  # int16 (P, B), least sum of costs of each pair; 0 if unknown
    makespan: jax.Array  # int16 (B,), the largest of the least makespans of the pairs
    waitless: jax.Array  # bool (P, B), a plan with this cost and without waits may exist
    unsolvable: jax.Array  # bool (B,), a pair has no plan


def pair_bounds(
    batch: Instance, boards: PreparedBoards, active: jax.Array, horizon: int, limits: Limits
) -> PairBounds:
    """Solve all pairs of agents of the active boards, bool (B,), and return the bounds."""
    B, K = batch.agent_mask.shape
    i, j = (np.array(side) for side in zip(*agent_pairs(K), strict=True))
    P = len(i)
    exists = (batch.agent_mask[:, i] & batch.agent_mask[:, j] & active[:, None]).T

    def pair_values(leaf: jax.Array) -> jax.Array:
        return jnp.stack([leaf[i], leaf[j]]).reshape(2, P * B)

    pairs = PreparedBoards(
        jnp.tile(boards.free, P),
        *map(pair_values, (boards.starts, boards.goals, boards.solo_distances)),
    )
    is_delay_free = delay_free_pairs(pairs, exists.reshape(-1), horizon, limits).reshape(P, B)
    is_searched = exists & ~is_delay_free
    optima = pair_optima(
        *_pair_positions(batch), pairs.solo_distances, is_searched.reshape(-1), horizon, limits
    )
    optima = jax.tree.map(lambda leaf: leaf.reshape(P, B), optima)
    is_solved = is_searched & (optima.makespan < FAR) & ~optima.unsolvable
    first, second = pairs.solo_distances.reshape(2, P, B)
    cost = jnp.where(is_delay_free, first + second, jnp.where(is_solved, optima.sum_of_costs, 0))
    makespan = jnp.where(
        is_delay_free, jnp.maximum(first, second), jnp.where(is_solved, optima.makespan, 0)
    )
    return PairBounds(
        costs=cost.astype(jnp.int16),
        makespan=jnp.max(makespan, axis=0).astype(jnp.int16),
        waitless=optima.waitless | ~is_solved,
        unsolvable=jnp.any(is_searched & optima.unsolvable, axis=0),
    )


def pair_staircases(
    batch: Instance, boards: PreparedBoards, costs: jax.Array, active: jax.Array, limits: Limits
) -> jax.Array:
    """Return the staircases of interfering pairs, uint32 (2, P, B), and 0 for other pairs.

    Args:
        batch: Leaves (B, ...).
        boards: The same boards, prepared.
        costs: int16 (P, B), see `PairBounds`.
        active: bool (B,), boards to search.
        limits: Number of pairs to process at once.
    """
    B, K = batch.agent_mask.shape
    i, j = (np.array(side) for side in zip(*agent_pairs(K), strict=True))
    exists = (batch.agent_mask[:, i] & batch.agent_mask[:, j] & active[:, None]).T
    is_searched = exists & (costs > boards.solo_distances[i] + boards.solo_distances[j])
    solo_distances = jnp.stack([boards.solo_distances[i], boards.solo_distances[j]]).reshape(2, -1)
    words = arrivals.staircases(
        *_pair_positions(batch), solo_distances, is_searched.reshape(-1), limits
    )
    return words.reshape(2, len(i), B)


def _pair_positions(batch: Instance) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return free cells, bool (B, N, N), and starts and goals by pair, int8 (P * B, 2, 2)."""
    i, j = (np.array(side) for side in zip(*agent_pairs(batch.agent_mask.shape[1]), strict=True))

    def stack_pairs(leaf: jax.Array) -> jax.Array:
        pairs = jnp.stack([leaf[:, i], leaf[:, j]], axis=2)
        return pairs.swapaxes(0, 1).reshape(-1, *pairs.shape[2:])

    return ~batch.holes, stack_pairs(batch.starts), stack_pairs(batch.goals)


def waitless_bounds(pairs: PairBounds, solo_distances: jax.Array) -> jax.Array:
    """Return lower bounds on the costs of pairs without waits, int16 (P, B).

    Without waits, the excess of the cost over the distances is even.
    """
    i, j = (np.array(side) for side in zip(*agent_pairs(solo_distances.shape[0]), strict=True))
    excess = pairs.costs - (solo_distances[i] + solo_distances[j])
    waits = jnp.where(excess % 2 == 1, 1, jnp.where(pairs.waitless | (excess == 0), 0, 2))
    return jnp.where(pairs.costs > 0, pairs.costs + waits.astype(jnp.int16), 0).astype(jnp.int16)


def agent_pairs(num_agents: int) -> list[tuple[int, int]]:
    """Return the pairs of agents, in the order of axes of size P."""
    return list(combinations(range(num_agents), 2))


def matching_bound(costs: jax.Array, pair_costs: jax.Array) -> jax.Array:
    """Return the lower bound on the sum of costs, int16 (B,), from the best matching into pairs.

    Args:
        costs: int16 (K, B), lower bound on the cost of each agent.
        pair_costs: int16 (P, B), lower bound on the cost of each pair.
    """
    gain = best_matching(pair_gains(list(costs), list(pair_costs)), len(costs))
    return jnp.sum(costs, axis=0, dtype=jnp.int16) + gain


def pair_gains(
    costs: Sequence[jax.Array], pair_costs: Sequence[jax.Array], stairs: Sequence[Stair] = ()
) -> list[jax.Array]:
    """Return by how much the bounds on each pair exceed the costs of its two agents."""
    pairs = agent_pairs(len(costs))
    gains = [jnp.maximum(pair_costs[p] - costs[i] - costs[j], 0) for p, (i, j) in enumerate(pairs)]
    return [jnp.maximum(gains[p], stair.gain) for p, stair in enumerate(stairs)] or gains


def best_matching(gains: Sequence[jax.Array], num_agents: int) -> jax.Array:
    """Return the largest total gain of disjoint pairs among up to five agents."""
    pairs = agent_pairs(num_agents)
    pair_sums = [
        gains[p] + gains[q]
        for p, first in enumerate(pairs)
        for q in range(p)
        if not set(first) & set(pairs[q])
    ]
    return reduce(jnp.maximum, [*gains, *pair_sums])
