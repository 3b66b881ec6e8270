"""Dense joint search for two agents, for many boards in one launch, with or without plans."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver.chunks import Kernels
from jaxlake.solver.kernels.lanes import (
    CellSet,
    any_lane,
    intersects,
    reduce_or,
    select,
    single_cell,
    subtract,
    to_int32,
)
from jaxlake.solver.kernels.pair_lanes import (
    RECENT_TIMES,
    PairLanes,
    output_rows,
    run_pairs,
    to_uint32,
)
from jaxlake.solver.pairs.joint_search import (
    FAR,
    HALT_PERIOD,
    Geometry,
    JointOptima,
    PairPlans,
    TwoAgentBoards,
)

_JOINED_SHIFT, _ODD_SHIFT = 2, 4
"""Bit positions of the second and third part of a word of `PairLanes.write_walk`."""

_ILLEGAL = 99
"""Rank of an illegal choice, above all others."""


class KernelResults(NamedTuple):
    """Numbers per board, int32 each."""

    sum_of_costs: jax.Array
    makespan: jax.Array
    stuck: jax.Array
    expansions: jax.Array
    walker: jax.Array  # the agent that arrives last
    plan_cost: jax.Array  # the sum of costs if there is a plan, else 0
    retirement: jax.Array  # arrival of the other agent
    makespan_steps: jax.Array  # steps of a separate makespan plan; 0 if the other plan serves


def search_costs(
    boards: TwoAgentBoards,
    running: jax.Array,
    horizon: int,
    board: Geometry,
    backend: Kernels,
    waitless_cost: jax.Array | None = None,
) -> JointOptima:
    """Return the result of `joint_search` without plans, computed in one launch."""
    results, _ = _search(boards, running, horizon, board, backend, waitless_cost, with_plans=False)
    return _make_optima(results)


def search_pairs(
    boards: TwoAgentBoards,
    running: jax.Array,
    horizon: int,
    board: Geometry,
    backend: Kernels,
    waitless_cost: jax.Array | None = None,
) -> PairPlans:
    """Return the result of `joint_search` with plans, computed in one launch.

    With `waitless_cost`, search for plans of this cost without waits.
    """
    T, B = horizon, len(running)
    results, rows = _search(
        boards, running, horizon, board, backend, waitless_cost, with_plans=True
    )
    actions, joint_actions = jnp.split(rows, [output_rows(T, rows.shape[1]).actions])
    actions = actions.reshape(-1, B)
    joint_actions = joint_actions.reshape(2, -1, B)[:, :T]
    first_steps = jnp.stack([joint_actions // 5, joint_actions % 5], axis=2)  # (2, T, agents, B)
    length = results.plan_cost - results.retirement
    # After the retirement of one agent, a step of the other raises the cost by 1. Action c is the
    # one with which the cost becomes c.
    step = np.arange(T)[:, None]
    walks_alone = (step >= results.retirement) & (step < length)
    solo_actions = jnp.take_along_axis(
        actions, jnp.where(walks_alone, step + 1 + results.retirement, 0), axis=0
    )
    walker = np.arange(2)[:, None] == results.walker
    last_steps = jnp.where(walker & walks_alone[:, None], solo_actions[:, None], 0)
    plan = (last_steps + first_steps[0]).astype(jnp.int8)
    makespan_plan = jnp.where(results.makespan_steps > 0, first_steps[1].astype(jnp.int8), plan)
    return PairPlans(_make_optima(results), length, plan, makespan_plan)


def _make_optima(results: KernelResults) -> JointOptima:
    return JointOptima(
        results.sum_of_costs, results.makespan, results.stuck != 0, results.expansions
    )


def _search(
    boards: TwoAgentBoards,
    running: jax.Array,
    horizon: int,
    board: Geometry,
    backend: Kernels,
    waitless_cost: jax.Array | None,
    *,
    with_plans: bool,
) -> tuple[KernelResults, jax.Array]:
    """Return the results, and the output rows of the plans, int32 (rows, lanes, B)."""
    may_wait = waitless_cost is None
    cost = jnp.zeros_like(running, jnp.int32) if waitless_cost is None else waitless_cost
    kernel = partial(
        _search_program,
        horizon=horizon,
        board=board,
        may_wait=may_wait,
        with_plans=with_plans,
        backend=backend,
    )
    output = run_pairs(
        kernel, boards, [running, cost], horizon if with_plans else None, board, backend
    )
    rows = output.transpose(0, 2, 1)  # (rows, lanes, B)
    return KernelResults(*rows[0, : len(KernelResults._fields)]), rows[1:]


class _SearchState(NamedTuple):
    time: jax.Array  # int32 ()
    layer: tuple[jax.Array, ...]  # L_time, the cells of agent 1 for each lane
    walk: jax.Array  # uint32 (boards, lanes), flags of S_c for the last c examined
    cost: jax.Array  # int32 (boards, lanes), cost at which an agent reached its goal in this lane
    running: jax.Array  # int32 (boards, 1)
    makespan: jax.Array  # int32 (boards, 1)
    stuck: jax.Array  # int32 (boards, 1)
    expansions: jax.Array  # int32 (boards, 1)


def _search_program(
    columns: Any,
    outputs: Any,
    memory: Any,
    *,
    horizon: int,
    board: Geometry,
    may_wait: bool,
    with_plans: bool,
    backend: Kernels,
) -> None:
    """Run one program: search, then write the results and, if `with_plans`, the actions."""
    search = _JointSearch(columns, outputs, memory, horizon, board, may_wait, with_plans, backend)
    state = search.run()
    arrivals = [search.lane_min(search.select_cell(goal, state.cost, FAR)) for goal in search.goals]
    cost = jnp.minimum(*arrivals)
    if not with_plans:
        zero = 0 * cost
        no_plan = (zero,) * 4
        search.write_results(
            KernelResults(cost, state.makespan, state.stuck, state.expansions, *no_plan)
        )
        return
    has_plan = (state.makespan if may_wait else cost) < FAR
    plan_cost = jnp.where(has_plan, cost, 0)
    walker = to_int32(arrivals[0] != cost)
    walk = _walk_back_alone(search, walker, has_plan, plan_cost)
    retirement = walk.retirement_cost >> 1
    is_too_long = has_plan & (plan_cost - retirement > state.makespan)
    makespan_steps = jnp.where(is_too_long, state.makespan, 0) if may_wait else 0 * plan_cost
    results = KernelResults(
        sum_of_costs=cost,
        makespan=state.makespan,
        stuck=state.stuck,
        expansions=state.expansions,
        walker=walker,
        plan_cost=plan_cost,
        retirement=retirement,
        makespan_steps=makespan_steps,
    )
    search.write_results(results)
    _walk_back_together(search, walker, walk.cell, retirement, makespan_steps)


class _JointSearch(PairLanes):
    """Joint search of the boards of one program."""

    def __init__(
        self,
        columns: Any,
        outputs: Any,
        memory: Any,
        horizon: int,
        board: Geometry,
        may_wait: bool,
        with_plans: bool,
        backend: Kernels,
    ) -> None:
        super().__init__(columns, memory, board, backend)
        self.horizon, self.may_wait, self.with_plans = horizon, may_wait, with_plans
        self.outputs, self.rows = outputs, output_rows(horizon if with_plans else None, self.lanes)
        (self.waitless_cost,) = self.extra_columns  # cost of the requested plan without waits

    def slot(self, t: jax.Array) -> jax.Array:
        """Return the index in memory of the sets of time t."""
        return t if self.with_plans else t & (RECENT_TIMES - 1)

    def write_results(self, results: KernelResults) -> None:
        """Write field i of the results into lane i of the first row."""
        self.outputs[0] = self.pack_row(results)

    def clear_rows(self, first: int, num_rows: int) -> None:
        """Write zeros to `num_rows` rows of the output."""
        for i in range(first, first + num_rows):
            self.outputs[i] = jnp.zeros_like(self.lane)

    def write_value(
        self, first: jax.Array | int, num_rows: int, i: jax.Array, value: jax.Array
    ) -> None:
        """Write value i of the values that `num_rows` rows hold from row `first` on."""
        row = first if num_rows == 1 else first + (i >> (self.lanes.bit_length() - 1))
        mask = self.lane == (i & (self.lanes - 1))
        self.outputs[row] = jnp.where(mask, value, self.outputs[row])

    def run(self) -> _SearchState:
        """Expand layers until no board is running, as `joint_search` does."""
        no_flags, zero = jnp.zeros_like(self.goal_flags), jnp.zeros_like(self.running)
        layer = self.first_layer()
        self.write_layer(jnp.int32(0), layer)
        self.write_walk(jnp.int32(0), no_flags)
        self.synchronise()
        far = zero + FAR
        state = _SearchState(
            time=jnp.int32(0),
            layer=tuple(layer),
            walk=no_flags,
            cost=jnp.zeros_like(self.lane) + FAR,
            running=self.running,
            makespan=far,
            stuck=zero,
            expansions=zero,
        )
        initial_state = self._stop_boards(state, self._measure_progress(layer, layer))

        def is_unfinished(state: _SearchState) -> jax.Array:
            return (state.time < self.horizon) & any_lane(state.running != 0)

        return self._retire(jax.lax.while_loop(is_unfinished, self._advance, initial_state))

    def _advance(self, state: _SearchState) -> _SearchState:
        """Compute L_{t+1}, S_{2t} and S_{2t+1} from L_t, whose lanes are read together."""
        t = state.time
        layer = self.expand(self.slot(t), state.layer, self.may_wait)
        self.write_layer(self.slot(t + 1), layer)
        state = self._retire(state)
        expansions, stuck = state.expansions + state.running, jnp.zeros_like(state.running)
        progress = self._measure_progress(layer, state.layer)
        if self.may_wait:
            is_check = to_int32(t & (HALT_PERIOD - 1) == HALT_PERIOD - 1)
            stuck = jnp.where(progress == 0, state.running, 0) * is_check
        state = state._replace(
            time=t + 1,
            layer=tuple(layer),
            running=state.running - stuck,
            stuck=state.stuck | stuck,
            expansions=expansions,
        )
        return self._stop_boards(state, progress)

    def _measure_progress(self, layer: CellSet, previous_layer: Sequence[jax.Array]) -> jax.Array:
        """Return int32 (boards, 1): 2 if the layer has the joint goal, 1 if it grew, else 0."""
        if not self.may_wait:
            return jnp.zeros_like(self.running)
        has_grown = reduce_or([x ^ y for x, y in zip(layer, previous_layer, strict=True)]) != 0
        at_goals = self.select_cell(self.goals[0], to_int32(intersects(layer, self.goal_1)), 0)
        return jnp.max(jnp.maximum(to_int32(has_grown), 2 * at_goals), axis=1, keepdims=True)

    def _stop_boards(self, state: _SearchState, progress: jax.Array) -> _SearchState:
        """Stop the boards that need no further layer."""
        t = state.time
        if self.may_wait:
            is_finished = progress == 2
            makespan = jnp.minimum(state.makespan, jnp.where(is_finished, t, jnp.int32(FAR)))
            state = state._replace(makespan=makespan)
        else:
            is_finished = 2 * t + 1 >= self.waitless_cost
        return state._replace(running=jnp.where(is_finished, 0, state.running))

    def _retire(self, state: _SearchState) -> _SearchState:
        """Compute S_{2t} and S_{2t+1}, and record agents that reached their goal."""
        t = state.time
        # Cells of either agent while the other one is at its goal and may retire.
        joined_flags = to_uint32(intersects(state.layer, self.goal_1))
        joined_flags = joined_flags | (self.find_partner_cells(self.slot(t), state.layer) << 1)
        even = self._step(state.walk, self.slot(jnp.maximum(t - 1, 0)), _ODD_SHIFT)
        even = (even & self.open_flags) | joined_flags
        self.write_walk(self.slot(t), even | (joined_flags << _JOINED_SHIFT))
        self.synchronise()
        odd = self._step(even, self.slot(t), 0) & self.open_flags
        self.write_walk(self.slot(t), even | (joined_flags << _JOINED_SHIFT) | (odd << _ODD_SHIFT))
        self.synchronise()
        even_arrived, odd_arrived = (even & self.goal_flags) != 0, (odd & self.goal_flags) != 0
        if self.may_wait:
            arrival_cost = jnp.where(odd_arrived, 2 * t + 1, jnp.int32(FAR))
            arrival_cost = jnp.where(even_arrived, 2 * t, arrival_cost)
            cost = jnp.minimum(state.cost, arrival_cost)
        else:
            is_found = even_arrived & (self.waitless_cost == 2 * t)
            is_found = is_found | (odd_arrived & (self.waitless_cost == 2 * t + 1))
            cost = jnp.where(is_found & (self.running != 0), self.waitless_cost, state.cost)
        return state._replace(walk=odd, cost=cost)

    def _step(self, walk: jax.Array, t: jax.Array, part: int) -> jax.Array:
        """Return the flags one step away from `walk`, which `write_walk` has written."""
        next_walk = self.step_walk(t, part)
        return next_walk | walk if self.may_wait else next_walk


class _Walk(NamedTuple):
    """Backward walk of the last-arriving agent while the other is retired."""

    cost: jax.Array  # int32 (), cost up to this point of the plan
    cell: jax.Array  # int32 (boards, 1)
    walking: jax.Array  # int32 (boards, 1), 1 if the other agent retires earlier in the plan
    retirement_cost: jax.Array  # int32 (boards, 1), cost at which the other agent retired


def _walk_back_alone(
    search: _JointSearch, walker: jax.Array, has_plan: jax.Array, plan_cost: jax.Array
) -> _Walk:
    """Walk the last-arriving agent back from its goal until the other one has retired."""
    W, rows = search.board.words, search.rows.actions
    # WAIT comes last, so that moves are preferred.
    order = (1, 2, 3, 4, 0) if search.may_wait else (1, 2, 3, 4)
    walker_bit = walker.astype(jnp.uint32)

    def step_back(walk: _Walk) -> _Walk:
        cost, previous_cost = walk.cost, jnp.maximum(walk.cost - 1, 0)
        is_moving = walk.walking * to_int32(plan_cost >= cost)
        rank = jnp.zeros_like(search.lane) + _ILLEGAL
        for i, move in enumerate(order):
            rank = search.mark_origin(walk.cell, move, i, rank)
        is_odd = to_uint32(previous_cost & 1 == 1)
        origin_flags = search.memory[previous_cost >> 1, W] >> (is_odd * _ODD_SHIFT + walker_bit)
        rank = jnp.where((origin_flags & 1) != 0, rank, _ILLEGAL)
        # The other agent retires at this cost if the layer contains both agents' cells.
        joined_flags = search.memory[cost >> 1, W] >> (_JOINED_SHIFT + walker_bit)
        joined_flags = joined_flags & to_uint32(cost & 1 == 0)
        rank = jnp.where((search.lane == walk.cell) & (joined_flags != 0), -1, rank)
        best_rank = search.lane_min(rank)
        retires = is_moving * to_int32(best_rank < 0)
        is_moving = is_moving - retires
        action = is_moving * jnp.where(best_rank < 4, best_rank + 1, 0)
        search.write_value(search.rows.results, rows, cost, action)
        return _Walk(
            cost=cost - 1,
            cell=walk.cell - search.action_delta(action),
            walking=walk.walking - retires,
            retirement_cost=jnp.where(retires != 0, cost, walk.retirement_cost),
        )

    search.clear_rows(search.rows.results, rows)
    zero = jnp.zeros_like(walker)
    initial_walk = _Walk(
        jnp.max(plan_cost), jnp.where(walker == 0, *search.goals), to_int32(has_plan), zero
    )
    return jax.lax.while_loop(
        lambda walk: (walk.cost >= 0) & any_lane(walk.walking != 0), step_back, initial_walk
    )


def _walk_back_together(
    search: _JointSearch,
    walker: jax.Array,
    cell: jax.Array,
    retirement: jax.Array,
    makespan_steps: jax.Array,
) -> None:
    """Write the joint actions up to the retirement, and those of a separate makespan plan."""
    retired_cell = jnp.where(walker == 0, *search.goals[::-1])
    joint = jnp.where(walker == 0, cell, retired_cell), jnp.where(walker == 0, retired_cell, cell)
    first_row, rows = search.rows.results + search.rows.actions, search.rows.joint_actions
    search.clear_rows(first_row, 2 * rows)

    def trace(plan: jax.Array, _: None) -> None:
        ends = [jnp.where(plan == 0, *cells) for cells in zip(joint, search.goals, strict=True)]
        steps = jnp.where(plan == 0, retirement, makespan_steps)
        last_step = jnp.max(steps)

        def step_back(i: jax.Array, cells: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            t = last_step - i
            joint_action = jnp.where(t <= steps, _find_last_step(search, t, *cells), 0)
            search.write_value(first_row + plan * rows, rows, t - 1, joint_action)
            first_action = (joint_action * 13) >> 6  # equals joint_action // 5 below 25
            actions = first_action, joint_action - 5 * first_action
            return tuple(
                cell - search.action_delta(action)
                for cell, action in zip(cells, actions, strict=True)
            )

        jax.lax.fori_loop(0, last_step, step_back, tuple(ends))

    jax.lax.fori_loop(0, 2 if search.may_wait else 1, trace, None)


def _find_last_step(
    search: _JointSearch, t: jax.Array, cell_0: jax.Array, cell_1: jax.Array
) -> jax.Array:
    """Return the joint action that leads to these cells at t; as few agents as possible wait."""
    # Ranks in order of preference: both agents move (0 to 15), only agent 1 moves (16 to 19), only
    # agent 0 moves (20 to 23), neither moves (above).
    W = search.board.words
    swap_cells = select(search.lane == cell_1, single_cell(cell_0, W))
    layer = subtract([search.memory[t - 1, w] for w in range(W)], swap_cells)
    is_origin = [intersects(layer, single_cell(cell_1 - delta, W)) for delta in search.deltas]
    rank_1 = jnp.zeros_like(search.lane) + _ILLEGAL
    for i, is_legal in reversed(list(enumerate(is_origin[1:]))):
        rank_1 = jnp.where(is_legal, i, rank_1)
    rank_0 = jnp.zeros_like(search.lane) + _ILLEGAL
    for action in range(1, 5):
        rank_0 = search.mark_origin(cell_0, action, 4 * (action - 1), rank_0)
    if not search.may_wait:
        return _decode_rank(search.lane_min(rank_0 + rank_1), may_wait=search.may_wait)
    rank_0 = search.mark_origin(cell_0, 0, 16, rank_0)
    rank_if_1_waits = jnp.where(rank_0 < 16, 20 + (rank_0 >> 2), rank_0 + 8)
    rank = jnp.minimum(rank_0 + rank_1, jnp.where(is_origin[0], rank_if_1_waits, _ILLEGAL))
    return _decode_rank(search.lane_min(rank), may_wait=search.may_wait)


def _decode_rank(rank: jax.Array, *, may_wait: bool) -> jax.Array:
    """Return the joint action of a rank: 5 times the action of agent 0 plus that of agent 1."""
    both_move = 5 * ((rank >> 2) + 1) + (rank & 3) + 1
    if not may_wait:
        return both_move
    one_moves = jnp.where(rank < 20, rank - 15, 5 * (rank - 19))
    return jnp.where(rank < 16, both_move, jnp.where(rank < 24, one_moves, 0))
