"""Program of a kernel that searches constraint trees, with the steps of `trees.search`."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from jaxlake.solver.kernels.lanes import any_lane, to_int32
from jaxlake.solver.kernels.tree_branch import (
    CONSTRAINTS_PER_LEVEL,
    Level,
    Levels,
    PathStore,
    limited_agent,
    make_constraints,
)
from jaxlake.solver.kernels.tree_memory import (
    CELL_MASK,
    LANES,
    Helpers,
    LaneQueries,
    Memory,
    ReplanRequest,
    Teams,
    elementwise_max,
    store,
)
from jaxlake.solver.kernels.tree_paths import PathPlanner
from jaxlake.solver.kernels.tree_shared import SharedPathPlanner
from jaxlake.solver.pairs.arrivals import look_up_pairs
from jaxlake.solver.pairs.bounds import best_matching, pair_gains
from jaxlake.solver.pairs.joint_search import Geometry
from jaxlake.solver.space_time import NEVER
from jaxlake.solver.trees.conflicts import (
    ARRIVAL,
    FORCED,
    NONE,
    SWAP,
    TARGET,
    VERTEX,
    PathConflict,
    arrival_conflict,
)
from jaxlake.solver.trees.lanes import MAX_DEPTH
from jaxlake.solver.trees.node import constrained_agent, select_entry


class _Lanes(NamedTuple):
    """Fields of `trees.lanes.TreeLanes`, int32 each; the remaining fields are in memory."""

    bound: jax.Array
    next_bound: jax.Array
    prefix: jax.Array
    next_prefix: jax.Array
    prefix_done: jax.Array
    num_planned: jax.Array
    depth: jax.Array
    expansions: jax.Array
    done: jax.Array  # the query has a result, or the lane has no query
    solved: jax.Array
    gave_up: jax.Array
    costs: tuple[jax.Array, ...]
    earliest: tuple[jax.Array, ...]
    latest: tuple[jax.Array, ...]
    root_costs: tuple[jax.Array, ...]  # `costs` of the root
    bypassed: jax.Array  # whether a bypass changed a path since the lane left the root


def search(*refs: Any, board: Geometry, helpers: int, barrier: bool) -> None:
    """Search this program's share of the queries.

    Every node has `helpers` lanes. With `barrier`, lanes synchronise before they read values that
    other lanes wrote.
    """
    settings, free, starts, goals, solo_distances, pair_costs, staircases, scalars, *outputs = refs
    results, result_paths, *memory = outputs
    lane = jax.lax.broadcasted_iota(jnp.int32, (LANES,), 0)
    num_queries, team_size, split = settings[0], settings[1], settings[2]
    num_teams = jax.lax.div(jnp.int32(LANES // helpers), team_size)
    team_sizes = jnp.zeros_like(lane) + team_size
    node_lanes = Helpers.create(lane, helpers, barrier)
    team, rank = jax.lax.div(node_lanes.node, team_sizes), jax.lax.rem(node_lanes.node, team_sizes)
    teams = Teams(team_sizes, team, rank, split, node_lanes)

    def search_batch(batch: jax.Array) -> jax.Array:
        index = batch * num_teams + teams.team
        agents, pairs = range(starts.shape[0]), range(staircases.shape[1])
        query = LaneQueries(
            free=tuple(free[w, index] for w in range(board.words)),
            starts=tuple(starts[k, index] for k in agents),
            goals=tuple(goals[k, index] for k in agents),
            solo_distances=[solo_distances[k, index] for k in agents],
            pair_costs=[pair_costs[p, index] for p in pairs],
            staircases=[[staircases[w, p, index] for p in pairs] for w in (0, 1)],
            sum_objective=scalars[0, index] != 0,
            may_wait=scalars[1, index] != 0,
            min_bound=scalars[2, index],
            max_bound=scalars[3, index],
            max_expansions=scalars[4, index],
        )
        program = _Program(query, Memory(*memory), board, lane, teams)
        is_busy = index < num_queries
        lanes = program.run(is_busy)
        program.write_results(lanes, index, is_busy, results, result_paths)
        return batch + pl.num_programs(0)

    jax.lax.while_loop(
        lambda batch: batch * num_teams < num_queries, search_batch, pl.program_id(0)
    )


class _Program:
    """Search of the queries that a program processes at once, one per team."""

    def __init__(
        self, query: LaneQueries, memory: Memory, board: Geometry, lane: jax.Array, teams: Teams
    ) -> None:
        self.query, self.memory = query, memory
        self.lane, self.teams = lane, teams
        self.helpers, self.node = teams.helpers, teams.helpers.node
        self.agents, self.times = memory.paths.shape[:2]
        self.horizon = self.times - 1
        planner = PathPlanner if self.helpers.count == 1 else SharedPathPlanner
        self.planner = planner(memory, query, board, self.helpers)
        self.path_store = PathStore(memory, query, self.helpers)
        self.levels = Levels(memory.levels, self.helpers)

    def run(self, is_busy: jax.Array) -> _Lanes:
        """Search until all teams have their results."""
        self._clear()
        zero = jnp.zeros_like(self.lane)
        initial = _Lanes(
            bound=self.query.min_bound,
            next_bound=zero + NEVER,
            prefix=self.teams.rank,
            next_prefix=zero + self.teams.size,
            prefix_done=zero,
            num_planned=zero,
            depth=zero,
            expansions=zero,
            done=to_int32(~is_busy),
            solved=zero,
            gave_up=zero,
            costs=(zero,) * self.agents,
            earliest=(zero,) * self.agents,
            latest=(zero + NEVER,) * self.agents,
            root_costs=(zero,) * self.agents,
            bypassed=zero,
        )
        return jax.lax.while_loop(lambda lanes: any_lane(lanes.done == 0), self._expand, initial)

    def write_results(
        self, lanes: _Lanes, index: jax.Array, is_busy: jax.Array, results: Any, result_paths: Any
    ) -> None:
        """Write the result of each team's first lane with a plan, or else of its first lane."""
        expansions = self.teams.sum(lanes.expansions)
        fields = (lanes.solved, lanes.gave_up, lanes.bound, expansions)  # as in `QueryResults`
        team_solved = self.teams.any(lanes.solved)
        earlier = self.teams.count_before(lanes.solved)
        first = jnp.where(team_solved, (lanes.solved != 0) & (earlier == 0), self.teams.rank == 0)
        reports = is_busy & first
        # In interpreted mode, masked lanes also write (old values), so each gets a separate index.
        index = jnp.where(reports, index, results.shape[1] - LANES + self.lane)
        for i, field in enumerate(fields):
            store(results, (i, index), field, reports)
        reports_path = reports & (lanes.solved != 0)

        def write(i: jax.Array, _: None) -> None:
            k, t = jax.lax.div(i, self.times), jax.lax.rem(i, self.times)
            cell = (self.helpers.read(self.memory.paths, k, t) & CELL_MASK).astype(jnp.int16)
            store(result_paths, (k, t, index), cell, reports_path)

        jax.lax.fori_loop(0, self.agents * self.times, write, None)

    def _clear(self) -> None:
        zero = jnp.zeros_like(self.lane)

        def clear(t: jax.Array, _: None) -> None:
            self.helpers.write(self.memory.list_heads, (t,), zero)
            for k in range(self.agents):
                # Agents without a path stay in distinct cells off the board.
                self.helpers.write(self.memory.paths, (k, t), FORCED | (CELL_MASK - zero - k))

        jax.lax.fori_loop(0, self.times, clear, None)
        self.levels.clear()

    def _expand(self, lanes: _Lanes) -> _Lanes:
        """Expand one child of the current node in every lane, or plan one agent of the root."""
        K, T, query = self.agents, self.horizon, self.query
        depth, level = lanes.depth, self.levels.read(lanes.depth)
        active = (lanes.done == 0) & (lanes.prefix_done == 0)
        plans_root = active & (lanes.num_planned < K)
        splits = active & (lanes.num_planned >= K)
        agent = jnp.where(lanes.num_planned < K, lanes.num_planned, constrained_agent(level))

        # Replan the agent, with the latest arrival at which the node can be within the bound.
        lanes, level = self._add_constraint(lanes, level, splits)
        goal = select_entry(query.goals, agent)
        is_absent = goal < 0
        old_cost = select_entry(lanes.costs, agent)
        other_costs = sum(lanes.costs) - old_cost
        latest_within_bound = jnp.where(query.sum_objective, lanes.bound - other_costs, lanes.bound)
        latest_allowed = jnp.minimum(select_entry(lanes.latest, agent), T)
        latest = jnp.minimum(latest_allowed, latest_within_bound)
        request = self._make_request(lanes, agent, goal, active & ~is_absent, splits)
        arrival = self.planner.find_earliest_arrival(
            request, select_entry(lanes.earliest, agent), jnp.where(active & ~is_absent, latest, -1)
        )
        arrival = jnp.where(is_absent, 0, arrival)

        has_path = active & (arrival != NEVER)
        costs = _replace_agent(lanes.costs, agent, arrival, has_path)
        excesses = [jnp.maximum(x - y, 0) for x, y in zip(costs, query.solo_distances, strict=True)]
        stairs = look_up_pairs(query.staircases, excesses)
        estimate = sum(costs) + best_matching(pair_gains(costs, query.pair_costs, stairs), K)
        estimate = jnp.where(query.sum_objective, estimate, elementwise_max(costs))
        fits = has_path & (estimate <= lanes.bound)
        # The new path rests at its goal from its arrival on.
        end = jnp.where(plans_root, self.times, jnp.maximum(old_cost, arrival) + 1)
        end = jnp.where(fits, end, 0)
        self.path_store.replace_with_goal(agent, depth, goal, end, fits & ~is_absent)
        self.planner.trace(request, arrival, fits & ~is_absent)
        root_planned = plans_root & fits & (lanes.num_planned == K - 1)
        no_slack = [query.sum_objective | (cost == lanes.bound) for cost in costs]
        conflict, num_conflicts = self.planner.choose_conflict(
            costs, no_slack, root_planned | (splits & fits)
        )
        arrivals_conflict = arrival_conflict(stairs, excesses, query.solo_distances)
        is_late = query.sum_objective & (arrivals_conflict.kind != NONE) & (conflict.kind != NONE)
        conflict = jax.tree.map(lambda x, y: jnp.where(is_late, x, y), arrivals_conflict, conflict)

        # A fitting path is either taken without the constraint (bypass), or its child is entered.
        # With a bound on the makespan, a bypass may arrive at another time.
        is_same_time = arrival == old_cost
        bypass = splits & fits & (is_same_time | ~query.sum_objective)
        bypass &= (num_conflicts < level.num_conflicts) & (depth >= self.teams.split)
        enter = splits & fits & ~bypass
        fails = active & ~fits
        # If a later arrival is allowed but exceeds the bound, a plan may exist one above the bound.
        is_infeasible = ~has_path & (latest_within_bound >= latest_allowed)
        cut_cost = jnp.where(has_path, estimate, lanes.bound + 1)
        next_bound = jnp.where(
            fails & ~is_infeasible, jnp.minimum(lanes.next_bound, cut_cost), lanes.next_bound
        )
        # The constraint remains only if its child becomes the current node.
        lanes = self._undo_constraint(lanes, level, splits & ~enter)
        end = jnp.where(bypass, arrival, 0)
        self.path_store.restore_forced_flags(agent, depth, is_same_time, end)
        child = jnp.where(fails, self._next_child(level.child, depth), level.child)
        self.levels.write(depth, level._replace(child=child, cost=old_cost), splits, False)

        # Write the conflict of the new node, and its first child.
        depth = jnp.where(enter, depth + 1, depth)
        is_too_deep = depth >= MAX_DEPTH
        depth = jnp.minimum(depth, MAX_DEPTH - 1)
        is_new_node = enter | bypass | root_planned
        prefix_child = (lanes.prefix >> jnp.minimum(depth, 14)) & 1
        child = jnp.where(depth < self.teams.split, prefix_child, 0)
        zero = jnp.zeros_like(child)
        new_level = Level(conflict, child, num_conflicts, zero, zero, (zero, zero))
        self.levels.write(depth, new_level, is_new_node)

        is_solved = is_new_node & (conflict.kind == NONE)
        gave_up = active & ~is_solved & is_too_deep
        # A root without a plan within the bound is searched again with the next bound.
        root_failed = plans_root & fails
        root_refuted = root_failed & (next_bound > query.max_bound)
        lanes = lanes._replace(
            bound=jnp.where(root_failed & ~root_refuted, next_bound, lanes.bound),
            next_bound=jnp.where(root_failed, NEVER, next_bound),
            num_planned=lanes.num_planned + to_int32(plans_root & fits),
            depth=depth,
            expansions=lanes.expansions + to_int32(active),
            done=lanes.done | to_int32(is_solved | gave_up | root_refuted),
            solved=lanes.solved | to_int32(is_solved),
            gave_up=lanes.gave_up | to_int32(gave_up),
            costs=_select_each(fits, costs, lanes.costs),
            bypassed=lanes.bypassed | to_int32(bypass),
        )
        lanes = self._backtrack(lanes, splits & fails & ~gave_up)
        return self._coordinate_teams(lanes, root_planned)

    def _make_request(
        self, lanes: _Lanes, agent: jax.Array, goal: jax.Array, active: jax.Array, splits: jax.Array
    ) -> ReplanRequest:
        patient = ~self.query.sum_objective
        num_levels = jnp.where(splits, lanes.depth + 1, 0)
        return ReplanRequest(
            agent=agent,
            start=select_entry(self.query.starts, agent),
            goal=goal,
            latest=lanes.latest,
            goal_open_from=self.planner.find_goal_open_time(
                agent, goal, lanes.latest, num_levels, self.levels.conflict_time
            ),
            patient=patient,
            goal_unvisited_from=self.planner.find_goal_unvisited_time(
                agent, goal, lanes.costs, active & patient
            ),
        )

    def _backtrack(self, lanes: _Lanes, failed: jax.Array) -> _Lanes:
        """Leave nodes whose children are both refuted, up to a node with a remaining child."""

        def is_exhausted(lanes: _Lanes) -> jax.Array:
            child = self.levels.read_child(lanes.depth)
            return to_int32(failed & (lanes.done == 0) & (lanes.prefix_done == 0) & (child > 1))

        def leave_node(state: tuple[_Lanes, jax.Array]) -> tuple[_Lanes, jax.Array]:
            lanes, exhausted = state
            at_root = (exhausted != 0) & (lanes.depth == 0)
            is_leaving = (exhausted != 0) & (lanes.depth > 0)
            depth = jnp.where(is_leaving, lanes.depth - 1, lanes.depth)
            level = self.levels.read(depth)
            agent = constrained_agent(level)
            lanes = self._undo_constraint(lanes, level, is_leaving)
            end = jnp.maximum(select_entry(lanes.costs, agent), level.cost) + 1
            self.path_store.restore(agent, depth, level.cost, jnp.where(is_leaving, end, 0))
            self.levels.set_child(depth, self._next_child(level.child, depth), is_leaving)
            lanes = lanes._replace(
                prefix_done=lanes.prefix_done | to_int32(at_root),
                depth=depth,
                costs=_replace_agent(lanes.costs, agent, level.cost, is_leaving),
            )
            return lanes, is_exhausted(lanes)

        # Loop conditions must not read memory: in interpreted mode they would see old values.
        initial = lanes, is_exhausted(lanes)
        return jax.lax.while_loop(lambda state: any_lane(state[1] != 0), leave_node, initial)[0]

    def _coordinate_teams(self, lanes: _Lanes, root_planned: jax.Array) -> _Lanes:
        """Assign prefixes to idle lanes, raise the bounds of teams, and end finished teams."""
        num_prefixes = jnp.int32(1) << self.teams.split
        is_finished = self.teams.any(lanes.solved | lanes.gave_up | lanes.done)
        num_expansions = self.teams.sum(lanes.expansions)
        reached_limit = ~is_finished & (num_expansions >= self.query.max_expansions)
        team_gave_up = self.teams.any(lanes.gave_up) & ~self.teams.any(lanes.solved)
        is_searching = ~is_finished & ~reached_limit

        # A lane without a prefix becomes idle as soon as the root is planned.
        prefix_done = (lanes.prefix_done != 0) | (root_planned & (lanes.prefix >= num_prefixes))
        idle = to_int32(is_searching & prefix_done)
        new_prefix = lanes.next_prefix + self.teams.count_before(idle)
        next_prefix = lanes.next_prefix + self.teams.sum(idle)
        is_refuted = is_searching & ~self.teams.any(1 - idle) & (lanes.next_prefix >= num_prefixes)
        next_bound = self.teams.min(lanes.next_bound)
        raises_bound = is_refuted & (next_bound <= self.query.max_bound)
        new_prefix = jnp.where(raises_bound, self.teams.rank, new_prefix)
        next_prefix = jnp.where(raises_bound, self.teams.size, next_prefix)
        is_starting = (idle != 0) & (new_prefix < num_prefixes)
        prefix = jnp.where(is_starting, new_prefix, lanes.prefix)

        # If splits are shared, every prefix starts with the paths of the root.
        has_shared_splits = self.teams.split > 0
        is_restarting = is_starting & has_shared_splits
        restores = is_restarting & (lanes.bypassed != 0)
        root_costs = _select_each(root_planned, lanes.costs, lanes.root_costs)
        saves = root_planned & has_shared_splits
        self.path_store.save_or_restore_roots(lanes.costs, root_costs, saves, restores)
        root_child = jnp.where(has_shared_splits, prefix & 1, 0)
        self.levels.set_child(jnp.zeros_like(prefix), root_child, is_starting)
        next_prefix = jnp.minimum(next_prefix, num_prefixes)
        return lanes._replace(
            prefix=prefix,
            next_prefix=jnp.where(is_searching, next_prefix, lanes.next_prefix),
            prefix_done=to_int32(prefix_done & ~is_starting),
            bound=jnp.where(raises_bound, next_bound, lanes.bound),
            next_bound=jnp.where(raises_bound, NEVER, lanes.next_bound),
            done=lanes.done | to_int32(is_finished | reached_limit | (is_refuted & ~raises_bound)),
            gave_up=to_int32(team_gave_up | reached_limit),
            costs=_select_each(restores, root_costs, lanes.costs),
            root_costs=root_costs,
            bypassed=jnp.where(is_restarting, 0, lanes.bypassed),
        )

    def _add_constraint(
        self, lanes: _Lanes, level: Level, where: jax.Array
    ) -> tuple[_Lanes, Level]:
        """Add the constraint of the current child; return the level with the values to undo it."""
        conflict, memory = level.conflict, self.memory
        is_first, agent = level.child == 0, limited_agent(level)
        index, next_index = self._time_indices(conflict)
        heads = memory.list_heads[index], memory.list_heads[next_index]
        offset = CONSTRAINTS_PER_LEVEL * lanes.depth
        # Constraints are numbered from 1. The second child of a SWAP has two at the same time.
        next_numbers = (heads[0], jnp.where(is_first, heads[0], offset + 1), heads[1])
        for slot, constraint in enumerate(make_constraints(conflict, level.child, next_numbers)):
            store(memory.constraints, (offset + slot, self.node), constraint.pack(), where)
        head = jnp.where(conflict.kind == SWAP, offset + 2, offset + 1)
        self._set_heads(level, (head, offset + 3), where)
        is_arrival = conflict.kind == ARRIVAL
        latest, earliest = (
            select_entry(lanes.latest, agent),
            select_entry(lanes.earliest, agent),
        )
        limit = jnp.where(is_first & ~is_arrival, latest, earliest)
        min_arrival = jnp.where(is_first, conflict.first_cell, conflict.second_cell)
        min_arrival = jnp.where(is_arrival, min_arrival, conflict.time + 1)
        new_limits = jnp.minimum(limit, conflict.time), jnp.maximum(limit, min_arrival)
        lanes = self._set_limits(lanes, level, new_limits, where)
        return lanes, level._replace(limit=limit, list_heads=heads)

    def _undo_constraint(self, lanes: _Lanes, level: Level, where: jax.Array) -> _Lanes:
        """Undo the most recent constraint where `where` is True."""
        self._set_heads(level, level.list_heads, where)
        return self._set_limits(lanes, level, (level.limit, level.limit), where)

    def _time_indices(self, conflict: PathConflict) -> tuple[Any, Any]:
        next_time = jnp.minimum(conflict.time + 1, self.horizon)
        return (conflict.time, self.node), (next_time, self.node)

    def _set_heads(
        self, level: Level, heads: tuple[jax.Array, jax.Array], where: jax.Array
    ) -> None:
        kind = level.conflict.kind
        is_swap = where & (kind == SWAP)
        index, next_index = self._time_indices(level.conflict)
        store(self.memory.list_heads, index, heads[0], is_swap | (where & (kind == VERTEX)))
        store(self.memory.list_heads, next_index, heads[1], is_swap & (level.child != 0))

    def _set_limits(
        self, lanes: _Lanes, level: Level, limits: tuple[jax.Array, jax.Array], where: jax.Array
    ) -> _Lanes:
        """Set the latest or earliest arrival of the agent that the current child limits."""
        is_first, agent = level.child == 0, limited_agent(level)
        is_target = where & (level.conflict.kind == TARGET)
        is_delayed = (is_target & ~is_first) | (where & (level.conflict.kind == ARRIVAL))
        return lanes._replace(
            latest=_replace_agent(lanes.latest, agent, limits[0], is_target & is_first),
            earliest=_replace_agent(lanes.earliest, agent, limits[1], is_delayed),
        )

    def _next_child(self, child: jax.Array, depth: jax.Array) -> jax.Array:
        """Return the child after a finished one, or 2 if there is none for this lane."""
        return jnp.where(depth < self.teams.split, 2, child + 1)


def _select_each(
    where: jax.Array, new_values: tuple[jax.Array, ...], old_values: tuple[jax.Array, ...]
) -> tuple[jax.Array, ...]:
    """Return the new values where `where` is True, and the old ones elsewhere."""
    return tuple(jnp.where(where, x, y) for x, y in zip(new_values, old_values, strict=True))


def _replace_agent(
    values: tuple[jax.Array, ...], agent: jax.Array, new_value: jax.Array, where: jax.Array
) -> tuple[jax.Array, ...]:
    """Set the value of an agent where `where` is True."""
    return tuple(
        jnp.where(where & (agent == k), new_value, value) for k, value in enumerate(values)
    )
