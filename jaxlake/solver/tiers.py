"""From cheap certificates to exact search, each tier for what the one before left open.

1. Distances. An agent that can't reach its goal alone proves the board unsolvable.
2. Prioritised planning in two orders. A plan whose costs are the distances is optimal in both
   objectives and needs no wait. Other plans give upper bounds.
3. All pairs of agents, exactly. A pair without a plan proves the board unsolvable; the optima of
   the pairs give lower bounds, and where they meet the upper bounds the board is done.
4. Where no plan is known, the proof of `permutations` that there is none.
5. Conflict-based search between the bounds: for the sum of costs, the makespan, and a plan of
   optimal sum of costs without waits where parity leaves that open.
6. Boards on few cells that this leaves open: every joint state as one bit of a set.

With two slots for agents, the joint search of `two_agents` comes after tier 2. With one slot
nobody is in the way, and tiers 1 and 2 are exact.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.batch_axes import merge_batch_axes
from jaxlake.cpu_devices import jit_search
from jaxlake.instance import Instance
from jaxlake.solver import dense_joint
from jaxlake.solver.certificates import BestPlans, prepare_boards, prioritise
from jaxlake.solver.chunks import Widths, widths_for
from jaxlake.solver.dense_components import DenseBoards, component_sizes
from jaxlake.solver.dense_joint import DenseAnswers
from jaxlake.solver.materialize import materialize
from jaxlake.solver.pairs import matching_bound, pair_bounds, pair_staircases, waitless_bounds
from jaxlake.solver.permutations import proved_unsolvable
from jaxlake.solver.solution import DEFAULT_HORIZON, Solution, Status
from jaxlake.solver.space_time import NEVER, actions_of, arrivals_of, waits_in
from jaxlake.solver.tree_efforts import search_with_teams
from jaxlake.solver.tree_node import TreeAnswers, TreeQueries, no_answers
from jaxlake.solver.two_agents import solve_two

DEFAULT_MAX_EXPANSIONS = {3: 65536, 4: 16384, 5: 16384}
"""Agents that one search of the constraint tree replans before it gives up, by their number."""

DENSE_BUDGETS = {
    3: ((30, 32), (62, 128), (94, 512)),
    4: ((14, 64), (18, 128), (26, 256), (58, 16384)),
    5: ((14, 1024), (18, 2048), (22, 4096), (26, 16384)),
}
"""By slots: the most cells or edges of a component, and after how many agents replanned
`dense_joint` takes over. It takes longer the more there are."""

DENSE_RADIXES = {3: (32, 64, 96), 4: (20, 28, 60), 5: (20, 28)}
"""By slots: the arrays of `dense_joint`, each for boards that don't fit into the one before."""

MIN_AGENTS, MAX_AGENTS = 1, 5
MAX_SIZE = 32
_MAX_HORIZON = 4096


def solve(
    instance: Instance,
    *,
    horizon: int = DEFAULT_HORIZON,
    max_expansions: int | None = None,
    widths: Widths | None = None,
    dense: bool = True,
) -> Solution:
    """Solve one instance of up to five agents exactly; `jax.vmap` solves a batch at full speed.

    It is compiled once for each N, number of slots and static argument, also outside of jit.
    An instance needs a wait if no plan of optimal sum of costs exists in which no agent waits
    before its last arrival at its goal.

    Args:
        instance: The board, with holes bool (N, N), N at most 32, and 1 to 5 slots for agents.
        horizon: The longest plan to look for, in steps (static, 1 to 4096).
        max_expansions: How many agents one search of the constraint tree may replan, beyond the
            few after which more lanes begin it anew; with three or more slots only. Boards on few
            cells are solved by `dense_joint` when this, or a smaller number, is spent. There are up
            to three such searches: for either objective, and for a plan without waits. None
            stands for `DEFAULT_MAX_EXPANSIONS` of the instance's number of agents.
        widths: How many boards to work on at a time (static). Results don't depend on it. None
            stands for `widths_for()`, which follows the platform.
        dense: Whether boards on few cells that the constraint trees leave open are solved by
            `dense_joint` (static). Without it more of them are UNKNOWN.

    Returns:
        A `Solution`. OPTIMAL and UNSOLVABLE are proved; UNKNOWN means that the budget was spent or
        that the shortest plans are longer than `horizon`. `expansions` counts layers of the joint
        search where there are two slots, else agents replanned in constraint trees and sets
        computed by `dense_joint`.

    Raises:
        ValueError: `horizon`, N or the number of slots is out of range.
    """
    _check(instance, horizon)
    # The widths follow the platform, for which a compiled function would not ask again.
    widths, most = widths or widths_for(), _as_int32(max_expansions)
    return _solve_one(instance, most, horizon=horizon, widths=widths, dense=dense)


def solve_batch(
    instances: Instance,
    *,
    horizon: int = DEFAULT_HORIZON,
    max_expansions: int | None = None,
    widths: Widths | None = None,
    dense: bool = True,
) -> Solution:
    """Solve instances, leaves (B, ...): what `jax.vmap(solve)` gives, in half the time to trace.

    Arguments and errors are those of `solve`, and `max_expansions` holds for each board.
    """
    if len(shape := np.shape(instances.agent_mask)) != 2:
        raise ValueError(f"instances: got agent_mask of shape {shape}, (B, K) is needed")
    _check(instances, horizon)
    widths, most = widths or widths_for(), _as_int32(max_expansions)
    return _solve_many(instances, most, horizon=horizon, widths=widths, dense=dense)


def _check(instance: Instance, horizon: int) -> None:
    if not 1 <= horizon <= _MAX_HORIZON:
        raise ValueError(f"horizon: got {horizon}, 1 to {_MAX_HORIZON} are allowed")
    slots, size = np.shape(instance.agent_mask)[-1], np.shape(instance.holes)[-1]
    if not MIN_AGENTS <= slots <= MAX_AGENTS:
        allowed = f"{MIN_AGENTS} to {MAX_AGENTS}"
        raise ValueError(f"agent_mask: got {slots} slots for agents, {allowed} are allowed")
    if size > MAX_SIZE:
        raise ValueError(f"holes: got a board of {size} rows, at most {MAX_SIZE} are allowed")


def _as_int32(number: int | jax.Array | None) -> jax.Array | None:
    """Give numbers one type, so that none of them compiles anew."""
    return None if number is None else jnp.asarray(number, jnp.int32)


@partial(jit_search, static_argnames=("horizon", "widths", "dense"))
def _solve_one(
    instance: Instance,
    max_expansions: jax.Array | None,
    *,
    horizon: int,
    widths: Widths,
    dense: bool,
) -> Solution:
    batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], instance)
    solutions = _solve_many(batch, max_expansions, horizon=horizon, widths=widths, dense=dense)
    return jax.tree.map(lambda leaf: leaf[0], solutions)


@partial(jit_search, static_argnames=("horizon", "widths", "dense"))
def _solve_many(
    batch: Instance,
    max_expansions: jax.Array | None,
    *,
    horizon: int,
    widths: Widths,
    dense: bool,
) -> Solution:
    if max_expansions is None:
        agents = jnp.sum(batch.agent_mask, axis=-1)
        budget = jnp.array(list(DEFAULT_MAX_EXPANSIONS.values()))[jnp.clip(agents, 3, 5) - 3]
    else:
        budget = jnp.full(batch.agent_mask.shape[0], max_expansions)
    return _batch_solver(horizon, widths, dense)(batch, budget)


@cache
def _batch_solver(
    horizon: int, widths: Widths, dense: bool
) -> Callable[[Instance, jax.Array], Solution]:
    """Return the solver of a whole batch; merged into one, no board waits for the slowest."""

    def solver(batch: Instance, budget: jax.Array) -> Solution:
        slots = batch.agent_mask.shape[-1]
        if slots == 1:
            return _solve_one_slot(batch, horizon, widths)
        if slots == 2:
            return _solve_two_slots(batch, horizon, widths)
        return _solve_many_slots(batch, horizon, budget, widths, dense)

    return merge_batch_axes(solver)


def _solve_one_slot(batch: Instance, horizon: int, widths: Widths) -> Solution:
    """A lone agent's shortest path attains both optima, and it never has to wait."""
    boards = prepare_boards(batch, widths)
    connected = boards.alone[0] < NEVER
    best = prioritise(boards, connected, horizon, widths)
    solved = connected & (best.sum_of_costs < NEVER)  # else the path is longer than the horizon
    unsolved = jnp.where(connected, jnp.int8(Status.UNKNOWN), jnp.int8(Status.UNSOLVABLE))
    cost = jnp.where(solved, best.sum_of_costs, jnp.int16(-1))
    plan = jnp.where(solved[:, None, None], actions_of(best.paths).transpose(2, 1, 0), jnp.int8(-1))
    return Solution(
        status=jnp.where(solved, jnp.int8(Status.OPTIMAL), unsolved),
        sum_of_costs=cost,
        makespan=cost,
        needs_wait=jnp.zeros_like(solved),
        plan=plan,
        makespan_plan=plan,
        expansions=jnp.zeros(solved.shape, jnp.int32),
    )


def _solve_two_slots(batch: Instance, horizon: int, widths: Widths) -> Solution:
    boards = prepare_boards(batch, widths)
    connected = jnp.all(boards.alone < NEVER, axis=0)
    best = prioritise(boards, connected, horizon, widths)
    floor = jnp.sum(jnp.where(connected, boards.alone, 0), axis=0, dtype=jnp.int16)
    settled = connected & (best.sum_of_costs == floor)
    plan = actions_of(best.paths).transpose(2, 1, 0)
    optimal = jnp.full(settled.shape, Status.OPTIMAL, jnp.int8)
    makespan = jnp.max(boards.alone, axis=0)
    no, none = jnp.zeros_like(settled), jnp.zeros(settled.shape, jnp.int32)
    certain = Solution(optimal, floor, makespan, no, plan, plan, expansions=none)
    searched = solve_two(batch, ~settled, horizon, widths)
    # The joint search is for two agents; a single one is shut in just as well.
    proved = jnp.where(connected, searched.status, jnp.int8(Status.UNSOLVABLE))
    searched = replace(searched, status=proved)
    return jax.tree.map(
        lambda x, y: jnp.where(settled.reshape(-1, *(1,) * (x.ndim - 1)), x, y), certain, searched
    )


def _solve_many_slots(
    batch: Instance, horizon: int, budget: jax.Array, widths: Widths, dense: bool
) -> Solution:
    B, K = batch.agent_mask.shape
    boards = prepare_boards(batch, widths)
    connected = jnp.all(boards.alone < NEVER, axis=0)
    alone = jnp.where(connected, boards.alone, 0)
    floor, longest = jnp.sum(alone, axis=0, dtype=jnp.int16), jnp.max(alone, axis=0)

    best = prioritise(boards, connected, horizon, widths)
    undecided = connected & (best.sum_of_costs > floor)
    pairs = pair_bounds(batch, boards, undecided, horizon, widths)
    waitless_costs = waitless_bounds(pairs, boards.alone)
    least_cost = matching_bound(alone, pairs.costs)
    least_waitless_cost = matching_bound(alone, waitless_costs)
    least_makespan = jnp.maximum(longest, pairs.makespan)
    planless = undecided & ~pairs.blocked & (best.sum_of_costs == NEVER)
    blocked = pairs.blocked | proved_unsolvable(
        *(~batch.holes, batch.starts, batch.goals, batch.agent_mask, planless),
        together=min(B, widths.crowded_boards),
    )
    undecided &= ~blocked
    sizes = jnp.zeros(B, jnp.int32)
    if dense:
        sizes = component_sizes(boards, undecided, widths)
        limits, expansions = zip(*DENSE_BUDGETS[K], strict=True)
        for most, fits in zip(expansions, _by_size(sizes, limits), strict=True):
            budget = jnp.where(undecided & fits, jnp.minimum(budget, most), budget)

    # Only plans better than the best one known are of interest.
    known_cost = best.sum_of_costs
    last_cost = jnp.where(known_cost < NEVER, known_cost - 1, jnp.int16(K * horizon))
    cheaper = undecided & (least_cost <= last_cost)
    may_be_shorter = undecided & (least_makespan < best.makespan)
    stairs = pair_staircases(batch, boards, pairs.costs, cheaper | may_be_shorter, widths)

    def ask(
        total: bool, waits: bool, first: jax.Array, last: jax.Array, wanted: jax.Array
    ) -> TreeQueries:
        return TreeQueries(
            *boards[:3],
            alone=alone,
            stairs=stairs,
            pair_costs=pairs.costs if waits else waitless_costs,
            total=jnp.full(B, total),
            waits=jnp.full(B, waits),
            first=first.astype(jnp.int16),
            last=last.astype(jnp.int16),
            budget=budget,
            wanted=wanted,
        )

    for_cost = ask(True, True, least_cost, last_cost, cheaper)
    first_queries = _concatenate(for_cost, for_cost._replace(wanted=jnp.zeros(B, bool)))

    def best_after(costs: TreeAnswers) -> BestPlans:
        """Return the best plans known after the search for the cost."""
        length = jnp.max(arrivals_of(costs.paths), axis=0)
        shorter = costs.found & (length < best.makespan)
        return BestPlans(
            sum_of_costs=jnp.where(costs.found, costs.bound, known_cost),
            paths=jnp.where(costs.found, costs.paths, best.paths),
            makespan=jnp.where(shorter, length, best.makespan),
            makespan_paths=jnp.where(shorter, costs.paths, best.makespan_paths),
        )

    def ask_for_the_rest(costs: TreeAnswers) -> TreeQueries:
        so_far = best_after(costs)
        cost = so_far.sum_of_costs
        # Without the cost a board stays UNKNOWN, whatever else is found.
        known = undecided & (cost < NEVER) & ~costs.gave_up
        # A plan without excess has no waits. On a bipartite grid an odd excess can only come from
        # waiting. So only an even excess leaves the question open, unless the plan has no waits.
        even = (cost > floor) & ((cost - floor) % 2 == 0)
        open_question = known & even & (least_waitless_cost <= cost) & waits_in(so_far.paths)
        waitless = ask(True, False, cost, cost, open_question)
        last_makespan = jnp.where(so_far.makespan < NEVER, so_far.makespan - 1, horizon)
        shorter = known & (least_makespan <= last_makespan)
        return _concatenate(ask(False, True, least_makespan, last_makespan, shorter), waitless)

    def search(before: TreeAnswers, first: jax.Array) -> tuple[TreeAnswers, TreeAnswers]:
        queries = jax.tree.map(
            lambda x, y: jnp.where(first, x, y), first_queries, ask_for_the_rest(_halves(before)[0])
        )
        answers = search_with_teams(queries, horizon, widths)
        return answers, answers

    # One loop for both searches, so that it compiles once: for the cost, and then for the rest.
    nothing = no_answers(first_queries, horizon)
    _, answers = jax.lax.scan(search, nothing, jnp.array([True, False]))
    costs, _ = _halves(jax.tree.map(lambda leaf: leaf[0], answers))
    makespans, waitless = _halves(jax.tree.map(lambda leaf: leaf[1], answers))
    plans = best_after(costs)
    cost = plans.sum_of_costs
    makespan = jnp.where(makespans.found, makespans.bound, plans.makespan)
    shortest_paths = jnp.where(makespans.found, makespans.paths, plans.makespan_paths)
    known = connected & ~blocked & (cost < NEVER) & (makespan < NEVER)
    known &= ~costs.gave_up & ~makespans.gave_up
    # The search for the cost looks at arrivals up to the horizon only. A plan in which an agent
    # arrives later costs at least horizon + 1 for that one and the distances for the others, so
    # cheaper plans are excluded where the cost is no more than that.
    known &= (cost == least_cost) | (cost <= horizon + 1 + floor - longest)
    known &= ~waitless.gave_up
    unproved = jnp.where(~connected | blocked, Status.UNSOLVABLE, Status.UNKNOWN)
    status = jnp.where(known, Status.OPTIMAL, unproved)

    def plan(paths: jax.Array) -> jax.Array:
        actions = actions_of(paths).transpose(2, 1, 0)
        return jnp.where(known[:, None, None], actions, jnp.int8(-1))

    by_trees = Solution(
        status=status.astype(jnp.int8),
        sum_of_costs=jnp.where(known, cost, jnp.int16(-1)),
        makespan=jnp.where(known, makespan, jnp.int16(-1)),
        needs_wait=known & (cost > floor) & ~waitless.found & waits_in(plans.paths),
        plan=plan(plans.paths),
        makespan_plan=plan(shortest_paths),
        expansions=costs.expansions + makespans.expansions + waitless.expansions,
    )
    if not dense:
        return by_trees
    room = [radix - 2 for radix in DENSE_RADIXES[K]]
    left = [undecided & ~known & fits for fits in _by_size(sizes, room)]
    proved = (plans.makespan == least_makespan) | (undecided & ~costs.gave_up & ~makespans.gave_up)
    shortest = _Shortest(
        proved=proved & (makespan < NEVER),
        makespan=makespan,
        plan=actions_of(shortest_paths).transpose(2, 1, 0),
    )
    by_trees, shortest = materialize((by_trees, shortest), jnp.any(boards.alone <= NEVER))
    bounds = jnp.array([[makespans.bound, makespan], [costs.bound, cost]], jnp.int32)
    return _solve_densely(batch, by_trees, shortest, bounds, left, horizon, widths)


def _by_size(sizes: jax.Array, limits: Sequence[int]) -> list[jax.Array]:
    """Tell for each limit, bool (B,), which sizes are not above it, but above the one before."""
    return [
        (sizes > below) & (sizes <= limit)
        for below, limit in zip([-1, *limits[:-1]], limits, strict=True)
    ]


class _Shortest(NamedTuple):
    """Plans of least makespan, also of boards whose least sum of costs is not known."""

    proved: jax.Array  # bool (B,)
    makespan: jax.Array  # int16 (B,)
    plan: jax.Array  # int8 (B, T, K)


def _solve_densely(
    batch: Instance,
    known: Solution,
    shortest: _Shortest,
    bounds: jax.Array,
    left: list[jax.Array],
    horizon: int,
    widths: Widths,
) -> Solution:
    """Solve boards that are left, bool (B,) for each class, by `dense_joint`.

    Between the `bounds`, int32 (2, 2, B), are the least makespan and the least cost, if any.
    """
    boards = DenseBoards(
        free=jnp.moveaxis(~batch.holes, 0, -1),
        starts=jnp.moveaxis(batch.starts.astype(jnp.int32), 0, -1),
        goals=jnp.moveaxis(batch.goals.astype(jnp.int32), 0, -1),
        mask=batch.agent_mask.T,
        timed=shortest.proved,
        makespans=bounds[0],
        costs=bounds[1],
    )
    for radix, wanted in zip(DENSE_RADIXES[batch.agent_mask.shape[1]], left, strict=True):
        answers = dense_joint.solve_dense(boards, wanted, horizon, radix, widths)
        known = _with_dense_answers(known, shortest, answers)
    return known


def _with_dense_answers(known: Solution, shortest: _Shortest, answers: DenseAnswers) -> Solution:
    optimal, proved = answers.optimal, answers.optimal | answers.unsolvable
    status = jnp.where(optimal, jnp.int8(Status.OPTIMAL), jnp.int8(Status.UNSOLVABLE))

    timed = shortest.proved[:, None, None]
    makespan = jnp.where(shortest.proved, shortest.makespan, answers.makespan)
    plan, makespan_plan = (jnp.moveaxis(x, -1, 0) for x in (answers.plan, answers.makespan_plan))

    def merge(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(optimal.reshape(-1, *(1,) * (old.ndim - 1)), new, old)

    return Solution(
        status=jnp.where(proved, status, known.status),
        sum_of_costs=merge(answers.sum_of_costs, known.sum_of_costs),
        makespan=merge(makespan, known.makespan),
        needs_wait=merge(answers.needs_wait, known.needs_wait),
        plan=merge(plan, known.plan),
        makespan_plan=merge(jnp.where(timed, shortest.plan, makespan_plan), known.makespan_plan),
        expansions=known.expansions + answers.layers,
    )


def _halves(answers: TreeAnswers) -> tuple[TreeAnswers, TreeAnswers]:
    B = answers.found.shape[0] // 2
    return (
        jax.tree.map(lambda leaf: leaf[..., :B], answers),
        jax.tree.map(lambda leaf: leaf[..., B:], answers),
    )


def _concatenate(left: TreeQueries, right: TreeQueries) -> TreeQueries:
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y], axis=-1), left, right)
