"""Two agents: both optima, a plan for each and `needs_wait`, using the dense joint search."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.instance import Instance
from jaxlake.solver.chunks import Rows, Widths, map_chunks
from jaxlake.solver.kernels import joint
from jaxlake.solver.kernels.pair_lanes import max_pairs, select_backend
from jaxlake.solver.pairs import joint_search
from jaxlake.solver.pairs.joint_search import (
    FAR,
    Geometry,
    JointHistory,
    JointOptima,
    PairPlans,
    TwoAgentBoards,
    TwoAgentLanes,
)
from jaxlake.solver.solution import Solution, Status
from jaxlake.solver.space_time import batch_major_actions


class _TwoAgentOptima(NamedTuple):
    """Known results per lane: the fields of `PairPlans`, and `undecided`."""

    optima: JointOptima
    length: jax.Array
    plan: Rows  # int8 (B, horizon * 2), by time and agent
    makespan_plan: Rows  # likewise
    undecided: jax.Array  # bool (B,), no plan without waits is known, but one may exist


def solve_two(
    batch: Instance, solo_distances: jax.Array, active: jax.Array, horizon: int, widths: Widths
) -> Solution:
    """Solve the active boards with two agents exactly.

    Inactive boards and boards with fewer agents are UNKNOWN and cost almost nothing. Other boards
    are UNKNOWN if their makespan, or the plan with the optimal sum of costs that the search finds,
    exceeds `horizon`.

    Args:
        batch: Leaves (B, ...), with two slots.
        solo_distances: int16 (2, B), distances.
        active: bool (B,).
        horizon: Longest plan in steps (static).
        widths: Number of boards to process at once.
    """
    B = len(active)
    playing = active & batch.agent_mask[:, 0] & batch.agent_mask[:, 1]
    board = joint_search.geometry(batch.holes.shape[-1])
    free = ~batch.holes
    lanes = joint_search.two_agent_lanes(
        free, batch.starts, batch.goals, playing, board, solo_distances
    )
    backend = select_backend(widths.kernels, horizon, board)
    width = max(1, min(B, max_pairs(backend, horizon, board, widths)))
    history: JointHistory | None = None  # a kernel has its own memory
    if backend is None:
        # Allocated once, not per chunk: the loops write every set before they read it.
        history = JointHistory(
            layers=jnp.zeros((horizon + 1, board.words, board.cells, width), jnp.uint32),
            walks=jnp.zeros((2 * horizon + 2, board.words, 2, width), jnp.uint32),
        )

    def search(
        boards: TwoAgentBoards,
        running: jax.Array,
        history: JointHistory | None,
        cost: jax.Array,
        waiting: jax.Array | bool,
    ) -> tuple[PairPlans, JointHistory | None]:
        if backend is None:
            return search_by_loops(boards, running, history, cost, horizon, board, waiting)
        waitless_cost = None if waiting else cost
        return joint.search_pairs(boards, running, horizon, board, backend, waitless_cost), None

    false, zero, far = jnp.zeros(B, bool), jnp.zeros(B, jnp.int32), jnp.full(B, FAR, jnp.int32)
    no_plan = Rows(jnp.zeros((B, horizon * 2), jnp.int8))
    blank = _TwoAgentOptima(JointOptima(far, far, false, zero), far, no_plan, no_plan, false)
    shortest = jnp.max(lanes.solo_distances, axis=0)

    def solve_stage(
        state: tuple[_TwoAgentOptima, JointHistory | None], waiting: jax.Array | bool
    ) -> tuple[tuple[_TwoAgentOptima, JointHistory | None], None]:
        """Find the optima and a plan for each. Without `waiting`, find plans without waits."""
        results, history = state
        solved, cost = results.optima.makespan < FAR, results.optima.sum_of_costs
        undecided = joint_search.needs_waitless_search(lanes.solo_distances, solved, cost)
        results = results._replace(undecided=undecided & ~jnp.asarray(waiting))
        searched = jnp.where(waiting, lanes.connected, undecided)
        length = jnp.where(waiting, shortest, cost)
        Chunk = tuple[TwoAgentLanes, _TwoAgentOptima, jax.Array]

        def search_chunk(
            chunk: Chunk, history: JointHistory | None
        ) -> tuple[_TwoAgentOptima, JointHistory | None]:
            lanes, before, active = chunk
            cost = before.optima.sum_of_costs
            plans, history = search(lanes.lay_out(free, board), active, history, cost, waiting)
            return _merge_plans(before, plans, active, waiting), history

        operands = (lanes, results, searched)
        return map_chunks(search_chunk, operands, searched, length, results, width, history), None

    initial = (blank, history)
    if backend is None:  # a single loop for both, so that it compiles once
        (results, _), _ = jax.lax.scan(solve_stage, initial, jnp.array([True, False]))
    else:
        results, _ = solve_stage(solve_stage(initial, True)[0], False)[0]

    optima = results.optima
    excess = optima.sum_of_costs - jnp.sum(lanes.solo_distances, axis=0, dtype=jnp.int32)
    optimal = (optima.makespan < FAR) & (results.length <= horizon)
    unsolvable = optima.stuck | (playing & ~lanes.connected)
    unproved = jnp.where(unsolvable, Status.UNSOLVABLE, Status.UNKNOWN)
    status = jnp.where(optimal, Status.OPTIMAL, unproved)

    def where_optimal(plan: Rows) -> jax.Array:
        values = jnp.where(optimal[:, None], plan.values, jnp.int8(-1))
        return values.reshape(B, horizon, 2)

    return Solution(
        status=status.astype(jnp.int8),
        sum_of_costs=jnp.where(optimal, optima.sum_of_costs.astype(jnp.int16), jnp.int16(-1)),
        makespan=jnp.where(optimal, optima.makespan.astype(jnp.int16), jnp.int16(-1)),
        needs_wait=optimal & ((excess % 2 == 1) | results.undecided),
        plan=where_optimal(results.plan),
        makespan_plan=where_optimal(results.makespan_plan),
        expansions=optima.expansions,
    )


def _merge_plans(
    results: _TwoAgentOptima, plans: PairPlans, active: jax.Array, waiting: jax.Array | bool
) -> _TwoAgentOptima:
    """Merge the results of a search; a plan without waits replaces the known plan."""
    optima = plans.optima
    plan, makespan_plan = (
        Rows(batch_major_actions(actions.swapaxes(0, 1)).reshape(len(active), -1))
        for actions in (plans.plan, plans.makespan_plan)
    )
    false = jnp.zeros_like(optima.stuck)
    first_results = _TwoAgentOptima(optima, plans.length, plan, makespan_plan, undecided=false)
    waitless = active & (optima.sum_of_costs < FAR)
    expansions = results.optima.expansions + optima.expansions
    waitless_results = results._replace(
        optima=results.optima._replace(expansions=expansions),
        length=jnp.where(waitless, plans.length, results.length),
        plan=Rows(jnp.where(waitless[:, None], plan.values, results.plan.values)),
        undecided=results.undecided & ~waitless,
    )
    return jax.tree.map(lambda x, y: jnp.where(waiting, x, y), first_results, waitless_results)


def search_by_loops(
    boards: TwoAgentBoards,
    running: jax.Array,
    history: JointHistory | None,
    waitless_cost: jax.Array,
    horizon: int,
    board: Geometry,
    waiting: jax.Array | bool,
) -> tuple[PairPlans, JointHistory]:
    """Search, and reconstruct plans from `history`, which is required; see `joint_search`."""
    optima, history = joint_search.joint_search(
        boards, running, horizon, board, history, waitless_cost=waitless_cost, waiting=waiting
    )
    assert history is not None
    layers = history.layers
    has_plan = jnp.where(waiting, optima.makespan, optima.sum_of_costs) < FAR
    cost = jnp.where(waiting, optima.sum_of_costs, waitless_cost)
    walk, places = _walk_back(boards, cost, has_plan, history, horizon, board, waiting)
    # A cheapest plan with the least makespan serves both objectives.
    too_long = has_plan & (walk.length > optima.makespan) & waiting

    def fill(
        plan: jax.Array, task: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        blank, places, time = task
        plan = jnp.where(blank, jnp.int8(0), plan)
        plan = _back_through_layers(plan, places, time, layers, board, waiting)
        return plan, plan

    # The plan of least cost, then the plan of least makespan, in a loop that compiles once.
    tasks = (
        jnp.stack([jnp.zeros_like(too_long), too_long]),
        jnp.stack([places, boards.goals]),
        jnp.stack([walk.retirement, jnp.where(too_long, optima.makespan, 0)]),
    )
    _, (plan, makespan_plan) = jax.lax.scan(fill, walk.plan, tasks)
    return PairPlans(optima, walk.length, plan, makespan_plan), history


class _WalkBack(NamedTuple):
    """Backward walk of one agent while the other is retired."""

    steps: jax.Array  # int32 (), steps walked back
    place: jax.Array  # int32 (B,), cell of the walker
    remaining: jax.Array  # int32 (B,), cost paid up to this point
    walking: jax.Array  # bool (B,), the other agent has not retired at this point
    actions: jax.Array  # int8 (2 * horizon + 2, B), last action first


class _CheapestPlan(NamedTuple):
    """Plan of least sum of costs, filled from the retirement of one agent on."""

    plan: jax.Array  # int8 (horizon, 2, B)
    length: jax.Array  # int32 (B,)
    retirement: jax.Array  # int32 (B,), number of earlier steps, still to be filled


def _walk_back(
    boards: TwoAgentBoards,
    cost: jax.Array,
    active: jax.Array,
    history: JointHistory,
    horizon: int,
    board: Geometry,
    waiting: jax.Array | bool,
) -> tuple[_CheapestPlan, jax.Array]:
    """Walk back from the goal through S_c until the joint cell, int32 (2, B), is in a layer."""
    deltas = jnp.asarray((0, *board.deltas), jnp.int32)
    goals, lane = boards.goals, jnp.arange(cost.shape[0])
    spent = jnp.where(active, cost, 0)
    home = history.walks[spent, goals[0] // 32, 0, lane]
    walker = jnp.where(joint_search.has_cells(home, goals[0]), 0, 1)
    retired = jnp.where(walker == 0, goals[1], goals[0])

    def joint_cell(place: jax.Array) -> jax.Array:
        return jnp.where(walker == 0, jnp.stack([place, retired]), jnp.stack([retired, place]))

    def is_walking(place: jax.Array, remaining: jax.Array) -> jax.Array:
        cell, bit = joint_cell(place)
        met = joint_search.has_cells(history.layers[remaining // 2, bit // 32, cell, lane], bit)
        return active & ~((remaining % 2 == 0) & met)

    def step_back(state: _WalkBack) -> _WalkBack:
        before = state.place - deltas[:, None]
        inside = (before >= 0) & (before < board.cells)
        cells = jnp.where(inside, before, 0)
        sets = history.walks[jnp.maximum(state.remaining - 1, 0), cells // 32, walker, lane]
        may_wait = jnp.asarray(waiting) | (np.arange(len(deltas)) > 0)
        legal = inside & joint_search.has_cells(sets, cells) & may_wait[:, None]
        # WAIT comes last, so that moves are preferred.
        order = np.array([1, 2, 3, 4, 0])
        action = jnp.asarray(order)[_first_legal(legal[order])]
        action = jnp.where(state.walking, action, 0)
        place = state.place - deltas[action]
        remaining = state.remaining - state.walking
        return _WalkBack(
            steps=state.steps + 1,
            place=place,
            remaining=remaining,
            walking=state.walking & is_walking(place, remaining),
            actions=state.actions.at[state.steps].set(action.astype(jnp.int8)),
        )

    goal = jnp.where(walker == 0, goals[0], goals[1])
    no_actions = jnp.zeros((2 * horizon + 2, cost.shape[0]), jnp.int8)
    initial = _WalkBack(jnp.int32(0), goal, spent, is_walking(goal, spent), no_actions)
    walk = jax.lax.while_loop(lambda state: jnp.any(state.walking), step_back, initial)
    # Until the retirement a step costs 2, afterwards 1.
    retirement = walk.remaining // 2
    length = spent - retirement
    # The walk recorded its actions in reverse.
    back = length - 1 - np.arange(horizon)[:, None]
    on_foot = (back >= 0) & (np.arange(horizon)[:, None] >= retirement)
    solo_actions = jnp.take_along_axis(walk.actions, jnp.where(on_foot, back, 0), axis=0)
    solo_actions = jnp.where(on_foot, solo_actions, jnp.int8(0))
    plan = jnp.where(np.arange(2)[:, None] == walker, solo_actions[:, None], jnp.int8(0))
    return _CheapestPlan(plan, length, retirement), joint_cell(walk.place)


def _first_legal(legal: jax.Array) -> jax.Array:
    """Return the first legal choice, int32 (B,), of bool (C, B); 0 if none is legal."""
    # Equivalent to `argmax`, which XLA does not vectorise on CPUs.
    number = np.arange(len(legal), dtype=np.int32)[:, None]
    first = jnp.min(jnp.where(legal, number, len(legal)), axis=0)
    return jnp.where(first < len(legal), first, 0)


def _back_through_layers(
    plan: jax.Array,
    places: jax.Array,
    time: jax.Array,
    layers: jax.Array,
    board: Geometry,
    waiting: jax.Array | bool,
) -> jax.Array:
    """Fill the first `time` steps of a plan, int8 (horizon, 2, B), that end in `places`."""
    # `time` is the first time at which `places` are reached, so any predecessor in a layer is fine.
    deltas = jnp.asarray((0, *board.deltas), jnp.int32)
    lane = jnp.arange(places.shape[-1])
    choices = np.indices((5, 5)).reshape(2, 25)
    moving = np.sum(choices > 0, axis=0)
    # Choose a legal predecessor in which as few agents as possible wait.
    order = np.argsort(-moving, kind="stable")
    choices, allowed = choices[:, order], jnp.asarray(waiting) | (moving[order] == 2)
    last = jnp.max(time, initial=0)

    def step_back(i: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        plan, places = state
        t = last - i
        before = places[:, None] - deltas[choices][..., None]
        inside = jnp.all((before >= 0) & (before < board.cells), axis=0)
        swap = (before[0] == places[1]) & (before[1] == places[0])
        legal = inside & ~swap & allowed[:, None]
        cell, bit = jnp.where(inside, before, 0)
        was_there = joint_search.has_cells(layers[t - 1, bit // 32, cell, lane], bit)
        action = jnp.asarray(choices)[:, _first_legal(legal & was_there)]
        due = t <= time
        action = jnp.where(due, action, 0)
        row = jnp.where(due, action.astype(jnp.int8), plan[t - 1])
        return plan.at[t - 1].set(row), places - deltas[action]

    return jax.lax.fori_loop(0, last, step_back, (plan, places))[0]
