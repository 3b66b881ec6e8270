"""Depth-first conflict-based search in many constraint trees at once.

Each of B lanes searches the tree of one of Q queries. When it finishes, it starts the next query.
design_notes/solver.md describes the algorithm.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver.chunks import (
    EXPANSIONS_BEFORE_TEAM,
    NODE_LANES,
    SHARED_SPLITS,
    TEAM_LANES,
    Limits,
    order_active_first,
)
from jaxlake.solver.kernels import tree
from jaxlake.solver.materialize import materialize
from jaxlake.solver.pairs import arrivals
from jaxlake.solver.pairs.bounds import best_matching, pair_gains
from jaxlake.solver.space_time import ABSENT, NEVER
from jaxlake.solver.trees import node as tree_node
from jaxlake.solver.trees.conflicts import (
    FORCED,
    NONE,
    PathConflict,
    arrival_conflict,
    choose_conflict,
)
from jaxlake.solver.trees.lanes import MAX_DEPTH, Teams, TreeLanes, make_lanes, start_queries
from jaxlake.solver.trees.node import QueryResults, TreeLevel, TreeQueries, empty_results

_STAGES = ((1, 0, EXPANSIONS_BEFORE_TEAM), (TEAM_LANES, SHARED_SPLITS, np.iinfo(np.int32).max))
"""Per stage: lanes per query, splits that they divide, and the limit on replanned agents."""


class _SearchState(NamedTuple):
    lanes: TreeLanes
    results: QueryResults
    num_started: jax.Array  # int32 (), number of started queries


def search_with_teams(queries: TreeQueries, horizon: int, limits: Limits) -> QueryResults:
    """Search each tree with one lane, then the unfinished trees with teams of lanes."""
    R, Q = queries.free.shape
    backend = tree.select_backend(limits.kernels, R, horizon)
    if backend is not None:
        search = partial(tree.search_trees, horizon=horizon, backend=backend, limits=limits)
    else:
        # Two queries per board. The number of lanes is a power of two, which team sizes divide.
        lane_bytes = 8 * len(queries.starts) * (horizon + 1) * R * queries.free.dtype.itemsize
        max_lanes = limits.max_items(limits.tree_lanes, lane_bytes)
        num_lanes = min(1 << (max_lanes.bit_length() - 1), 1 << (Q // 2 - 1).bit_length())
        num_lanes = max(TEAM_LANES, num_lanes)
        search = partial(search_trees, horizon=horizon, lanes=num_lanes)

    def run_stage(
        previous_results: QueryResults, stage: tuple[jax.Array | int, ...], **options: Any
    ) -> tuple[QueryResults, None]:
        team, split, stage_limit = stage
        active = previous_results.gave_up
        open_queries = queries._replace(
            min_bound=previous_results.bound,
            max_expansions=jnp.minimum(queries.max_expansions, stage_limit),
            active=active,
        )
        results = search(open_queries, team=team, split=split, **options)
        return results._replace(
            solved=previous_results.solved | results.solved,
            bound=jnp.where(active, results.bound, previous_results.bound),
            expansions=previous_results.expansions + results.expansions,
            paths=jnp.where(active, results.paths, previous_results.paths),
        ), None

    initial = empty_results(queries, horizon)._replace(gave_up=queries.active)
    if backend is not None:
        lane_stage, team_stage = _STAGES
        return run_stage(run_stage(initial, lane_stage)[0], team_stage, helpers=NODE_LANES)[0]
    # A loop over both stages, so that the search compiles once.
    return jax.lax.scan(run_stage, initial, tuple(map(jnp.array, zip(*_STAGES, strict=True))))[0]


def search_trees(
    queries: TreeQueries,
    *,
    horizon: int,
    lanes: int,
    team: jax.Array | int = 1,
    split: jax.Array | int = 0,
) -> QueryResults:
    """Return the results of all active queries, and unsolved results for inactive queries.

    Args:
        queries: Q queries. A `min_bound` below the true lower bound only costs time.
        horizon: T, the maximum number of steps of a plan (static).
        lanes: B, the number of nodes searched at once (static).
        team: Number of lanes that search the tree of one query together, a divisor of B.
        split: Number of splits at the top of a tree that a team divides, at most 14.
    """
    teams = Teams(*(jnp.asarray(x, jnp.int32) for x in (team, split)))
    order = order_active_first(queries.active)
    num_active = jnp.sum(queries.active, dtype=jnp.int32)
    B = lanes

    def refill(state: _SearchState) -> _SearchState:
        lanes, results = _collect_results(state.lanes, state.results, teams)
        is_idle = lanes.query_index < 0
        leads_team = is_idle & (jnp.arange(B, dtype=jnp.int32) % teams.size == 0)
        # All lanes of a team get the same position in the query order.
        position = state.num_started + jnp.cumsum(leads_team, dtype=jnp.int32) - 1
        is_starting = is_idle & (position < num_active)
        query_index = order[jnp.where(is_starting, position, 0)]
        num_started = state.num_started + jnp.sum(is_starting & leads_team, dtype=jnp.int32)
        lanes = start_queries(lanes, queries, query_index, is_starting, teams)
        return _SearchState(lanes, results, num_started)

    def step(state: _SearchState) -> _SearchState:
        is_finished = state.lanes.done | (state.lanes.query_index < 0)
        num_waiting = num_active - state.num_started
        # A refill rewrites all lanes, so it waits until an eighth of them have finished.
        is_due = jnp.sum(is_finished, dtype=jnp.int32) >= jnp.maximum(teams.size, B // 8)
        state = jax.lax.cond(
            (num_waiting > 0) & is_due | jnp.all(is_finished), refill, lambda state: state, state
        )
        return state._replace(lanes=_expand(state.lanes, teams))

    def is_unfinished(state: _SearchState) -> jax.Array:
        is_busy = jnp.any((state.lanes.query_index >= 0) & ~state.lanes.done)
        return is_busy | (state.num_started < num_active)

    idle_lanes = make_lanes(queries, jnp.zeros(B, jnp.int32), horizon, teams)
    idle_lanes = idle_lanes._replace(query_index=idle_lanes.query_index - 1)
    initial_state = _SearchState(idle_lanes, empty_results(queries, horizon), jnp.int32(0))
    final_state = jax.lax.while_loop(is_unfinished, step, initial_state)
    return _collect_results(final_state.lanes, final_state.results, teams)[1]


def _collect_results(
    lanes: TreeLanes, results: QueryResults, teams: Teams
) -> tuple[TreeLanes, QueryResults]:
    """Write the results of the teams that are done, and free their lanes."""
    Q = results.solved.shape[0]
    # The first lane with a plan reports for its team; without a plan, the first lane does.
    is_same_team, precedes = _team_masks(lanes.solved.shape[0], teams)
    other_reports = jnp.any(is_same_team & precedes & lanes.solved, axis=1) | (
        jnp.any(is_same_team & (lanes.solved | precedes), axis=1) & ~lanes.solved
    )
    reports = lanes.done & (lanes.query_index >= 0) & ~other_reports
    target = jnp.where(reports, lanes.query_index, Q)
    lane_results = QueryResults(
        solved=lanes.solved,
        gave_up=lanes.gave_up,
        bound=lanes.bound,
        expansions=_masked_sum(lanes.expansions, is_same_team),
        paths=lanes.node.paths & (FORCED - 1),
    )
    results = jax.tree.map(
        lambda leaf, update: leaf.at[..., target].set(update, mode="drop"), results, lane_results
    )
    query_index = jnp.where(lanes.done, -1, lanes.query_index)
    return lanes._replace(query_index=query_index, done=jnp.zeros_like(lanes.done)), results


def _team_masks(num_lanes: int, teams: Teams) -> tuple[jax.Array, jax.Array]:
    """Return whether lane j is in the team of lane i, and whether j < i, bool (B, B) each."""
    lane = jnp.arange(num_lanes)
    team = lane // teams.size
    return team[:, None] == team, lane[:, None] > lane


def _masked_sum(values: jax.Array, mask: jax.Array) -> jax.Array:
    """Return, for each row of a mask, bool (B, B), the sum of the selected values (B,)."""
    return jnp.sum(jnp.where(mask, values.astype(jnp.int32), 0), axis=1, dtype=jnp.int32)


def _next_child(child: jax.Array, depth: jax.Array, teams: Teams) -> jax.Array:
    """Return the child after a finished one, or 2 if there is none for this lane."""
    return jnp.where(depth < teams.split, jnp.int16(2), child + 1)


def _expand(lanes: TreeLanes, teams: Teams) -> TreeLanes:
    """Expand one child of the current node in every lane, or plan one agent of the root."""
    K, times, B = lanes.node.paths.shape
    T = times - 1
    b = jnp.arange(B)
    query, depth, level, agent = lanes.query, lanes.depth, lanes.level, lanes.agent
    active = (lanes.query_index >= 0) & ~lanes.done & ~lanes.prefix_done
    plans_root = active & (lanes.num_planned < K)
    splits = active & ~plans_root

    # Replan the agent, with the latest arrival at which the node can be within the bound.
    node, (limit, fixed) = tree_node.toggle_constraint(lanes.node, level, splits)
    level = level._replace(limit=limit, fixed=fixed)
    is_absent = tree_node.select_entry(query.goals, agent) == ABSENT
    old_cost = tree_node.select_entry(node.costs, agent)
    old_path = tree_node.select_entry(node.paths, agent)
    other_costs = jnp.sum(node.costs, axis=0, dtype=jnp.int16) - old_cost
    latest_within_bound = jnp.where(query.sum_objective, lanes.bound - other_costs, lanes.bound)
    latest_allowed = jnp.minimum(tree_node.select_entry(node.latest, agent), T)
    latest = jnp.minimum(latest_allowed, latest_within_bound)
    path, arrival, buffers = tree_node.replan_agent(
        query, lanes.buffers, node, agent, jnp.where(active & ~is_absent, latest, jnp.int16(-1))
    )
    arrival = jnp.where(is_absent, jnp.int16(0), arrival)
    path = jnp.where(is_absent, old_path, path)

    opaque_true = jnp.any(lanes.query_index >= 0)  # a search without queries ends
    path, arrival, old_path = materialize((path, arrival, old_path), opaque_true)
    has_path = active & (arrival != NEVER)
    costs = tree_node.replace_agent(node.costs, agent, arrival, has_path)
    estimate, arrivals_conflict = _estimate_cost(query, costs, opaque_true)
    fits = has_path & (estimate <= lanes.bound)
    fits, estimate = materialize((fits, estimate), opaque_true)
    paths = tree_node.replace_agent(node.paths, agent, path, fits)
    conflict, num_conflicts = choose_conflict(paths, costs, query.sum_objective, lanes.bound)
    is_late = query.sum_objective & (arrivals_conflict.kind != NONE) & (conflict.kind != NONE)
    conflict = jax.tree.map(lambda x, y: jnp.where(is_late, x, y), arrivals_conflict, conflict)

    # A fitting path is either taken without the constraint (bypass), or its child is entered. With
    # a bound on the makespan, a bypass may arrive at another time.
    is_same_time = arrival == old_cost
    bypass = splits & fits & (is_same_time | ~query.sum_objective)
    bypass &= (num_conflicts < level.num_conflicts) & (depth >= teams.split)
    enter = splits & fits & ~bypass
    fails = active & ~fits
    # If a later arrival is allowed but exceeds the bound, a plan may exist one above the bound.
    is_infeasible = ~has_path & (latest_within_bound >= latest_allowed)
    cut_cost = jnp.where(has_path, estimate, lanes.bound + 1)
    next_bound = jnp.where(
        fails & ~is_infeasible, jnp.minimum(lanes.next_bound, cut_cost), lanes.next_bound
    )
    bypass, enter, next_bound, conflict = materialize(
        (bypass, enter, next_bound, conflict), opaque_true
    )

    # The constraint remains only if its child becomes the current node.
    node, _ = tree_node.toggle_constraint(node, level, splits & ~enter, undo=True)
    # The FORCED flags of a bypass hold only under the constraint. But a path with the old cost
    # passes through every cell in which the old path was forced.
    bypass_path = (path & (FORCED - 1)) | jnp.where(is_same_time, old_path & FORCED, jnp.int16(0))
    path = jnp.where(bypass, bypass_path, path)
    node = node._replace(
        paths=tree_node.replace_agent(node.paths, agent, path, fits),
        costs=jnp.where(fits, costs, node.costs),
    )
    child = jnp.where(splits & fails, _next_child(level.child, depth, teams), level.child)
    level = level._replace(child=child, cost=old_cost)
    branch = tree_node.write_level(lanes.branch, depth, level)
    saved_path = jnp.where(enter[:, None], old_path.T, branch.paths[b, depth])
    branch = branch._replace(paths=branch.paths.at[b, depth].set(saved_path))

    # Write the conflict of the new node, and its first child.
    depth = jnp.where(enter, depth + 1, depth)
    is_too_deep = depth >= MAX_DEPTH
    depth = jnp.minimum(depth, MAX_DEPTH - 1)
    root_planned = plans_root & fits & (lanes.num_planned == K - 1)
    is_new_node = enter | bypass | root_planned
    prefix_child = (lanes.prefix >> jnp.minimum(depth, 14)) & 1
    child = jnp.where(depth < teams.split, prefix_child, 0).astype(jnp.int16)
    zero = jnp.zeros(B, jnp.int16)
    new_level = jax.tree.map(
        lambda x, y: jnp.where(is_new_node, x, y),
        TreeLevel(conflict, child, num_conflicts, zero, zero, zero),
        tree_node.read_level(branch, depth),
    )
    branch = tree_node.write_level(branch, depth, new_level)

    is_solved = is_new_node & (conflict.kind == NONE)
    gave_up = active & ~is_solved & is_too_deep
    # A root without a plan within the bound is searched again with the next bound.
    root_failed = plans_root & fails
    root_refuted = root_failed & (next_bound > query.max_bound)
    lanes = lanes._replace(
        bound=jnp.where(root_failed & ~root_refuted, next_bound, lanes.bound),
        next_bound=jnp.where(root_failed, jnp.int16(NEVER), next_bound),
        num_planned=jnp.where(plans_root & fits, lanes.num_planned + 1, lanes.num_planned),
        depth=depth,
        expansions=lanes.expansions + active,
        done=lanes.done | is_solved | gave_up | root_refuted,
        solved=lanes.solved | is_solved,
        gave_up=lanes.gave_up | gave_up,
        node=node,
        last_forbidden_time=jnp.maximum(
            lanes.last_forbidden_time, jnp.where(splits, level.conflict.time, jnp.int16(0))
        ),
        branch=branch,
        buffers=buffers,
    )
    lanes = _backtrack(lanes, splits & fails & ~gave_up, teams)
    lanes = _coordinate_teams(lanes, root_planned, teams)
    level = tree_node.read_level(lanes.branch, lanes.depth)
    agent = jnp.where(lanes.num_planned < K, lanes.num_planned, tree_node.constrained_agent(level))
    return lanes._replace(level=level, agent=agent)


def _estimate_cost(
    query: TreeQueries, costs: jax.Array, opaque_true: jax.Array
) -> tuple[jax.Array, PathConflict]:
    """Return a lower bound, int16 (B,), on the cost below nodes with `costs`, (K, B).

    The second result is the ARRIVAL conflict between the agents, if any.
    """
    excesses = list(jnp.maximum(costs - query.solo_distances, 0))
    # Many results use these values. Storing them avoids recomputation and keeps the code small.
    stair = materialize(arrivals.look_up_all_pairs(query.staircases, excesses), opaque_true)
    stairs = [arrivals.Stair(*(leaf[p] for leaf in stair)) for p in range(len(stair.gain))]
    gains = pair_gains(list(costs), list(query.pair_costs), stairs)
    sum_of_costs = jnp.sum(costs, axis=0, dtype=jnp.int16) + best_matching(gains, len(costs))
    estimate = jnp.where(query.sum_objective, sum_of_costs, jnp.max(costs, axis=0))
    return estimate, arrival_conflict(stairs, excesses, list(query.solo_distances))


def _backtrack(lanes: TreeLanes, failed: jax.Array, teams: Teams) -> TreeLanes:
    """Leave nodes whose children are both refuted, up to a node with a remaining child."""
    b = jnp.arange(lanes.depth.shape[0])
    opaque_true = jnp.any(lanes.query_index >= 0)  # a search without queries ends

    def is_exhausted(lanes: TreeLanes) -> jax.Array:
        child = lanes.branch.levels[tree_node.CHILD_FIELD, lanes.depth, b]
        return failed & ~lanes.done & ~lanes.prefix_done & (child > 1)

    def leave_node(lanes: TreeLanes) -> TreeLanes:
        exhausted = is_exhausted(lanes)
        at_root = exhausted & (lanes.depth == 0)
        is_leaving = exhausted & ~at_root
        depth = jnp.where(is_leaving, lanes.depth - 1, lanes.depth)
        level = tree_node.read_level(lanes.branch, depth)
        agent = tree_node.constrained_agent(level)
        node, _ = tree_node.toggle_constraint(lanes.node, level, is_leaving, undo=True)
        path, is_leaving, agent = materialize(
            (lanes.branch.paths[b, depth].T, is_leaving, agent), opaque_true
        )
        node = node._replace(
            paths=tree_node.replace_agent(node.paths, agent, path, is_leaving),
            costs=tree_node.replace_agent(node.costs, agent, level.cost, is_leaving),
        )
        child = jnp.where(is_leaving, _next_child(level.child, depth, teams), level.child)
        return lanes._replace(
            prefix_done=lanes.prefix_done | at_root,
            depth=depth,
            node=node,
            branch=tree_node.write_level(lanes.branch, depth, level._replace(child=child)),
        )

    return jax.lax.while_loop(lambda lanes: jnp.any(is_exhausted(lanes)), leave_node, lanes)


def _coordinate_teams(lanes: TreeLanes, root_planned: jax.Array, teams: Teams) -> TreeLanes:
    """Assign prefixes to idle lanes, raise the bounds of teams, and end finished teams."""
    B = lanes.query_index.shape[0]
    is_same_team, precedes = _team_masks(B, teams)
    num_prefixes = jnp.int32(1) << teams.split

    def team_has(flags: jax.Array) -> jax.Array:
        return jnp.any(is_same_team & flags, axis=1)

    is_busy = lanes.query_index >= 0
    is_finished = team_has(is_busy & (lanes.solved | lanes.gave_up | lanes.done))
    num_expansions = _masked_sum(lanes.expansions, is_same_team)
    reached_limit = is_busy & ~is_finished & (num_expansions >= lanes.query.max_expansions)
    gave_up = (team_has(lanes.gave_up) & ~team_has(lanes.solved)) | reached_limit
    is_searching = is_busy & ~is_finished & ~reached_limit

    # A lane without a prefix becomes idle as soon as the root is planned.
    prefix_done = lanes.prefix_done | (root_planned & (lanes.prefix >= num_prefixes))
    is_idle = is_searching & prefix_done
    new_prefix = lanes.next_prefix + _masked_sum(is_idle, is_same_team & precedes)
    next_prefix = lanes.next_prefix + _masked_sum(is_idle, is_same_team)
    # The bound is refuted when all prefixes are assigned and all lanes are idle. Then all lanes
    # restart with the least cost that any of them cut as the bound, or the team ends.
    is_refuted = is_searching & ~team_has(~is_idle) & (lanes.next_prefix >= num_prefixes)
    next_bound = jnp.min(jnp.where(is_same_team, lanes.next_bound, jnp.int16(NEVER)), axis=1)
    raises_bound = is_refuted & (next_bound <= lanes.query.max_bound)
    rank = jnp.arange(B, dtype=jnp.int32) % teams.size
    new_prefix = jnp.where(raises_bound, rank, new_prefix)
    next_prefix = jnp.where(raises_bound, teams.size, next_prefix)
    is_starting = is_idle & (new_prefix < num_prefixes)
    prefix = jnp.where(is_starting, new_prefix, lanes.prefix)

    # If splits are shared, every prefix starts with the paths of the root.
    node = lanes.node
    root_paths = jnp.where(root_planned, node.paths, lanes.root_paths)
    root_costs = jnp.where(root_planned, node.costs, lanes.root_costs)
    is_restarting = is_starting & (teams.split > 0)
    levels = lanes.branch.levels
    child = jnp.where(is_restarting, prefix & 1, 0).astype(jnp.int16)
    root_child = jnp.where(is_starting, child, levels[tree_node.CHILD_FIELD, 0])
    return lanes._replace(
        prefix=prefix,
        next_prefix=jnp.where(
            is_searching, jnp.minimum(next_prefix, num_prefixes), lanes.next_prefix
        ),
        prefix_done=prefix_done & ~is_starting,
        root_paths=root_paths,
        root_costs=root_costs,
        node=node._replace(
            paths=jnp.where(is_restarting, root_paths, node.paths),
            costs=jnp.where(is_restarting, root_costs, node.costs),
        ),
        bound=jnp.where(raises_bound, next_bound, lanes.bound),
        next_bound=jnp.where(raises_bound, jnp.int16(NEVER), lanes.next_bound),
        done=lanes.done | is_finished | reached_limit | (is_refuted & ~raises_bound),
        gave_up=gave_up,
        branch=lanes.branch._replace(levels=levels.at[tree_node.CHILD_FIELD, 0].set(root_child)),
    )
