"""Prioritised planning, and the optimality certificates that it provides.

A plan in which every agent arrives as early as it could alone is optimal. Prioritised planning
(Erdmann and Lozano-Perez 1987) finds such plans for most boards, which then need no exact search.
Shapes: B boards with R rows, K agents, T time steps.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from jaxlake.board.instance import Instance
from jaxlake.solver import space_time
from jaxlake.solver.bitboard import cell_bitboard, cell_numbers, pack_rows
from jaxlake.solver.chunks import BatchMajor, Limits, map_chunks
from jaxlake.solver.kernels import planning
from jaxlake.solver.materialize import materialize
from jaxlake.solver.space_time import ABSENT, NEVER, Blocked, PathBits, SearchBuffers

T = TypeVar("T")
AgentArrays = TypeVar("AgentArrays", "PreparedBoards", "PrioritisedPlans")


class PreparedBoards(NamedTuple):
    """Boards in the layout of the solver, boards last."""

    free: jax.Array  # words (R, B)
    starts: jax.Array  # int16 (K, B), cells, ABSENT for absent agents
    goals: jax.Array  # int16 (K, B), cells, ABSENT for absent agents
    solo_distances: jax.Array  # int16 (K, B), of agents alone; 0 if absent, NEVER without a path


class PrioritisedPlans(NamedTuple):
    """Plans of many boards, with the agents in planning order."""

    arrival: jax.Array  # int16 (K, B), final arrivals; all NEVER if any agent has no path
    paths: jax.Array  # int16 (K, T + 1, B), cells


class BestPlans(NamedTuple):
    """Best known plans."""

    sum_of_costs: jax.Array  # int16 (B,), NEVER without a plan
    makespan: jax.Array  # int16 (B,)
    paths: jax.Array  # int16 (K, T + 1, B), cells of a plan with this sum of costs
    makespan_paths: jax.Array  # int16 (K, T + 1, B), cells of a plan with this makespan


def prepare_boards(batch: Instance, limits: Limits) -> PreparedBoards:
    """Convert a batch, leaves (B, ...), to the layout of the solver, and compute distances."""
    free = pack_rows(~batch.holes)
    starts, goals = (
        jnp.where(batch.agent_mask, cell_numbers(positions), jnp.int16(ABSENT)).T
        for positions in (batch.starts, batch.goals)
    )
    backend = planning.select_backend(limits.kernels, len(free), len(starts), horizon=0)
    if backend is None:
        solo_distances = space_time.compute_solo_distances(free, starts, goals)
    else:
        solo_distances = planning.compute_solo_distances(free, starts, goals, backend)
    return PreparedBoards(free, starts, goals, solo_distances)


def plan_in_order(
    free: jax.Array,
    starts: jax.Array,
    goals: jax.Array,
    latest: jax.Array,
    buffers: SearchBuffers,
    *,
    upwards: jax.Array | bool = False,
) -> tuple[PrioritisedPlans, SearchBuffers]:
    """Plan the agents of every board in the given order, each around the previous ones.

    Args:
        free: words (R, B), cells that can be entered.
        starts: int16 (K, B), cells; ABSENT for absent agents, which arrive at time 0.
        goals: int16 (K, B), cells, likewise.
        latest: int16 (K, B), latest arrival to search for, at most T.
        buffers: Memory for T steps.
        upwards: Preference of steps, see `trace_back`.

    Returns:
        The plans, and the buffers for the next call.
    """
    K, B = starts.shape
    rows, T = free.shape[0], buffers.cells.shape[0] - 1
    State = tuple[PrioritisedPlans, tuple[jax.Array, ...], SearchBuffers, jax.Array]

    def plan_agent(rank: jax.Array, state: State) -> State:
        plans, occupied, buffers, has_failed = state
        # An edge is blocked in both directions, so one set per axis is enough.
        cells, horizontal, vertical = occupied
        blocked = Blocked(cells, horizontal, horizontal, vertical, vertical)
        opaque_true = rank <= K
        start, goal = materialize(
            (cell_bitboard(starts[rank], rows), cell_bitboard(goals[rank], rows)), opaque_true
        )
        is_absent = goals[rank] == ABSENT
        end = jnp.where(has_failed | is_absent, jnp.int16(-1), latest[rank])
        reachable = space_time.reach_goal(
            start, goal, (blocked,), may_wait=True, earliest=0, latest=end, layers=buffers.layers
        )
        traced_path, path_buffer = space_time.trace_back(
            goal, reachable, (blocked,), may_wait=True, buffer=buffers.cells, upwards=upwards
        )
        arrival = jnp.where(is_absent, jnp.int16(0), reachable.arrival)
        has_failed |= arrival == NEVER
        path = materialize(jnp.where(is_absent, jnp.int16(ABSENT), traced_path.cells), opaque_true)
        bits = materialize(
            PathBits(*(words[None] for words in space_time.path_bits(path, rows))), opaque_true
        )
        plans = PrioritisedPlans(
            plans.arrival.at[rank].set(arrival), plans.paths.at[rank].set(path)
        )
        blocks = space_time.block_paths(bits, rows, jnp.ones((1, B), bool))
        occupied = (cells | blocks.cells, horizontal | blocks.right, vertical | blocks.down)
        return plans, occupied, SearchBuffers(reachable.layers, path_buffer), has_failed

    empty_plans = PrioritisedPlans(
        arrival=jnp.zeros((K, B), jnp.int16), paths=jnp.full((K, T + 1, B), ABSENT, jnp.int16)
    )
    words = jnp.broadcast_to(free, (T + 1, *free.shape))
    holes = (~words, *(jnp.zeros_like(words),) * 2)
    plans, _, buffers, has_failed = jax.lax.fori_loop(
        0, K, plan_agent, (empty_plans, holes, buffers, jnp.zeros(B, bool))
    )
    return plans._replace(arrival=jnp.where(has_failed, jnp.int16(NEVER), plans.arrival)), buffers


def prioritise(
    boards: PreparedBoards, active: jax.Array, horizon: int, limits: Limits
) -> BestPlans:
    """Plan the active boards, which must be connected, in two agent orders; keep the best plans."""
    never = jnp.full(active.shape, NEVER, jnp.int16)
    empty_paths = jnp.zeros((boards.starts.shape[0], horizon + 1, *active.shape), jnp.int16)
    default_plan = _Plan(never, never, empty_paths)
    forward_plan, backward_plan = _plan_in_two_orders(
        boards, active, horizon, limits, default_plan, lambda _, plan: plan, _is_delay_free
    )
    is_shorter = forward_plan.makespan <= backward_plan.makespan
    is_cheaper = forward_plan.sum_of_costs <= backward_plan.sum_of_costs
    return BestPlans(
        sum_of_costs=jnp.minimum(forward_plan.sum_of_costs, backward_plan.sum_of_costs),
        makespan=jnp.minimum(forward_plan.makespan, backward_plan.makespan),
        paths=jnp.where(is_cheaper, forward_plan.paths, backward_plan.paths),
        makespan_paths=jnp.where(is_shorter, forward_plan.paths, backward_plan.paths),
    )


def delay_free_plans(
    boards: PreparedBoards, active: jax.Array, horizon: int, limits: Limits
) -> tuple[jax.Array, jax.Array]:
    """Plan the active boards, which must be connected, such that no agent is delayed.

    Returns:
        bool (B,), whether one of two agent orders gives such a plan, and plans, int8 (B, T, K).
    """
    B, K = active.shape[0], len(boards.starts)
    default = _DelayFreePlan(jnp.zeros(B, bool), BatchMajor(jnp.zeros((B, horizon * K), jnp.int8)))

    def make_result(chunk: PreparedBoards, plan: _Plan) -> _DelayFreePlan:
        rows = space_time.batch_major_actions(space_time.path_actions(plan.paths))
        return _DelayFreePlan(_is_delay_free(chunk, plan), BatchMajor(rows.reshape(len(rows), -1)))

    forward_plan, backward_plan = _plan_in_two_orders(
        boards, active, horizon, limits, default, make_result, lambda _, result: result.exists
    )
    plan = jnp.where(
        forward_plan.exists[:, None], forward_plan.plan.values, backward_plan.plan.values
    )
    return active & (forward_plan.exists | backward_plan.exists), plan.reshape(B, horizon, K)


def delay_free_pairs(
    pairs: PreparedBoards, active: jax.Array, horizon: int, limits: Limits
) -> jax.Array:
    """Return the active pairs for which prioritised planning finds delay-free plans, bool (B,)."""
    false = jnp.zeros(active.shape, bool)
    is_free_forward, is_free_backward = _plan_in_two_orders(
        pairs, active, horizon, limits, false, _is_delay_free, lambda _, result: result
    )
    return active & (is_free_forward | is_free_backward)


class _Plan(NamedTuple):
    """Plan of one agent order."""

    sum_of_costs: jax.Array  # int16 (B,), NEVER without a plan
    makespan: jax.Array  # int16 (B,)
    paths: jax.Array  # int16 (K, T + 1, B), cells


class _DelayFreePlan(NamedTuple):
    """Plan that is only used if it delays no agent."""

    exists: jax.Array  # bool (B,), the plan delays no agent
    plan: BatchMajor  # int8 (B, T * K)


def _is_delay_free(boards: PreparedBoards, plan: _Plan) -> jax.Array:
    return plan.sum_of_costs == jnp.sum(boards.solo_distances, axis=0, dtype=jnp.int16)


def _plan_in_two_orders(
    boards: PreparedBoards,
    active: jax.Array,
    horizon: int,
    limits: Limits,
    default: T,
    make_result: Callable[[PreparedBoards, _Plan], T],
    is_optimal: Callable[[PreparedBoards, T], jax.Array],
) -> tuple[T, T]:
    """Plan the active boards in two agent orders.

    Returns:
        `make_result` of the plans in each order, and the `default` results of inactive boards.
        Without kernels, boards whose first plan `is_optimal` are inactive in the second order.
    """
    # There are eight sets: two buffers, three blocked sets, and three temporaries.
    bytes_per_board = 8 * (horizon + 1) * boards.free.shape[0] * boards.free.dtype.itemsize
    width = min(active.shape[0], limits.max_items(limits.planned_boards, bytes_per_board))
    length = jnp.max(boards.solo_distances, axis=0)
    backend = planning.select_backend(limits.kernels, len(boards.free), len(boards.starts), horizon)
    if backend is not None:

        def plan_both(chunk: PreparedBoards, _: None) -> tuple[tuple[T, T], None]:
            plan = partial(planning.plan_in_order, horizon=horizon, backend=backend)
            forward = PrioritisedPlans(*plan(*_planning_arguments(chunk, horizon)))
            arguments = _planning_arguments(_reverse_agents(chunk), horizon)
            backward = PrioritisedPlans(*plan(*arguments, upwards=True))
            return (
                make_result(chunk, _add_costs(forward)),
                make_result(chunk, _add_costs(_reverse_agents(backward))),
            ), None

        return map_chunks(plan_both, boards, active, length, (default, default), width, None)[0]

    def plan_order(
        state: tuple[jax.Array, SearchBuffers], is_second: jax.Array
    ) -> tuple[tuple[jax.Array, SearchBuffers], T]:
        def plan(chunk: PreparedBoards, buffers: SearchBuffers) -> tuple[T, SearchBuffers]:
            ordered = jax.tree.map(partial(jnp.where, is_second), _reverse_agents(chunk), chunk)
            plans, buffers = plan_in_order(
                *_planning_arguments(ordered, horizon), buffers, upwards=is_second
            )
            plans = jax.tree.map(partial(jnp.where, is_second), _reverse_agents(plans), plans)
            return make_result(chunk, _add_costs(plans)), buffers

        is_unsolved, buffers = state
        results, buffers = map_chunks(
            plan, boards, is_unsolved, length, default, width, buffers, mostly_active=True
        )
        return (is_unsolved & ~is_optimal(boards, results), buffers), results

    # Loop over the two orders so that planning is compiled once.
    buffers = space_time.search_buffers(horizon, boards.free.shape[0], width, levels=1)
    _, results_by_order = jax.lax.scan(plan_order, (active, buffers), jnp.array([False, True]))
    first, second = (jax.tree.map(lambda leaf, i=i: leaf[i], results_by_order) for i in (0, 1))
    return first, second


def _planning_arguments(
    boards: PreparedBoards, horizon: int
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return the first four arguments of `plan_in_order`."""
    is_connected = jnp.all(boards.solo_distances < NEVER, axis=0)
    # Without the limit, one enclosed agent would delay its whole chunk.
    max_arrival = jnp.max(jnp.where(is_connected, boards.solo_distances, 0), axis=0) + 16
    latest = jnp.where(is_connected, jnp.minimum(max_arrival, horizon), -1).astype(jnp.int16)
    latest = jnp.broadcast_to(latest, boards.starts.shape)
    return boards.free, boards.starts, boards.goals, latest


def _reverse_agents(arrays: AgentArrays) -> AgentArrays:
    """Reverse the order of the agents, which is the first axis of all leaves except `free`."""
    if isinstance(arrays, PreparedBoards):
        free, *by_agent = arrays
        return PreparedBoards(free, *(leaf[::-1] for leaf in by_agent))
    return PrioritisedPlans(*(leaf[::-1] for leaf in arrays))


def _add_costs(plans: PrioritisedPlans) -> _Plan:
    is_complete = jnp.all(plans.arrival < NEVER, axis=0)
    arrival = jnp.where(is_complete, plans.arrival, 0)
    sum_of_costs = jnp.sum(arrival, axis=0, dtype=jnp.int16)
    return _Plan(
        sum_of_costs=jnp.where(is_complete, sum_of_costs, jnp.int16(NEVER)),
        makespan=jnp.where(is_complete, jnp.max(arrival, axis=0), jnp.int16(NEVER)),
        paths=plans.paths,
    )
