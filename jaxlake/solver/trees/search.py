"""Depth-first conflict-based search, one constraint tree per lane.

A lane that finishes takes the next query. design_notes/solver.md describes the algorithm.
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
    Widths,
    order_active_first,
)
from jaxlake.solver.kernels import tree
from jaxlake.solver.materialize import materialize
from jaxlake.solver.pairs import arrivals
from jaxlake.solver.pairs.bounds import best_matching, pair_gains
from jaxlake.solver.space_time import ABSENT, NEVER
from jaxlake.solver.trees import node as tree_node
from jaxlake.solver.trees.conflicts import FORCED, NONE, arrival_conflict, choose_conflict
from jaxlake.solver.trees.lanes import MAX_DEPTH, Teams, TreeLanes, new_lanes, start_queries
from jaxlake.solver.trees.node import TreeAnswers, TreeLevel, TreeQueries, empty_answers

_EFFORTS = (
    (1, 0, EXPANSIONS_BEFORE_TEAM),
    (TEAM_LANES, SHARED_SPLITS, np.iinfo(np.int32).max),
)
"""Per stage: tree nodes per query, splits that they share, and the limit on replanned agents."""


class _SearchState(NamedTuple):
    lanes: TreeLanes
    answers: TreeAnswers
    served: jax.Array  # int32 (), queries handed out


def search_with_teams(queries: TreeQueries, horizon: int, widths: Widths) -> TreeAnswers:
    """Search each tree with one lane, then the unfinished trees with teams of lanes."""
    R, Q = queries.free.shape
    backend = tree.select_backend(widths.kernels, R, horizon)
    if backend is not None:
        search = partial(tree.search_trees, horizon=horizon, backend=backend, widths=widths)
    else:
        # Two queries per board; the number of lanes is a power of two, so that teams divide it.
        sets = 8 * len(queries.starts) * (horizon + 1) * R * queries.free.dtype.itemsize
        max_lanes = widths.fitting(widths.tree_lanes, sets)
        lanes = min(1 << (max_lanes.bit_length() - 1), 1 << (Q // 2 - 1).bit_length())
        lanes = max(TEAM_LANES, lanes)
        search = partial(search_trees, horizon=horizon, lanes=lanes)

    def run_stage(
        previous: TreeAnswers, effort: tuple[jax.Array | int, ...], **options: Any
    ) -> tuple[TreeAnswers, None]:
        team, split, max_expansions = effort
        active = previous.gave_up
        budget = jnp.minimum(queries.budget, max_expansions)
        open_queries = queries._replace(first=previous.bound, budget=budget, active=active)
        answers = search(open_queries, team=team, split=split, **options)
        return answers._replace(
            solved=previous.solved | answers.solved,
            bound=jnp.where(active, answers.bound, previous.bound),
            expansions=previous.expansions + answers.expansions,
            paths=jnp.where(active, answers.paths, previous.paths),
        ), None

    initial = empty_answers(queries, horizon)._replace(gave_up=queries.active)
    if backend is not None:
        lane_effort, team_effort = _EFFORTS
        return run_stage(run_stage(initial, lane_effort)[0], team_effort, helpers=NODE_LANES)[0]
    # One loop for both stages, so that the search compiles once.
    return jax.lax.scan(run_stage, initial, tuple(map(jnp.array, zip(*_EFFORTS, strict=True))))[0]


def search_trees(
    queries: TreeQueries,
    *,
    horizon: int,
    lanes: int,
    team: jax.Array | int = 1,
    split: jax.Array | int = 0,
) -> TreeAnswers:
    """Return the answers of all active queries; inactive queries get empty answers.

    A first bound below the true lower bound only costs time.

    Args:
        queries: Q queries.
        horizon: T, the maximum number of steps of a plan (static).
        lanes: B, the number of nodes searched at once (static).
        team: Number of lanes that work on one query together, a divisor of B.
        split: Number of splits at the top of a tree that a team divides, at most 14.
    """
    teams = Teams(*(jnp.asarray(x, jnp.int32) for x in (team, split)))
    order = order_active_first(queries.active)
    num_active = jnp.sum(queries.active, dtype=jnp.int32)
    B = lanes

    def refill(state: _SearchState) -> _SearchState:
        lanes, answers = _hand_in_answers(state.lanes, state.answers, teams)
        empty = lanes.query < 0
        leads = empty & (jnp.arange(B, dtype=jnp.int32) % teams.size == 0)
        # All lanes of a team get the same position in the query order.
        place = state.served + jnp.cumsum(leads, dtype=jnp.int32) - 1
        starting = empty & (place < num_active)
        query = order[jnp.where(starting, place, 0)]
        served = state.served + jnp.sum(starting & leads, dtype=jnp.int32)
        return _SearchState(start_queries(lanes, queries, query, starting, teams), answers, served)

    def step(state: _SearchState) -> _SearchState:
        finished = state.lanes.done | (state.lanes.query < 0)
        waiting = num_active - state.served
        # A refill rewrites all lanes, so it waits until an eighth of them are free.
        due = jnp.sum(finished, dtype=jnp.int32) >= jnp.maximum(teams.size, B // 8)
        state = jax.lax.cond(
            (waiting > 0) & due | jnp.all(finished), refill, lambda state: state, state
        )
        return state._replace(lanes=_expand(state.lanes, teams))

    def unfinished(state: _SearchState) -> jax.Array:
        busy = jnp.any((state.lanes.query >= 0) & ~state.lanes.done)
        return busy | (state.served < num_active)

    idle = new_lanes(queries, jnp.zeros(B, jnp.int32), horizon, teams)
    idle = idle._replace(query=idle.query - 1)
    start = _SearchState(idle, empty_answers(queries, horizon), jnp.int32(0))
    state = jax.lax.while_loop(unfinished, step, start)
    return _hand_in_answers(state.lanes, state.answers, teams)[1]


def _hand_in_answers(
    lanes: TreeLanes, answers: TreeAnswers, teams: Teams
) -> tuple[TreeLanes, TreeAnswers]:
    """Write the answers of the teams that are done, and free their lanes."""
    Q = answers.solved.shape[0]
    # The first lane with a plan answers for its team; without a plan, the first lane does.
    mates, before = _teammates(lanes.solved.shape[0], teams)
    silent = jnp.any(mates & before & lanes.solved, axis=1) | (
        jnp.any(mates & (lanes.solved | before), axis=1) & ~lanes.solved
    )
    target = jnp.where(lanes.done & (lanes.query >= 0) & ~silent, lanes.query, Q)
    lane_answers = TreeAnswers(
        solved=lanes.solved,
        gave_up=lanes.gave_up,
        bound=lanes.bound,
        expansions=_sum_over(lanes.expansions, mates),
        paths=lanes.node.paths & (FORCED - 1),
    )
    answers = jax.tree.map(
        lambda old, new: old.at[..., target].set(new, mode="drop"), answers, lane_answers
    )
    freed = jnp.where(lanes.done, -1, lanes.query)
    return lanes._replace(query=freed, done=jnp.zeros_like(lanes.done)), answers


def _teammates(lanes: int, teams: Teams) -> tuple[jax.Array, jax.Array]:
    """Return, as bool (B, B) each, whether lane j is in lane i's team and whether it precedes i."""
    lane = jnp.arange(lanes)
    team = lane // teams.size
    return team[:, None] == team, lane[:, None] > lane


def _sum_over(values: jax.Array, mates: jax.Array) -> jax.Array:
    """Return the sums, int32 (B,), of values (B,) over the lanes marked by bool (B, B)."""
    return jnp.sum(jnp.where(mates, values.astype(jnp.int32), 0), axis=1, dtype=jnp.int32)


def _next_side(side: jax.Array, depth: jax.Array, teams: Teams) -> jax.Array:
    """Return the side after a finished child: the other child, unless another lane takes it."""
    return jnp.where(depth < teams.split, jnp.int16(2), side + 1)


def _expand(lanes: TreeLanes, teams: Teams) -> TreeLanes:
    """Expand one child of the current node in every lane, or plan one agent of the root."""
    K, times, B = lanes.node.paths.shape
    T = times - 1
    b = jnp.arange(B)
    task, depth, level, agent = lanes.task, lanes.depth, lanes.level, lanes.agent
    active = (lanes.query >= 0) & ~lanes.done & ~lanes.through
    rooting = active & (lanes.planned < K)
    splitting = active & ~rooting

    # Replan the agent, up to the latest arrival at which the node can be within the bound.
    node, (limit, fixed) = tree_node.toggle_constraint(lanes.node, level, splitting)
    tried = level._replace(limit=limit, fixed=fixed)
    constrained = jnp.where(splitting, level.conflict.time, jnp.int16(0))
    absent = tree_node.take_agent(task.goals, agent) == ABSENT
    old_cost = tree_node.take_agent(node.costs, agent)
    old_path = tree_node.take_agent(node.paths, agent)
    other_costs = jnp.sum(node.costs, axis=0, dtype=jnp.int16) - old_cost
    ceiling = jnp.where(task.total, lanes.bound - other_costs, lanes.bound)
    own_latest = tree_node.take_agent(node.latest, agent)
    latest = jnp.minimum(jnp.minimum(own_latest, ceiling), T)
    path, arrival, buffers = tree_node.replan_agent(
        task, lanes.buffers, node, agent, jnp.where(active & ~absent, latest, jnp.int16(-1))
    )
    arrival = jnp.where(absent, jnp.int16(0), arrival)
    path = jnp.where(absent, old_path, path)

    opaque_true = jnp.any(lanes.query >= 0)  # a search without queries ends
    path, arrival, old_path = materialize((path, arrival, old_path), opaque_true)
    planned = active & (arrival != NEVER)
    costs = tree_node.set_agent(node.costs, agent, arrival, planned)
    excesses = list(jnp.maximum(costs - task.solo_distances, 0))
    # Many results use these values. Storing them avoids recomputation and keeps the code small.
    stair = materialize(arrivals.look_up_all_pairs(task.stairs, excesses), opaque_true)
    stairs = [arrivals.Stair(*(leaf[p] for leaf in stair)) for p in range(len(stair.gain))]
    gains = pair_gains(list(costs), list(task.pair_costs), stairs)
    by_pairs = jnp.sum(costs, axis=0, dtype=jnp.int16) + best_matching(gains, K)
    estimate = jnp.where(task.total, by_pairs, jnp.max(costs, axis=0))
    fits = planned & (estimate <= lanes.bound)
    fits, estimate = materialize((fits, estimate), opaque_true)
    paths = tree_node.set_agent(node.paths, agent, path, fits)
    next_conflict, conflicts = choose_conflict(paths, costs, task.total, lanes.bound)
    of_arrivals = arrival_conflict(stairs, excesses, list(task.solo_distances))
    late = task.total & (of_arrivals.kind != NONE) & (next_conflict.kind != NONE)
    next_conflict = jax.tree.map(lambda x, y: jnp.where(late, x, y), of_arrivals, next_conflict)

    # A fitting path is taken without the constraint (bypass), or its child is entered (commit).
    # With a bound on the makespan it may arrive at another time.
    same_time = arrival == old_cost
    bypass = splitting & fits & (same_time | ~task.total) & (conflicts < level.conflicts)
    bypass &= depth >= teams.split
    commit = splitting & fits & ~bypass
    refused = active & ~fits
    # If the replanning hit the ceiling, a plan may exist one above the bound.
    above = jnp.where(planned, estimate, lanes.bound + 1)
    hopeless = ~planned & (ceiling >= jnp.minimum(own_latest, T))
    cut = jnp.where(refused & ~hopeless, jnp.minimum(lanes.cut, above), lanes.cut)

    bypass, commit, cut, next_conflict = materialize(
        (bypass, commit, cut, next_conflict), opaque_true
    )
    # The constraint remains only if its child becomes the current node.
    node, _ = tree_node.toggle_constraint(node, tried, splitting & ~commit, undo=True)
    # FORCED flags of a bypassing path hold under the constraint only. But a path with the same cost
    # as the old one also passes through every cell in which the old one was forced.
    kept_forced = (path & (FORCED - 1)) | jnp.where(same_time, old_path & FORCED, jnp.int16(0))
    new_path = jnp.where(bypass, kept_forced, path)
    node = node._replace(
        paths=tree_node.set_agent(node.paths, agent, new_path, fits),
        costs=jnp.where(fits, costs, node.costs),
    )
    side = jnp.where(splitting & refused, _next_side(level.side, depth, teams), level.side)
    branch = tree_node.write_level(lanes.branch, depth, tried._replace(side=side, cost=old_cost))
    saved = jnp.where(commit[:, None], old_path.T, branch.paths[b, depth])
    branch = branch._replace(paths=branch.paths.at[b, depth].set(saved))

    # Enter the new node: its conflict, and the first side.
    depth = jnp.where(commit, depth + 1, depth)
    too_deep = depth >= MAX_DEPTH
    depth = jnp.minimum(depth, MAX_DEPTH - 1)
    rooted = rooting & fits & (lanes.planned == K - 1)
    arrived = commit | bypass | rooted
    zero = jnp.zeros(B, jnp.int16)
    bit = (lanes.prefix >> jnp.minimum(depth, 14)) & 1
    first = jnp.where(depth < teams.split, bit, 0).astype(jnp.int16)
    new = TreeLevel(next_conflict, first, conflicts, zero, zero, zero)
    new = jax.tree.map(
        lambda x, y: jnp.where(arrived, x, y), new, tree_node.read_level(branch, depth)
    )
    branch = tree_node.write_level(branch, depth, new)

    solved = arrived & (next_conflict.kind == NONE)
    spent = active & ~solved & too_deep
    # A root without a path within the bound is retried with the next bound.
    unrooted = rooting & refused
    next_bound = jnp.where(unrooted, cut, lanes.bound)
    hopeless_root = unrooted & (cut > task.last)
    lanes = lanes._replace(
        bound=jnp.where(hopeless_root, lanes.bound, next_bound),
        cut=jnp.where(unrooted, jnp.int16(NEVER), cut),
        planned=jnp.where(rooting & fits, lanes.planned + 1, lanes.planned),
        depth=depth,
        expansions=lanes.expansions + active,
        done=lanes.done | solved | spent | hopeless_root,
        solved=lanes.solved | solved,
        gave_up=lanes.gave_up | spent,
        node=node,
        last_time=jnp.maximum(lanes.last_time, constrained),
        branch=branch,
        buffers=buffers,
    )
    lanes = _backtrack(lanes, splitting & refused & ~spent, teams)
    lanes = _coordinate_teams(lanes, rooted, teams)
    level = tree_node.read_level(lanes.branch, lanes.depth)
    agent = jnp.where(lanes.planned < K, lanes.planned, tree_node.constrained_agent(level))
    return lanes._replace(level=level, agent=agent)


def _backtrack(lanes: TreeLanes, failed: jax.Array, teams: Teams) -> TreeLanes:
    """Leave nodes whose children are both refuted, up to a node with a remaining child."""
    b = jnp.arange(lanes.depth.shape[0])
    opaque_true = jnp.any(lanes.query >= 0)  # a search without queries ends

    def exhausted(lanes: TreeLanes) -> jax.Array:
        tried = lanes.branch.levels[tree_node.SIDE, lanes.depth, b] > 1
        return failed & ~lanes.done & ~lanes.through & tried

    def leave(lanes: TreeLanes) -> TreeLanes:
        stuck = exhausted(lanes)
        top = stuck & (lanes.depth == 0)
        inner = stuck & ~top
        depth = jnp.where(inner, lanes.depth - 1, lanes.depth)
        level = tree_node.read_level(lanes.branch, depth)
        agent = tree_node.constrained_agent(level)
        node, _ = tree_node.toggle_constraint(lanes.node, level, inner, undo=True)
        path, inner, agent = materialize(
            (lanes.branch.paths[b, depth].T, inner, agent), opaque_true
        )
        node = node._replace(
            paths=tree_node.set_agent(node.paths, agent, path, inner),
            costs=tree_node.set_agent(node.costs, agent, level.cost, inner),
        )
        turned = jnp.where(inner, _next_side(level.side, depth, teams), level.side)
        return lanes._replace(
            through=lanes.through | top,
            depth=depth,
            node=node,
            branch=tree_node.write_level(lanes.branch, depth, level._replace(side=turned)),
        )

    return jax.lax.while_loop(lambda lanes: jnp.any(exhausted(lanes)), leave, lanes)


def _coordinate_teams(lanes: TreeLanes, rooted: jax.Array, teams: Teams) -> TreeLanes:
    """Assign prefixes to idle lanes, raise the bounds of teams, and end finished teams."""
    B = lanes.query.shape[0]
    mates, before = _teammates(B, teams)
    prefixes = jnp.int32(1) << teams.split

    def any_mate(marked: jax.Array) -> jax.Array:
        return jnp.any(mates & marked, axis=1)

    busy = lanes.query >= 0
    over = any_mate(busy & (lanes.solved | lanes.gave_up | lanes.done))
    spent = busy & ~over & (_sum_over(lanes.expansions, mates) >= lanes.task.budget)
    gave_up = (any_mate(lanes.gave_up) & ~any_mate(lanes.solved)) | spent
    open_teams = busy & ~over & ~spent

    # A lane without a prefix is through as soon as the root is planned.
    through = lanes.through | (rooted & (lanes.prefix >= prefixes))
    idle = open_teams & through
    # The bound is refuted when no prefix is left and no lane works on one. Then all lanes restart
    # with the least cost that any of them cut as the bound, or the team ends.
    offered = lanes.next_prefix + _sum_over(idle, mates & before)
    refuted = open_teams & ~any_mate(~idle) & (lanes.next_prefix >= prefixes)
    cut = jnp.min(jnp.where(mates, lanes.cut, jnp.int16(NEVER)), axis=1)
    again = refuted & (cut <= lanes.task.last)
    offered = jnp.where(again, jnp.arange(B, dtype=jnp.int32) % teams.size, offered)
    starting = idle & (offered < prefixes)
    prefix = jnp.where(starting, offered, lanes.prefix)
    handed_out = jnp.where(again, teams.size, lanes.next_prefix + _sum_over(idle, mates))

    # Below a shared split every prefix starts with the paths of the root.
    node = lanes.node
    root = jnp.where(rooted, node.paths, lanes.root)
    root_costs = jnp.where(rooted, node.costs, lanes.root_costs)
    restart = starting & (teams.split > 0)
    levels = lanes.branch.levels
    side = jnp.where(restart, prefix & 1, 0).astype(jnp.int16)
    at_top = jnp.where(starting, side, levels[tree_node.SIDE, 0])
    return lanes._replace(
        prefix=prefix,
        next_prefix=jnp.where(open_teams, jnp.minimum(handed_out, prefixes), lanes.next_prefix),
        through=through & ~starting,
        root=root,
        root_costs=root_costs,
        node=node._replace(
            paths=jnp.where(restart, root, node.paths),
            costs=jnp.where(restart, root_costs, node.costs),
        ),
        bound=jnp.where(again, cut, lanes.bound),
        cut=jnp.where(again, jnp.int16(NEVER), lanes.cut),
        done=lanes.done | over | spent | (refuted & ~again),
        gave_up=gave_up,
        branch=lanes.branch._replace(levels=levels.at[tree_node.SIDE, 0].set(at_top)),
    )
