"""Exact solver for B boards with K = 3 to 5 agent slots, hence P = K * (K - 1) / 2 pairs of agents.

Prioritised planning and pairs of agents give bounds on both optima. A search of constraint trees
and a dense joint search then only examine the boards and costs between these bounds.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.instance import Instance
from jaxlake.runtime.cpu_devices import jit_search
from jaxlake.solver.certificates import BestPlans, PreparedBoards, prepare_boards, prioritise
from jaxlake.solver.chunks import Limits
from jaxlake.solver.dense import search as dense_search
from jaxlake.solver.dense.components import component_sizes
from jaxlake.solver.dense.search import (
    DENSE_AXIS_SIZES,
    MAX_EXPANSIONS_BEFORE_DENSE,
    ShortestPlans,
    TreeResults,
    split_by_size,
)
from jaxlake.solver.materialize import materialize
from jaxlake.solver.pairs.bounds import (
    matching_bound,
    pair_bounds,
    pair_staircases,
    waitless_bounds,
)
from jaxlake.solver.permutations import prove_unsolvable
from jaxlake.solver.solution import Solution, Status, empty_solutions
from jaxlake.solver.space_time import (
    NEVER,
    batch_major_actions,
    has_waits,
    path_actions,
    path_makespan,
)
from jaxlake.solver.trees.node import QueryResults, TreeQueries, empty_results
from jaxlake.solver.trees.search import search_with_teams

DEFAULT_MAX_EXPANSIONS = 65536
"""Default number of agents that one search of the constraint tree replans before it gives up."""

CANDIDATE_MAX_EXPANSIONS = {3: 65536, 4: 16384, 5: 16384}
"""The same limit for generated candidates, by number of agents. It affects which ones are kept."""


def broadcast_max_expansions(batch: Instance, max_expansions: jax.Array | None) -> jax.Array:
    """Return the number of agents that a search may replan on each board, int32 (B,)."""
    if max_expansions is None:
        max_expansions = jnp.int32(DEFAULT_MAX_EXPANSIONS)
    return jnp.broadcast_to(max_expansions, batch.agent_mask.shape[:1])


def candidate_max_expansions(batch: Instance) -> jax.Array:
    """Return the number of agents that a search may replan on candidates (...), int32 (...)."""
    num_agents = jnp.sum(batch.agent_mask, axis=-1, dtype=jnp.int32)
    limits_by_agents = jnp.array(list(CANDIDATE_MAX_EXPANSIONS.values()), jnp.int32)
    return limits_by_agents[jnp.clip(num_agents, 3, 5) - 3]


def solve_many_agents(
    batch: Instance, horizon: int, max_expansions: jax.Array, limits: Limits, *, dense: bool = True
) -> Solution:
    """Solve a batch in one program.

    Args:
        batch: Leaves (B, ...).
        horizon: Longest plan in steps (static).
        max_expansions: int32 (B,), number of agents that a search may replan.
        limits: Number of boards to process at once.
        dense: Whether to use the dense joint search, which tests disable (static).
    """
    planning = _plan_boards(batch, horizon, limits)
    bounds = _bound_boards(batch, planning, max_expansions, horizon, limits, dense=dense)
    results = _search_boards(batch, planning, bounds, horizon, limits)
    for size_index in range(len(results.remaining)) if dense else ():
        results = dense_search.solve_remaining(batch, results, size_index, horizon, limits)
    return results.solution


class _PlannedBoards(NamedTuple):
    """Results of tiers 1 and 2 (see docs/solver.md)."""

    boards: PreparedBoards
    best: BestPlans


def _plan_boards(batch: Instance, horizon: int, limits: Limits) -> _PlannedBoards:
    boards = prepare_boards(batch, limits)
    is_connected = jnp.all(boards.solo_distances < NEVER, axis=0)
    return _PlannedBoards(boards, prioritise(boards, is_connected, horizon, limits))


class _BoundedBoards(NamedTuple):
    """Results of tiers 3 and 4, which bound the tree search."""

    undecided: jax.Array  # bool (B,), the best known plan may not be optimal
    unsolvable: jax.Array  # bool (B,), no plan exists
    min_cost: jax.Array  # int16 (B,), lower bound on the sum of costs
    min_makespan: jax.Array  # int16 (B,), lower bound on the makespan
    min_waitless_cost: jax.Array  # int16 (B,), lower bound on the sum of costs without waits
    pair_costs: jax.Array  # int16 (P, B), lower bound per pair
    waitless_pair_costs: jax.Array  # int16 (P, B), lower bound per pair without waits
    may_be_cheaper: jax.Array  # bool (B,), a plan may be cheaper than the best known one
    staircases: jax.Array  # uint32 (2, P, B), see `pair_staircases`
    max_expansions: jax.Array  # int32 (B,), agents to replan before the dense search takes over
    sizes: jax.Array  # int32 (B,), component sizes; 0 for boards without a dense search


def _bound_boards(
    batch: Instance,
    planning: _PlannedBoards,
    max_expansions: jax.Array | None,
    horizon: int,
    limits: Limits,
    *,
    dense: bool = True,
) -> _BoundedBoards:
    """Return the bounds that pairs of agents prove."""
    max_expansions = broadcast_max_expansions(batch, max_expansions)
    B, K = batch.agent_mask.shape
    boards, best_plans = planning
    is_connected, solo_distances, solo_cost, max_distance = _summarise_distances(boards)
    is_undecided = is_connected & (best_plans.sum_of_costs > solo_cost)
    pairs = pair_bounds(batch, boards, is_undecided, horizon, limits)
    waitless_pair_costs = waitless_bounds(pairs, boards.solo_distances)
    min_cost = matching_bound(solo_distances, pairs.costs)
    min_waitless_cost = matching_bound(solo_distances, waitless_pair_costs)
    min_makespan = jnp.maximum(max_distance, pairs.makespan)
    has_no_plan = is_undecided & ~pairs.unsolvable & (best_plans.sum_of_costs == NEVER)
    is_unsolvable = pairs.unsolvable | prove_unsolvable(
        *(~batch.holes, batch.starts, batch.goals, batch.agent_mask, has_no_plan),
        boards_at_once=min(B, limits.crowded_boards),
    )
    is_undecided &= ~is_unsolvable
    sizes = jnp.zeros(B, jnp.int32)
    if dense:
        sizes = component_sizes(boards, is_undecided, limits)
        max_sizes, dense_limits = zip(*MAX_EXPANSIONS_BEFORE_DENSE[K], strict=True)
        for dense_limit, fits in zip(dense_limits, split_by_size(sizes, max_sizes), strict=True):
            lower_limit = jnp.minimum(max_expansions, dense_limit)
            max_expansions = jnp.where(is_undecided & fits, lower_limit, max_expansions)

    # Search only for plans that are better than the best known plan.
    known_cost = best_plans.sum_of_costs
    last_cost = jnp.where(known_cost < NEVER, known_cost - 1, jnp.int16(K * horizon))
    may_be_cheaper = is_undecided & (min_cost <= last_cost)
    may_be_shorter = is_undecided & (min_makespan < best_plans.makespan)
    is_open = may_be_cheaper | may_be_shorter

    return _BoundedBoards(
        undecided=is_undecided,
        unsolvable=is_unsolvable,
        min_cost=min_cost,
        min_makespan=min_makespan,
        min_waitless_cost=min_waitless_cost,
        pair_costs=pairs.costs,
        waitless_pair_costs=waitless_pair_costs,
        may_be_cheaper=may_be_cheaper,
        staircases=pair_staircases(batch, boards, pairs.costs, is_open, limits),
        max_expansions=max_expansions,
        sizes=sizes,
    )


def _summarise_distances(
    boards: PreparedBoards,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return connectivity, distances, their sum and their maximum; 0 if not connected."""
    is_connected = jnp.all(boards.solo_distances < NEVER, axis=0)
    solo_distances = jnp.where(is_connected, boards.solo_distances, 0)
    return (
        is_connected,
        solo_distances,
        jnp.sum(solo_distances, axis=0, dtype=jnp.int16),
        jnp.max(solo_distances, axis=0),
    )


def _search_boards(
    batch: Instance, planning: _PlannedBoards, bounds: _BoundedBoards, horizon: int, limits: Limits
) -> TreeResults:
    """Search constraint trees, and select the boards for the dense joint search."""
    boards, best_plans = planning
    is_connected, _, solo_cost, max_distance = _summarise_distances(boards)
    is_undecided, is_unsolvable = bounds.undecided, bounds.unsolvable
    costs, makespans, waitless = _search_trees(batch, planning, bounds, horizon, limits)
    plans = _update_best_plans(best_plans, costs)
    cost = plans.sum_of_costs
    makespan = jnp.where(makespans.solved, makespans.bound, plans.makespan)
    shortest_paths = jnp.where(makespans.solved, makespans.paths, plans.makespan_paths)
    optimal = is_connected & ~is_unsolvable & (cost < NEVER) & (makespan < NEVER)
    optimal &= ~costs.gave_up & ~makespans.gave_up
    # The searches only consider arrivals up to the horizon. A plan with a later arrival costs at
    # least horizon + 1 for that agent plus the distances of the others. If the cost is
    # at most this bound, no such plan is cheaper. If it is below the bound, no such plan has the
    # same cost and no waits.
    min_late_cost = horizon + 1 + solo_cost - max_distance
    optimal &= (cost == bounds.min_cost) | (cost <= min_late_cost)
    optimal &= (
        waitless.solved | ~_is_wait_undecided(plans, bounds, solo_cost) | (cost < min_late_cost)
    )
    optimal &= ~waitless.gave_up
    unproved_status = jnp.where(~is_connected | is_unsolvable, Status.UNSOLVABLE, Status.UNKNOWN)
    status = jnp.where(optimal, Status.OPTIMAL, unproved_status)

    def make_plan(paths: jax.Array) -> jax.Array:
        actions = batch_major_actions(path_actions(paths))
        return jnp.where(optimal[:, None, None], actions, jnp.int8(-1))

    solution = Solution(
        status=status.astype(jnp.int8),
        sum_of_costs=jnp.where(optimal, cost, jnp.int16(-1)),
        makespan=jnp.where(optimal, makespan, jnp.int16(-1)),
        needs_wait=optimal & (cost > solo_cost) & ~waitless.solved & has_waits(plans.paths),
        plan=make_plan(plans.paths),
        makespan_plan=make_plan(shortest_paths),
        expansions=costs.expansions + makespans.expansions + waitless.expansions,
    )
    max_sizes = [axis_size - 2 for axis_size in DENSE_AXIS_SIZES[batch.agent_mask.shape[1]]]
    masks = [is_undecided & ~optimal & fits for fits in split_by_size(bounds.sizes, max_sizes)]
    is_proved = (plans.makespan == bounds.min_makespan) | (
        is_undecided & ~costs.gave_up & ~makespans.gave_up
    )
    shortest = ShortestPlans(
        proved=is_proved & (makespan < NEVER),
        makespan=makespan,
        plan=batch_major_actions(path_actions(shortest_paths)),
    )
    solution, shortest = materialize((solution, shortest), jnp.any(boards.solo_distances <= NEVER))
    tree_bounds = jnp.array([[makespans.bound, makespan], [costs.bound, cost]], jnp.int32)
    return TreeResults(solution, shortest, tree_bounds, jnp.stack(masks))


def _search_trees(
    batch: Instance, planning: _PlannedBoards, bounds: _BoundedBoards, horizon: int, limits: Limits
) -> tuple[QueryResults, QueryResults, QueryResults]:
    """Search for the sum of costs, the makespan, and plans without waits."""
    B, K = batch.agent_mask.shape
    boards, best_known = planning
    _, solo_distances, solo_cost, _ = _summarise_distances(boards)
    known_cost = best_known.sum_of_costs
    last_cost = jnp.where(known_cost < NEVER, known_cost - 1, jnp.int16(K * horizon))

    def make_queries(
        sum_objective: bool,
        may_wait: bool,
        min_bound: jax.Array,
        max_bound: jax.Array,
        active: jax.Array,
    ) -> TreeQueries:
        return TreeQueries(
            *boards[:3],
            solo_distances=solo_distances,
            staircases=bounds.staircases,
            pair_costs=bounds.pair_costs if may_wait else bounds.waitless_pair_costs,
            sum_objective=jnp.full(B, sum_objective),
            may_wait=jnp.full(B, may_wait),
            min_bound=min_bound.astype(jnp.int16),
            max_bound=max_bound.astype(jnp.int16),
            max_expansions=bounds.max_expansions,
            active=active,
        )

    cost_queries = make_queries(True, True, bounds.min_cost, last_cost, bounds.may_be_cheaper)
    first_queries = _concatenate(cost_queries, cost_queries._replace(active=jnp.zeros(B, bool)))

    def make_other_queries(costs: QueryResults) -> TreeQueries:
        best_plans = _update_best_plans(best_known, costs)
        cost = best_plans.sum_of_costs
        # Without the optimal cost a board stays UNKNOWN, so it needs no further search.
        has_cost = bounds.undecided & (cost < NEVER) & ~costs.gave_up
        waitless_queries = make_queries(
            True, False, cost, cost, has_cost & _is_wait_undecided(best_plans, bounds, solo_cost)
        )
        last_makespan = jnp.where(best_plans.makespan < NEVER, best_plans.makespan - 1, horizon)
        may_be_shorter = has_cost & (bounds.min_makespan <= last_makespan)
        return _concatenate(
            make_queries(False, True, bounds.min_makespan, last_makespan, may_be_shorter),
            waitless_queries,
        )

    def search(
        previous_results: QueryResults, is_first: jax.Array
    ) -> tuple[QueryResults, QueryResults]:
        queries = jax.tree.map(
            lambda x, y: jnp.where(is_first, x, y),
            first_queries,
            make_other_queries(_split_results(previous_results)[0]),
        )
        results = search_with_teams(queries, horizon, limits)
        return results, results

    # Search for the cost first, in a loop so that the search is compiled once.
    initial_results = empty_results(first_queries, horizon)
    _, results = jax.lax.scan(search, initial_results, jnp.array([True, False]))
    costs, _ = _split_results(jax.tree.map(lambda leaf: leaf[0], results))
    makespans, waitless = _split_results(jax.tree.map(lambda leaf: leaf[1], results))
    return costs, makespans, waitless


def _update_best_plans(best: BestPlans, costs: QueryResults) -> BestPlans:
    """Return the best known plans after the search for the sum of costs."""
    length = path_makespan(costs.paths)
    is_shorter = costs.solved & (length < best.makespan)
    return BestPlans(
        sum_of_costs=jnp.where(costs.solved, costs.bound, best.sum_of_costs),
        paths=jnp.where(costs.solved, costs.paths, best.paths),
        makespan=jnp.where(is_shorter, length, best.makespan),
        makespan_paths=jnp.where(is_shorter, costs.paths, best.makespan_paths),
    )


def _is_wait_undecided(plans: BestPlans, bounds: _BoundedBoards, solo_cost: jax.Array) -> jax.Array:
    """Return whether a plan with this cost and without waits may exist, bool (B,)."""
    cost = plans.sum_of_costs
    # A plan without excess has no waits, and on a bipartite grid an odd excess requires a wait.
    # The question is open for an even excess if the known plan has waits.
    is_even = (cost > solo_cost) & ((cost - solo_cost) % 2 == 0)
    return is_even & (bounds.min_waitless_cost <= cost) & has_waits(plans.paths)


def _split_results(results: QueryResults) -> tuple[QueryResults, QueryResults]:
    B = results.solved.shape[0] // 2
    return (
        jax.tree.map(lambda leaf: leaf[..., :B], results),
        jax.tree.map(lambda leaf: leaf[..., B:], results),
    )


def _concatenate(first: TreeQueries, second: TreeQueries) -> TreeQueries:
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y], axis=-1), first, second)


def solve_by_tiers(
    instances: Instance,
    max_expansions: jax.Array | None,
    horizon: int,
    limits: Limits,
    *,
    single: bool,
    fast_compile: bool,
) -> Solution:
    """Solve a batch, or a `single` board, with separate programs for the tiers (docs/solver.md).

    A program runs only if undecided boards remain. The result equals that of `solve_many_agents`.

    Args:
        instances: Leaves (B, ...), or (...) of a `single` board; concrete arrays.
        max_expansions: int32 () or (B,), number of agents that a search may replan, or None for
            `DEFAULT_MAX_EXPANSIONS`.
        horizon: Longest plan in steps (static).
        limits: Number of boards to process at once (static).
        single: Whether `instances` is one board.
        fast_compile: Whether to compile faster, but search more slowly.

    Returns:
        Solutions with leaves (B, ...), or (...) of a `single` board.
    """
    if not single and len(instances.agent_mask) == 0:
        return empty_solutions(horizon, instances.agent_mask.shape[-1])
    plan, bound, search, solve_remaining = _get_programs(fast_compile)
    batch, planning, solutions, is_undecided = plan(
        instances, horizon=horizon, limits=limits, single=single
    )
    if is_undecided:
        bounds = bound(batch, planning, max_expansions, horizon=horizon, limits=limits)
        results = search(batch, planning, bounds, horizon=horizon, limits=limits)
        has_boards = np.any(results.remaining, axis=1)
        for size_index in np.flatnonzero(has_boards).tolist():
            results = solve_remaining(
                batch, results, horizon=horizon, limits=limits, size_index=size_index
            )
        solutions = results.solution
        if single:
            solutions = _first_solution(solutions)
    return solutions


@partial(jit_search, static_argnames=("horizon", "limits", "single"))
def _run_planning_tiers(
    instances: Instance, *, horizon: int, limits: Limits, single: bool
) -> tuple[Instance, _PlannedBoards, Solution, jax.Array]:
    """Run tiers 1 and 2; return the batch, its plans, solutions, and whether boards are undecided.

    If no board is undecided, the solutions are final.
    """
    batch = jax.tree.map(lambda leaf: leaf[None], instances) if single else instances
    planning = _plan_boards(batch, horizon, limits)
    boards, best_plans = planning
    is_connected = jnp.all(boards.solo_distances < NEVER, axis=0)
    solo_cost = jnp.sum(boards.solo_distances, axis=0, dtype=jnp.int16)
    no_cost = jnp.int16(-1)
    plans = [
        jnp.where(
            is_connected[:, None, None], batch_major_actions(path_actions(paths)), jnp.int8(-1)
        )
        for paths in (best_plans.paths, best_plans.makespan_paths)
    ]
    solutions = Solution(
        status=jnp.where(is_connected, jnp.int8(Status.OPTIMAL), jnp.int8(Status.UNSOLVABLE)),
        sum_of_costs=jnp.where(is_connected, best_plans.sum_of_costs, no_cost),
        makespan=jnp.where(is_connected, best_plans.makespan, no_cost),
        needs_wait=jnp.zeros_like(is_connected),
        plan=plans[0],
        makespan_plan=plans[1],
        expansions=jnp.zeros(is_connected.shape, jnp.int32),
    )
    is_undecided = jnp.any(is_connected & (best_plans.sum_of_costs > solo_cost))
    if single:
        solutions = jax.tree.map(lambda leaf: leaf[0], solutions)
    return batch, planning, solutions, is_undecided


_run_pair_tiers = jit_search(_bound_boards, static_argnames=("horizon", "limits"))
_run_tree_tier = jit_search(_search_boards, static_argnames=("horizon", "limits"))
_run_dense_tier = jit_search(
    dense_search.solve_remaining, static_argnames=("horizon", "limits", "size_index")
)


def _get_programs(fast_compile: bool) -> tuple[Any, ...]:
    """Return the compiled programs of the tiers, in order."""
    programs = (_run_planning_tiers, _run_pair_tiers, _run_tree_tier, _run_dense_tier)
    return tuple(program.fast_compile for program in programs) if fast_compile else programs


@jax.jit
def _first_solution(solutions: Solution) -> Solution:
    return jax.tree.map(lambda leaf: leaf[0], solutions)
