"""One program of the tree search, with the steps of `trees.search`."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from jaxlake.solver.kernels.lanes import any_lane, to_int32
from jaxlake.solver.kernels.tree_branch import (
    NOTES,
    Level,
    Levels,
    PathCopies,
    limited_agent,
    make_notes,
)
from jaxlake.solver.kernels.tree_memory import (
    CELL,
    LANES,
    NUMBERS,
    Helpers,
    Memory,
    Route,
    Task,
    Teams,
    largest,
    put,
)
from jaxlake.solver.kernels.tree_paths import Paths
from jaxlake.solver.kernels.tree_shared import SharedPaths
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
from jaxlake.solver.trees.node import constrained_agent, take_agent


class _Lanes(NamedTuple):
    """As `trees.lanes.TreeLanes`, int32 each; the remaining fields are in memory."""

    bound: jax.Array
    cut: jax.Array
    prefix: jax.Array
    next_prefix: jax.Array
    through: jax.Array
    planned: jax.Array
    depth: jax.Array
    expansions: jax.Array
    done: jax.Array  # the query is answered, or there is none
    solved: jax.Array
    gave_up: jax.Array
    costs: tuple[jax.Array, ...]
    earliest: tuple[jax.Array, ...]
    latest: tuple[jax.Array, ...]
    root_costs: tuple[jax.Array, ...]  # `costs` of the root
    bypassed: jax.Array  # a bypass has changed a path since the lane left the root


def search(*refs: Any, board: Geometry, helpers: int, barrier: bool) -> None:
    """Answer this program's share of the first `count` queries.

    Every node has `helpers` lanes. With `barrier`, lanes synchronise before they read values that
    other lanes wrote.
    """
    (
        search,
        free,
        starts,
        goals,
        solo_distances,
        pair_costs,
        stairs,
        tasks,
        answers,
        paths,
        *memory,
    ) = refs
    lane = jax.lax.broadcasted_iota(jnp.int32, (LANES,), 0)
    count, size, split = search[0], search[1], search[2]
    at_once = jax.lax.div(jnp.int32(LANES // helpers), size)
    sizes = jnp.zeros_like(lane) + size
    mates = Helpers.create(lane, helpers, barrier)
    node = mates.node
    teams = Teams(sizes, jax.lax.div(node, sizes), jax.lax.rem(node, sizes), split, mates)

    def answer_queries(first: jax.Array) -> jax.Array:
        place = first * at_once + teams.team
        agents, pairs = range(starts.shape[0]), range(stairs.shape[1])
        total, waits, first_bound, last, budget = (tasks[i, place] for i in range(len(NUMBERS)))
        task = Task(
            free=tuple(free[w, place] for w in range(board.words)),
            starts=tuple(starts[k, place] for k in agents),
            goals=tuple(goals[k, place] for k in agents),
            solo_distances=[solo_distances[k, place] for k in agents],
            pair_costs=[pair_costs[p, place] for p in pairs],
            stairs=[[stairs[w, p, place] for p in pairs] for w in (0, 1)],
            total=total != 0,
            waits=waits != 0,
            first=first_bound,
            last=last,
            budget=budget,
        )
        program = _Program(task, Memory(*memory), board, lane, teams)
        lanes = program.run(place < count)
        program.write_answers(lanes, place, place < count, answers, paths)
        return first + pl.num_programs(0)

    jax.lax.while_loop(lambda first: first * at_once < count, answer_queries, pl.program_id(0))


class _Program:
    """The queries that a program processes at once."""

    def __init__(
        self,
        task: Task,
        memory: Memory,
        board: Geometry,
        lane: jax.Array,
        teams: Teams,
    ) -> None:
        self.task, self.memory = task, memory
        self.lane, self.teams = lane, teams
        self.helpers, self.node = teams.helpers, teams.helpers.node
        self.agents, self.times = memory.paths.shape[:2]
        self.horizon = self.times - 1
        self.total = task.total
        paths = Paths if self.helpers.count == 1 else SharedPaths
        self.paths = paths(memory, task, board, self.helpers)
        self.copies = PathCopies(memory, task, self.helpers)
        self.levels = Levels(memory.levels, self.helpers)

    def run(self, busy: jax.Array) -> _Lanes:
        """Search until all teams have their answers."""
        self._clear()
        zero = jnp.zeros_like(self.lane)
        initial = _Lanes(
            bound=self.task.first,
            cut=zero + NEVER,
            prefix=self.teams.rank,
            next_prefix=zero + self.teams.size,
            through=zero,
            planned=zero,
            depth=zero,
            expansions=zero,
            done=to_int32(~busy),
            solved=zero,
            gave_up=zero,
            costs=(zero,) * self.agents,
            earliest=(zero,) * self.agents,
            latest=(zero + NEVER,) * self.agents,
            root_costs=(zero,) * self.agents,
            bypassed=zero,
        )
        return jax.lax.while_loop(lambda lanes: any_lane(lanes.done == 0), self._expand, initial)

    def write_answers(
        self, lanes: _Lanes, place: jax.Array, busy: jax.Array, answers: Any, paths: Any
    ) -> None:
        """Write the answers of each team's first lane with a plan, or else its first lane."""
        expansions = self.teams.sum(lanes.expansions)
        fields = (lanes.solved, lanes.gave_up, lanes.bound, expansions)  # as in `TreeAnswers`
        team_solved = self.teams.any(lanes.solved)
        earlier = self.teams.count_before(lanes.solved)
        first = jnp.where(team_solved, (lanes.solved != 0) & (earlier == 0), self.teams.rank == 0)
        speaks = busy & first
        # In interpreted mode, masked lanes also write (old values), so each gets a separate place.
        place = jnp.where(speaks, place, answers.shape[1] - LANES + self.lane)
        for i, number in enumerate(fields):
            put(answers, (i, place), number, speaks)
        writes_path = speaks & (lanes.solved != 0)

        def write(i: jax.Array, _: None) -> None:
            k, t = jax.lax.div(i, self.times), jax.lax.rem(i, self.times)
            cell = (self.helpers.read(self.memory.paths, k, t) & CELL).astype(jnp.int16)
            put(paths, (k, t, place), cell, writes_path)

        jax.lax.fori_loop(0, self.agents * self.times, write, None)

    def _clear(self) -> None:
        zero = jnp.zeros_like(self.lane)

        def clear(t: jax.Array, _: None) -> None:
            self.helpers.write(self.memory.heads, (t,), zero)
            for k in range(self.agents):
                # Agents without a path stay in distinct cells off the board.
                self.helpers.write(self.memory.paths, (k, t), FORCED | (CELL - zero - k))

        jax.lax.fori_loop(0, self.times, clear, None)
        self.levels.clear()

    def _expand(self, lanes: _Lanes) -> _Lanes:
        """Expand one child of the current node in every lane, or plan one agent of the root."""
        K, T, task = self.agents, self.horizon, self.task
        depth, level = lanes.depth, self.levels.read(lanes.depth)
        active = (lanes.done == 0) & (lanes.through == 0)
        rooting = active & (lanes.planned < K)
        splitting = active & (lanes.planned >= K)
        agent = jnp.where(lanes.planned < K, lanes.planned, constrained_agent(level))

        lanes, tried = self._constrain(lanes, level, splitting)
        goal = take_agent(self.task.goals, agent)
        absent = goal < 0
        old_cost = take_agent(lanes.costs, agent)
        other_costs = sum(lanes.costs) - old_cost
        ceiling = jnp.where(self.total, lanes.bound - other_costs, lanes.bound)
        own_latest = take_agent(lanes.latest, agent)
        latest = jnp.minimum(jnp.minimum(own_latest, ceiling), T)
        route = Route(
            agent=agent,
            start=take_agent(self.task.starts, agent),
            goal=goal,
            latest=lanes.latest,
            stay_from=self.paths.stay_from(
                agent,
                goal,
                lanes.latest,
                jnp.where(splitting, depth + 1, 0),
                self.levels.conflict_time,
            ),
            patient=~self.total,
            clean_stay_from=self.paths.clean_stay_from(
                agent, goal, lanes.costs, active & ~absent & ~self.total
            ),
        )
        allowed = jnp.where(active & ~absent, latest, -1)
        arrival = self.paths.earliest_arrival(route, take_agent(lanes.earliest, agent), allowed)
        arrival = jnp.where(absent, 0, arrival)

        planned = active & (arrival != NEVER)
        costs = _put_at(lanes.costs, agent, arrival, planned)
        excesses = [jnp.maximum(x - y, 0) for x, y in zip(costs, task.solo_distances, strict=True)]
        stairs = look_up_pairs(task.stairs, excesses)
        estimate = sum(costs) + best_matching(pair_gains(costs, task.pair_costs, stairs), K)
        estimate = jnp.where(self.total, estimate, largest(costs))
        fits = planned & (estimate <= lanes.bound)
        # This level keeps the old path; the new path rests at its goal from its arrival on.
        end = jnp.where(rooting, self.times, jnp.maximum(old_cost, arrival) + 1)
        self.copies.begin(agent, depth, goal, jnp.where(fits, end, 0), fits & ~absent)
        self.paths.trace(route, arrival, fits & ~absent)
        rooted = rooting & fits & (lanes.planned == K - 1)
        tight = [self.total | (cost == lanes.bound) for cost in costs]
        examined = rooted | (splitting & fits)
        conflict, conflicts = self.paths.choose_conflict(costs, tight, examined)
        of_arrivals = arrival_conflict(stairs, excesses, task.solo_distances)
        late = self.total & (of_arrivals.kind != NONE) & (conflict.kind != NONE)
        conflict = jax.tree.map(lambda x, y: jnp.where(late, x, y), of_arrivals, conflict)

        # A fitting path is taken without the constraint (bypass), or its child is entered.
        # With a bound on the makespan it may arrive at another time.
        same_time = arrival == old_cost
        bypass = splitting & fits & (same_time | ~self.total) & (conflicts < level.conflicts)
        bypass &= depth >= self.teams.split
        commit = splitting & fits & ~bypass
        refused = active & ~fits
        above = jnp.where(planned, estimate, lanes.bound + 1)
        hopeless = ~planned & (ceiling >= jnp.minimum(own_latest, T))
        cut = jnp.where(refused & ~hopeless, jnp.minimum(lanes.cut, above), lanes.cut)
        lanes = self._release(lanes, tried, splitting & ~commit)
        self.copies.restore_forced_flags(agent, depth, same_time, jnp.where(bypass, arrival, 0))
        turned = jnp.where(refused, self._next_side(level.side, depth), level.side)
        self.levels.write(depth, tried._replace(side=turned, cost=old_cost), splitting, False)

        depth = jnp.where(commit, depth + 1, depth)
        too_deep = depth >= MAX_DEPTH
        depth = jnp.minimum(depth, MAX_DEPTH - 1)
        arrived = commit | bypass | rooted
        side = (lanes.prefix >> jnp.minimum(depth, 14)) & 1
        side = jnp.where(depth < self.teams.split, side, 0)
        zero = jnp.zeros_like(side)
        new = Level(conflict, side, conflicts, zero, zero, (zero, zero))
        self.levels.write(depth, new, arrived)

        solved = arrived & (conflict.kind == NONE)
        spent = active & ~solved & too_deep
        # A root without a path within the bound is retried with the next bound.
        unrooted = rooting & refused
        hopeless_root = unrooted & (cut > task.last)
        lanes = lanes._replace(
            bound=jnp.where(unrooted & ~hopeless_root, cut, lanes.bound),
            cut=jnp.where(unrooted, NEVER, cut),
            planned=lanes.planned + to_int32(rooting & fits),
            depth=depth,
            expansions=lanes.expansions + to_int32(active),
            done=lanes.done | to_int32(solved | spent | hopeless_root),
            solved=lanes.solved | to_int32(solved),
            gave_up=lanes.gave_up | to_int32(spent),
            costs=_choose(fits, costs, lanes.costs),
            bypassed=lanes.bypassed | to_int32(bypass),
        )
        lanes = self._backtrack(lanes, splitting & refused & ~spent)
        return self._coordinate_teams(lanes, rooted)

    def _backtrack(self, lanes: _Lanes, failed: jax.Array) -> _Lanes:
        """Leave nodes whose children are both refuted, up to a node with a remaining child."""

        def exhausted(lanes: _Lanes) -> jax.Array:
            side = self.levels.current_side(lanes.depth)
            return to_int32(failed & (lanes.done == 0) & (lanes.through == 0) & (side > 1))

        def leave(state: tuple[_Lanes, jax.Array]) -> tuple[_Lanes, jax.Array]:
            lanes, stuck = state
            top, inner = (stuck != 0) & (lanes.depth == 0), (stuck != 0) & (lanes.depth > 0)
            depth = jnp.where(inner, lanes.depth - 1, lanes.depth)
            level = self.levels.read(depth)
            agent = constrained_agent(level)
            lanes = self._release(lanes, level, inner)
            end = jnp.maximum(take_agent(lanes.costs, agent), level.cost) + 1
            self.copies.restore(agent, depth, level.cost, jnp.where(inner, end, 0))
            self.levels.turn(depth, self._next_side(level.side, depth), inner)
            lanes = lanes._replace(
                through=lanes.through | to_int32(top),
                depth=depth,
                costs=_put_at(lanes.costs, agent, level.cost, inner),
            )
            return lanes, exhausted(lanes)

        # Loop conditions must not read memory: in interpreted mode they would see old values.
        initial = lanes, exhausted(lanes)
        return jax.lax.while_loop(lambda state: any_lane(state[1] != 0), leave, initial)[0]

    def _coordinate_teams(self, lanes: _Lanes, rooted: jax.Array) -> _Lanes:
        """Assign prefixes to idle lanes, raise the bounds of teams, and end finished teams."""
        prefixes = jnp.int32(1) << self.teams.split
        over = self.teams.any(lanes.solved | lanes.gave_up | lanes.done)
        spent = ~over & (self.teams.sum(lanes.expansions) >= self.task.budget)
        gave_up = (self.teams.any(lanes.gave_up) & ~self.teams.any(lanes.solved)) | spent
        open_teams = ~over & ~spent

        # A lane without a prefix is through as soon as the root is planned.
        through = (lanes.through != 0) | (rooted & (lanes.prefix >= prefixes))
        idle = to_int32(open_teams & through)
        offered = lanes.next_prefix + self.teams.count_before(idle)
        refuted = open_teams & ~self.teams.any(1 - idle) & (lanes.next_prefix >= prefixes)
        cut = self.teams.min(lanes.cut)
        again = refuted & (cut <= self.task.last)
        offered = jnp.where(again, self.teams.rank, offered)
        starting = (idle != 0) & (offered < prefixes)
        prefix = jnp.where(starting, offered, lanes.prefix)
        handed_out = jnp.where(again, self.teams.size, lanes.next_prefix + self.teams.sum(idle))
        shares = self.teams.split > 0
        # Below a shared split every prefix starts with the paths of the root.
        restart = starting & shares
        restored = restart & (lanes.bypassed != 0)
        root_costs = _choose(rooted, lanes.costs, lanes.root_costs)
        lanes = lanes._replace(root_costs=root_costs)
        self.copies.save_or_restore_roots(lanes.costs, root_costs, rooted & shares, restored)
        self.levels.turn(jnp.zeros_like(prefix), jnp.where(shares, prefix & 1, 0), starting)
        next_prefix = jnp.minimum(handed_out, prefixes)
        return lanes._replace(
            prefix=prefix,
            next_prefix=jnp.where(open_teams, next_prefix, lanes.next_prefix),
            through=to_int32(through & ~starting),
            bound=jnp.where(again, cut, lanes.bound),
            cut=jnp.where(again, NEVER, lanes.cut),
            done=lanes.done | to_int32(over | spent | (refuted & ~again)),
            gave_up=to_int32(gave_up),
            costs=_choose(restored, root_costs, lanes.costs),
            bypassed=jnp.where(restart, 0, lanes.bypassed),
        )

    def _constrain(self, lanes: _Lanes, level: Level, where: jax.Array) -> tuple[_Lanes, Level]:
        """Add the constraint of the current child where `where`; return the level to undo it."""
        conflict, memory = level.conflict, self.memory
        first, limited = level.side == 0, limited_agent(level)
        now, then = self._times(conflict)
        heads = memory.heads[now], memory.heads[then]
        number = NOTES * lanes.depth
        # Notes are numbered from 1. The second child of a SWAP leaves two at the same time.
        following = (heads[0], jnp.where(first, heads[0], number + 1), heads[1])
        for slot, note in enumerate(make_notes(conflict, level.side, following)):
            put(memory.notes, (number + slot, self.node), note.pack(), where)
        now_first = jnp.where(conflict.kind == SWAP, number + 2, number + 1)
        self._set_heads(level, (now_first, number + 3), where)
        arrival = conflict.kind == ARRIVAL
        limits = take_agent(lanes.latest, limited), take_agent(lanes.earliest, limited)
        limit = jnp.where(first & ~arrival, *limits)
        least = jnp.where(first, conflict.first_cell, conflict.second_cell)
        least = jnp.where(arrival, least, conflict.time + 1)
        new_limits = jnp.minimum(limit, conflict.time), jnp.maximum(limit, least)
        lanes = self._set_limits(lanes, level, new_limits, where)
        return lanes, level._replace(limit=limit, heads=heads)

    def _release(self, lanes: _Lanes, level: Level, where: jax.Array) -> _Lanes:
        """Undo the most recent constraint where `where` is True."""
        self._set_heads(level, level.heads, where)
        return self._set_limits(lanes, level, (level.limit, level.limit), where)

    def _times(self, conflict: PathConflict) -> tuple[Any, Any]:
        later = jnp.minimum(conflict.time + 1, self.horizon)
        return (conflict.time, self.node), (later, self.node)

    def _set_heads(
        self, level: Level, heads: tuple[jax.Array, jax.Array], where: jax.Array
    ) -> None:
        kind = level.conflict.kind
        swap = where & (kind == SWAP)
        now, then = self._times(level.conflict)
        put(self.memory.heads, now, heads[0], swap | (where & (kind == VERTEX)))
        put(self.memory.heads, then, heads[1], swap & (level.side != 0))

    def _set_limits(
        self, lanes: _Lanes, level: Level, limits: tuple[jax.Array, jax.Array], where: jax.Array
    ) -> _Lanes:
        """Set the latest or earliest arrival of an agent that others meet at its goal."""
        first, limited = level.side == 0, limited_agent(level)
        target = where & (level.conflict.kind == TARGET)
        delayed = (target & ~first) | (where & (level.conflict.kind == ARRIVAL))
        return lanes._replace(
            latest=_put_at(lanes.latest, limited, limits[0], target & first),
            earliest=_put_at(lanes.earliest, limited, limits[1], delayed),
        )

    def _next_side(self, side: jax.Array, depth: jax.Array) -> jax.Array:
        """Return the side after a finished child: the other child, unless another lane takes it."""
        return jnp.where(depth < self.teams.split, 2, side + 1)


def _choose(
    where: jax.Array, new: tuple[jax.Array, ...], old: tuple[jax.Array, ...]
) -> tuple[jax.Array, ...]:
    """Return the new values where `where` is True, and the old ones elsewhere."""
    return tuple(jnp.where(where, x, y) for x, y in zip(new, old, strict=True))


def _put_at(
    values: tuple[jax.Array, ...], agent: jax.Array, new: jax.Array, where: jax.Array
) -> tuple[jax.Array, ...]:
    """Replace the value of an agent where `where` is True."""
    return tuple(jnp.where(where & (agent == k), new, old) for k, old in enumerate(values))
