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
    playing = active & batch.agent_mask[:, 0] & batch.agent_mask[:, 1]
    board = joint_search.geometry(batch.holes.shape[-1])
    free = ~batch.holes
    lanes = joint_search.two_agent_lanes(
        free, batch.starts, batch.goals, playing, board, solo_distances
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
    no_plan = BatchMajor(jnp.zeros((B, horizon * 2), jnp.int8))
    blank = _TwoAgentResults(JointOptima(far, far, false, zero), far, no_plan, no_plan, false)
    shortest = jnp.max(lanes.solo_distances, axis=0)

    def solve_stage(
        state: tuple[_TwoAgentResults, JointHistory | None], may_wait: jax.Array | bool
    ) -> tuple[tuple[_TwoAgentResults, JointHistory | None], None]:
        """Find the optima with plans or, if `may_wait` is False, plans without waits."""
        results, history = state
        solved, cost = results.optima.makespan < FAR, results.optima.sum_of_costs
        undecided = joint_search.needs_waitless_search(lanes.solo_distances, solved, cost)
        results = results._replace(undecided=undecided & ~jnp.asarray(may_wait))
        searched = jnp.where(may_wait, lanes.connected, undecided)
        length = jnp.where(may_wait, shortest, cost)
        Chunk = tuple[TwoAgentLanes, _TwoAgentResults, jax.Array]

        def search_chunk(
            chunk: Chunk, history: JointHistory | None
        ) -> tuple[_TwoAgentResults, JointHistory | None]:
            lanes, known, active = chunk
            cost = known.optima.sum_of_costs
            plans, history = search(lanes.lay_out(free, board), active, history, cost, may_wait)
            return _merge_plans(known, plans, active, may_wait), history

        operands = (lanes, results, searched)
        return map_chunks(search_chunk, operands, searched, length, results, width, history), None

    initial = (blank, history)
    if backend is None:  # in a loop, so that the search is compiled once
        (results, _), _ = jax.lax.scan(solve_stage, initial, jnp.array([True, False]))
    else:
        results, _ = solve_stage(solve_stage(initial, True)[0], False)[0]

    optima = results.optima
    excess = optima.sum_of_costs - jnp.sum(lanes.solo_distances, axis=0, dtype=jnp.int32)
    optimal = (optima.makespan < FAR) & (results.length <= horizon)
    unsolvable = optima.stuck | (playing & ~lanes.connected)
    unproved = jnp.where(unsolvable, Status.UNSOLVABLE, Status.UNKNOWN)
    status = jnp.where(optimal, Status.OPTIMAL, unproved)

    def mask_plan(plan: BatchMajor) -> jax.Array:
        values = jnp.where(optimal[:, None], plan.values, jnp.int8(-1))
        return values.reshape(B, horizon, 2)

    return Solution(
        status=status.astype(jnp.int8),
        sum_of_costs=jnp.where(optimal, optima.sum_of_costs.astype(jnp.int16), jnp.int16(-1)),
        makespan=jnp.where(optimal, optima.makespan.astype(jnp.int16), jnp.int16(-1)),
        needs_wait=optimal & ((excess % 2 == 1) | results.undecided),
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
    waitless = active & (optima.sum_of_costs < FAR)
    expansions = results.optima.expansions + optima.expansions
    waitless_results = results._replace(
        optima=results.optima._replace(expansions=expansions),
        length=jnp.where(waitless, plans.length, results.length),
        plan=BatchMajor(jnp.where(waitless[:, None], plan.values, results.plan.values)),
        undecided=results.undecided & ~waitless,
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
    cheapest, cells = _walk_back(boards, cost, has_plan, history, horizon, board, may_wait)
    # If the plan of least cost also has the least makespan, it serves both objectives.
    too_long = has_plan & (cheapest.length > optima.makespan) & may_wait

    def fill(
        plan: jax.Array, task: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        is_new, cells, time = task
        plan = jnp.where(is_new, jnp.int8(0), plan)
        plan = _trace_layers(plan, cells, time, layers, board, may_wait)
        return plan, plan

    # First the plan of least cost, then the plan of least makespan.
    tasks = (
        jnp.stack([jnp.zeros_like(too_long), too_long]),
        jnp.stack([cells, boards.goals]),
        jnp.stack([cheapest.retirement, jnp.where(too_long, optima.makespan, 0)]),
    )
    _, (plan, makespan_plan) = jax.lax.scan(fill, cheapest.plan, tasks)
    return PairPlans(optima, cheapest.length, plan, makespan_plan), history


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
    retired = jnp.where(walker == 0, goals[1], goals[0])

    def joint_cell(cell: jax.Array) -> jax.Array:
        return jnp.where(walker == 0, jnp.stack([cell, retired]), jnp.stack([retired, cell]))

    def is_walking(cell: jax.Array, cost: jax.Array) -> jax.Array:
        cell_0, cell_1 = joint_cell(cell)
        words = history.layers[cost // 2, cell_1 // 32, cell_0, lane]
        return active & ~((cost % 2 == 0) & joint_search.has_cells(words, cell_1))

    def step_back(state: _WalkBack) -> _WalkBack:
        origins = state.cell - deltas[:, None]
        inside = (origins >= 0) & (origins < board.cells)
        cells = jnp.where(inside, origins, 0)
        words = history.walks[jnp.maximum(state.cost - 1, 0), cells // 32, walker, lane]
        allowed = jnp.asarray(may_wait) | (np.arange(len(deltas)) > 0)
        legal = inside & joint_search.has_cells(words, cells) & allowed[:, None]
        # WAIT comes last, so that moves are preferred.
        order = np.array([1, 2, 3, 4, 0])
        action = jnp.asarray(order)[_first_legal(legal[order])]
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
    initial = _WalkBack(jnp.int32(0), goal, plan_cost, is_walking(goal, plan_cost), no_actions)
    walk = jax.lax.while_loop(lambda state: jnp.any(state.walking), step_back, initial)
    # A step costs 2 until the retirement, and 1 after it.
    retirement = walk.cost // 2
    length = plan_cost - retirement
    index = length - 1 - np.arange(horizon)[:, None]  # the actions are in reverse
    walks_alone = (index >= 0) & (np.arange(horizon)[:, None] >= retirement)
    solo_actions = jnp.take_along_axis(walk.actions, jnp.where(walks_alone, index, 0), axis=0)
    solo_actions = jnp.where(walks_alone, solo_actions, jnp.int8(0))
    plan = jnp.where(np.arange(2)[:, None] == walker, solo_actions[:, None], jnp.int8(0))
    return _CheapestPlan(plan, length, retirement), joint_cell(walk.cell)


def _first_legal(legal: jax.Array) -> jax.Array:
    """Return `argmax(legal, axis=0)`, int32 (B,), which XLA does not vectorise on CPUs."""
    index = np.arange(len(legal), dtype=np.int32)[:, None]
    first = jnp.min(jnp.where(legal, index, len(legal)), axis=0)
    return jnp.where(first < len(legal), first, 0)


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
    moving = np.sum(choices > 0, axis=0)
    # Choose a legal predecessor in which as few agents as possible wait.
    order = np.argsort(-moving, kind="stable")
    choices, allowed = choices[:, order], jnp.asarray(may_wait) | (moving[order] == 2)
    last = jnp.max(time, initial=0)

    def step_back(i: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        plan, cells = state
        t = last - i
        origins = cells[:, None] - deltas[choices][..., None]
        inside = jnp.all((origins >= 0) & (origins < board.cells), axis=0)
        is_swap = (origins[0] == cells[1]) & (origins[1] == cells[0])
        legal = inside & ~is_swap & allowed[:, None]
        cell_0, cell_1 = jnp.where(inside, origins, 0)
        words = layers[t - 1, cell_1 // 32, cell_0, lane]
        in_layer = joint_search.has_cells(words, cell_1)
        actions = jnp.asarray(choices)[:, _first_legal(legal & in_layer)]
        is_filled = t <= time
        actions = jnp.where(is_filled, actions, 0)
        row = jnp.where(is_filled, actions.astype(jnp.int8), plan[t - 1])
        return plan.at[t - 1].set(row), cells - deltas[actions]

    return jax.lax.fori_loop(0, last, step_back, (plan, cells))[0]
