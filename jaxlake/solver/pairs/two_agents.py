"""Exact solver for B boards with two agents, based on the dense joint search."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.instance import Instance
from jaxlake.solver.chunks import BatchMajor, Limits, map_chunks
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


class _TwoAgentResults(NamedTuple):
    """Known results per lane: the fields of `PairPlans`, and `undecided`."""

    optima: JointOptima
    length: jax.Array
    plan: BatchMajor  # int8 (B, horizon * 2), by time and agent
    makespan_plan: BatchMajor  # likewise
    undecided: jax.Array  # bool (B,), an optimal plan without waits may exist but is not known


def solve_two(
    batch: Instance, solo_distances: jax.Array, active: jax.Array, horizon: int, limits: Limits
) -> Solution:
    """Solve the active boards with two agents exactly.

    Inactive boards and boards with fewer agents are not searched and are UNKNOWN. Other boards are
    UNKNOWN if the least makespan, or the plan of least cost that the search finds, is longer than
    `horizon`.

    Args:
        batch: Leaves (B, ...), with two slots.
        solo_distances: int16 (2, B), distance of each agent alone.
        active: bool (B,), boards to solve.
        horizon: Longest plan in steps (static).
        limits: Number of boards to process at once.
    """
    B = len(active)
    is_playing = active & batch.agent_mask[:, 0] & batch.agent_mask[:, 1]
    board = joint_search.geometry(batch.holes.shape[-1])
    free = ~batch.holes
    lanes = joint_search.two_agent_lanes(
        free, batch.starts, batch.goals, is_playing, board, solo_distances
    )
    backend = select_backend(limits.kernels, horizon, board)
    width = max(1, min(B, max_pairs(backend, horizon, board, limits)))
    history: JointHistory | None = None  # a kernel has its own memory
    if backend is None:
        # Chunks share the memory: the search writes every set before it reads it.
        history = JointHistory(
            layers=jnp.zeros((horizon + 1, board.words, board.cells, width), jnp.uint32),
            walks=jnp.zeros((2 * horizon + 2, board.words, 2, width), jnp.uint32),
        )

    def search(
        boards: TwoAgentBoards,
        running: jax.Array,
        history: JointHistory | None,
        cost: jax.Array,
        may_wait: jax.Array | bool,
    ) -> tuple[PairPlans, JointHistory | None]:
        if backend is None:
            return search_by_loops(boards, running, history, cost, horizon, board, may_wait)
        waitless_cost = None if may_wait else cost
        return joint.search_pairs(boards, running, horizon, board, backend, waitless_cost), None

    false, zero, far = jnp.zeros(B, bool), jnp.zeros(B, jnp.int32), jnp.full(B, FAR, jnp.int32)
    empty_plan = BatchMajor(jnp.zeros((B, horizon * 2), jnp.int8))
    defaults = _TwoAgentResults(
        JointOptima(far, far, false, zero), far, empty_plan, empty_plan, false
    )
    max_distance = jnp.max(lanes.solo_distances, axis=0)

    def solve_stage(
        state: tuple[_TwoAgentResults, JointHistory | None], may_wait: jax.Array | bool
    ) -> tuple[tuple[_TwoAgentResults, JointHistory | None], None]:
        """Find the optima with plans or, if `may_wait` is False, plans without waits."""
        results, history = state
        is_solved, cost = results.optima.makespan < FAR, results.optima.sum_of_costs
        is_undecided = joint_search.needs_waitless_search(lanes.solo_distances, is_solved, cost)
        results = results._replace(undecided=is_undecided & ~jnp.asarray(may_wait))
        is_searched = jnp.where(may_wait, lanes.connected, is_undecided)
        length = jnp.where(may_wait, max_distance, cost)
        Chunk = tuple[TwoAgentLanes, _TwoAgentResults, jax.Array]

        def search_chunk(
            chunk: Chunk, history: JointHistory | None
        ) -> tuple[_TwoAgentResults, JointHistory | None]:
            lanes, known_results, active = chunk
            cost = known_results.optima.sum_of_costs
            plans, history = search(lanes.lay_out(free, board), active, history, cost, may_wait)
            return _merge_plans(known_results, plans, active, may_wait), history

        operands = (lanes, results, is_searched)
        return map_chunks(
            search_chunk, operands, is_searched, length, results, width, history
        ), None

    initial_state = (defaults, history)
    if backend is None:  # in a loop, so that the search is compiled once
        (results, _), _ = jax.lax.scan(solve_stage, initial_state, jnp.array([True, False]))
    else:
        results, _ = solve_stage(solve_stage(initial_state, True)[0], False)[0]

    optima = results.optima
    excess = optima.sum_of_costs - jnp.sum(lanes.solo_distances, axis=0, dtype=jnp.int32)
    is_optimal = (optima.makespan < FAR) & (results.length <= horizon)
    is_unsolvable = optima.stuck | (is_playing & ~lanes.connected)
    unproved_status = jnp.where(is_unsolvable, Status.UNSOLVABLE, Status.UNKNOWN)
    status = jnp.where(is_optimal, Status.OPTIMAL, unproved_status)

    def mask_plan(plan: BatchMajor) -> jax.Array:
        values = jnp.where(is_optimal[:, None], plan.values, jnp.int8(-1))
        return values.reshape(B, horizon, 2)

    return Solution(
        status=status.astype(jnp.int8),
        sum_of_costs=jnp.where(is_optimal, optima.sum_of_costs.astype(jnp.int16), jnp.int16(-1)),
        makespan=jnp.where(is_optimal, optima.makespan.astype(jnp.int16), jnp.int16(-1)),
        needs_wait=is_optimal & ((excess % 2 == 1) | results.undecided),
        plan=mask_plan(results.plan),
        makespan_plan=mask_plan(results.makespan_plan),
        expansions=optima.expansions,
    )


def _merge_plans(
    results: _TwoAgentResults, plans: PairPlans, active: jax.Array, may_wait: jax.Array | bool
) -> _TwoAgentResults:
    """Merge the plans of a search. A plan without waits replaces the known plan."""
    optima = plans.optima
    plan, makespan_plan = (
        BatchMajor(batch_major_actions(actions.swapaxes(0, 1)).reshape(len(active), -1))
        for actions in (plans.plan, plans.makespan_plan)
    )
    false = jnp.zeros_like(optima.stuck)
    first_results = _TwoAgentResults(optima, plans.length, plan, makespan_plan, undecided=false)
    is_waitless = active & (optima.sum_of_costs < FAR)
    expansions = results.optima.expansions + optima.expansions
    waitless_results = results._replace(
        optima=results.optima._replace(expansions=expansions),
        length=jnp.where(is_waitless, plans.length, results.length),
        plan=BatchMajor(jnp.where(is_waitless[:, None], plan.values, results.plan.values)),
        undecided=results.undecided & ~is_waitless,
    )
    return jax.tree.map(lambda x, y: jnp.where(may_wait, x, y), first_results, waitless_results)


def search_by_loops(
    boards: TwoAgentBoards,
    running: jax.Array,
    history: JointHistory | None,
    waitless_cost: jax.Array,
    horizon: int,
    board: Geometry,
    may_wait: jax.Array | bool,
) -> tuple[PairPlans, JointHistory]:
    """Run `joint_search` with XLA loops, and reconstruct plans from the history."""
    optima, history = joint_search.joint_search(
        boards, running, horizon, board, history, waitless_cost=waitless_cost, may_wait=may_wait
    )
    assert history is not None
    layers = history.layers
    has_plan = jnp.where(may_wait, optima.makespan, optima.sum_of_costs) < FAR
    cost = jnp.where(may_wait, optima.sum_of_costs, waitless_cost)
    cheapest_plan, cells = _walk_back(boards, cost, has_plan, history, horizon, board, may_wait)
    # If the plan of least cost also has the least makespan, it serves both objectives.
    is_too_long = has_plan & (cheapest_plan.length > optima.makespan) & may_wait

    def fill_plan(
        plan: jax.Array, task: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        is_new, cells, time = task
        plan = jnp.where(is_new, jnp.int8(0), plan)
        plan = _trace_layers(plan, cells, time, layers, board, may_wait)
        return plan, plan

    # First the plan of least cost, then the plan of least makespan.
    tasks = (
        jnp.stack([jnp.zeros_like(is_too_long), is_too_long]),
        jnp.stack([cells, boards.goals]),
        jnp.stack([cheapest_plan.retirement, jnp.where(is_too_long, optima.makespan, 0)]),
    )
    _, (plan, makespan_plan) = jax.lax.scan(fill_plan, cheapest_plan.plan, tasks)
    return PairPlans(optima, cheapest_plan.length, plan, makespan_plan), history


class _WalkBack(NamedTuple):
    """Backward walk of one agent while the other is retired."""

    steps: jax.Array  # int32 (), steps walked back
    cell: jax.Array  # int32 (B,), cell of the walker
    cost: jax.Array  # int32 (B,), cost of the plan up to this point
    walking: jax.Array  # bool (B,), the other agent retires earlier in the plan
    actions: jax.Array  # int8 (2 * horizon + 2, B), last action first


class _CheapestPlan(NamedTuple):
    """Plan of least sum of costs, filled in from the retirement of one agent on."""

    plan: jax.Array  # int8 (horizon, 2, B)
    length: jax.Array  # int32 (B,)
    retirement: jax.Array  # int32 (B,), number of earlier steps, which are not filled in


def _walk_back(
    boards: TwoAgentBoards,
    cost: jax.Array,
    active: jax.Array,
    history: JointHistory,
    horizon: int,
    board: Geometry,
    may_wait: jax.Array | bool,
) -> tuple[_CheapestPlan, jax.Array]:
    """Walk back from the goal through S_c until both agents are in a layer.

    Returns:
        The plan, and the joint cell at the retirement, int32 (2, B).
    """
    deltas = jnp.asarray((0, *board.deltas), jnp.int32)
    goals, lane = boards.goals, jnp.arange(cost.shape[0])
    plan_cost = jnp.where(active, cost, 0)
    words = history.walks[plan_cost, goals[0] // 32, 0, lane]
    walker = jnp.where(joint_search.has_cells(words, goals[0]), 0, 1)
    retired_cell = jnp.where(walker == 0, goals[1], goals[0])

    def joint_cell(cell: jax.Array) -> jax.Array:
        return jnp.where(
            walker == 0, jnp.stack([cell, retired_cell]), jnp.stack([retired_cell, cell])
        )

    def is_walking(cell: jax.Array, cost: jax.Array) -> jax.Array:
        cell_0, cell_1 = joint_cell(cell)
        words = history.layers[cost // 2, cell_1 // 32, cell_0, lane]
        return active & ~((cost % 2 == 0) & joint_search.has_cells(words, cell_1))

    def step_back(state: _WalkBack) -> _WalkBack:
        origins = state.cell - deltas[:, None]
        is_inside = (origins >= 0) & (origins < board.cells)
        cells = jnp.where(is_inside, origins, 0)
        words = history.walks[jnp.maximum(state.cost - 1, 0), cells // 32, walker, lane]
        is_allowed = jnp.asarray(may_wait) | (np.arange(len(deltas)) > 0)
        is_legal = is_inside & joint_search.has_cells(words, cells) & is_allowed[:, None]
        # WAIT comes last, so that moves are preferred.
        order = np.array([1, 2, 3, 4, 0])
        action = jnp.asarray(order)[_first_legal(is_legal[order])]
        action = jnp.where(state.walking, action, 0)
        cell = state.cell - deltas[action]
        cost = state.cost - state.walking
        return _WalkBack(
            steps=state.steps + 1,
            cell=cell,
            cost=cost,
            walking=state.walking & is_walking(cell, cost),
            actions=state.actions.at[state.steps].set(action.astype(jnp.int8)),
        )

    goal = jnp.where(walker == 0, goals[0], goals[1])
    no_actions = jnp.zeros((2 * horizon + 2, cost.shape[0]), jnp.int8)
    initial_walk = _WalkBack(jnp.int32(0), goal, plan_cost, is_walking(goal, plan_cost), no_actions)
    walk = jax.lax.while_loop(lambda state: jnp.any(state.walking), step_back, initial_walk)
    # A step costs 2 until the retirement, and 1 after it.
    retirement = walk.cost // 2
    length = plan_cost - retirement
    index = length - 1 - np.arange(horizon)[:, None]  # the actions are in reverse
    walks_alone = (index >= 0) & (np.arange(horizon)[:, None] >= retirement)
    solo_actions = jnp.take_along_axis(walk.actions, jnp.where(walks_alone, index, 0), axis=0)
    solo_actions = jnp.where(walks_alone, solo_actions, jnp.int8(0))
    plan = jnp.where(np.arange(2)[:, None] == walker, solo_actions[:, None], jnp.int8(0))
    return _CheapestPlan(plan, length, retirement), joint_cell(walk.cell)


def _first_legal(is_legal: jax.Array) -> jax.Array:
    """Return `argmax(legal, axis=0)`, int32 (B,), which XLA does not vectorise on CPUs."""
    index = np.arange(len(is_legal), dtype=np.int32)[:, None]
    first_index = jnp.min(jnp.where(is_legal, index, len(is_legal)), axis=0)
    return jnp.where(first_index < len(is_legal), first_index, 0)


def _trace_layers(
    plan: jax.Array,
    cells: jax.Array,
    time: jax.Array,
    layers: jax.Array,
    board: Geometry,
    may_wait: jax.Array | bool,
) -> jax.Array:
    """Fill in the first `time` steps of a plan, int8 (horizon, 2, B), that lead to `cells`."""
    # `time` is the first time at which the cells are reached, so any predecessor in a layer fits.
    deltas = jnp.asarray((0, *board.deltas), jnp.int32)
    lane = jnp.arange(cells.shape[-1])
    choices = np.indices((5, 5)).reshape(2, 25)
    num_moving = np.sum(choices > 0, axis=0)
    # Choose a legal predecessor in which as few agents as possible wait.
    order = np.argsort(-num_moving, kind="stable")
    choices, is_allowed = choices[:, order], jnp.asarray(may_wait) | (num_moving[order] == 2)
    last_time = jnp.max(time, initial=0)

    def step_back(i: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        plan, cells = state
        t = last_time - i
        origins = cells[:, None] - deltas[choices][..., None]
        is_inside = jnp.all((origins >= 0) & (origins < board.cells), axis=0)
        is_swap = (origins[0] == cells[1]) & (origins[1] == cells[0])
        is_legal = is_inside & ~is_swap & is_allowed[:, None]
        cell_0, cell_1 = jnp.where(is_inside, origins, 0)
        words = layers[t - 1, cell_1 // 32, cell_0, lane]
        is_in_layer = joint_search.has_cells(words, cell_1)
        actions = jnp.asarray(choices)[:, _first_legal(is_legal & is_in_layer)]
        is_filled = t <= time
        actions = jnp.where(is_filled, actions, 0)
        row = jnp.where(is_filled, actions.astype(jnp.int8), plan[t - 1])
        return plan.at[t - 1].set(row), cells - deltas[actions]

    return jax.lax.fori_loop(0, last_time, step_back, (plan, cells))[0]
