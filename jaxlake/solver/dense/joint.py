"""Dense joint search for boards with few cells.

The search computes D_c, the set of all joint states that can be reached at cost c or less, for
c = 0, 1, 2, ... until a set holds the goal (design_notes/solver.md). Shapes: B boards, K agents, T
time steps; `step` defines A and W.
"""

from collections.abc import Callable
from functools import partial, reduce
from math import prod
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.distance_fields import flood
from jaxlake.board.dynamics import ACTION_DELTAS
from jaxlake.solver.chunks import Kernels, Limits, map_chunks
from jaxlake.solver.dense.blocks import (
    COST_BITS,
    BlockBuffers,
    BlockSearch,
    allocate_buffers,
    least_costs,
    search_blocks,
)
from jaxlake.solver.dense.components import Components, DenseBoards, number_components
from jaxlake.solver.dense.step import (
    broadcast_agent,
    broadcast_words,
    decode_costs,
    make_last_agent,
    num_words,
    single_state,
    take_step,
)
from jaxlake.solver.materialize import materialize_call
from jaxlake.solver.space_time import NEVER

MAX_COST = 254
"""Largest cost to search for. The 8 bits of a stored cost hold 1 + cost, or 0 without a cost."""


class DenseResults(NamedTuple):
    """Results per board, boards last."""

    optimal: jax.Array  # bool (B,), the other fields are exact and both plans fit into the horizon
    unsolvable: jax.Array  # bool (B,), proved
    sum_of_costs: jax.Array  # int16 (B,)
    makespan: jax.Array  # int16 (B,), unless `DenseBoards.has_makespan`
    needs_wait: jax.Array  # bool (B,)
    plan: jax.Array  # int8 (T, K, B)
    makespan_plan: jax.Array  # int8 (T, K, B), likewise
    num_sets: jax.Array  # int32 (B,), number of sets D_c that were computed


def bytes_per_board(num_agents: int, axis_size: int, kernels: Kernels | None = None) -> int:
    """Return the approximate memory of one board's sets. A TPU pads the last axes to (8, 128)."""
    axes = [axis_size] * (num_agents - 1)
    if kernels is Kernels.TPU:
        pads = (1,) * (num_agents - 3) + (8, 128)
        axes = [-(-n // pad) * pad for n, pad in zip(axes, pads[-len(axes) :], strict=True)]
    num_sets = COST_BITS + num_agents + 5
    return 4 * num_sets * num_words(axis_size) * prod(axes)


def solve_dense(
    boards: DenseBoards, active: jax.Array, horizon: int, axis_size: int, limits: Limits
) -> DenseResults:
    """Solve the active boards whose components fit into the axes.

    Args:
        boards: Boards with K agents each.
        active: bool (B,), boards to solve.
        horizon: Longest plan in steps (static).
        axis_size: Size of the numbered axes (static). Components may have `axis_size` - 2 cells
            and as many edges.
        limits: Number of boards to process at once.

    Returns:
        The results. Boards that are inactive or too large, and boards whose plans are longer than
        the horizon, are neither optimal nor unsolvable.
    """
    K, _, B = boards.starts.shape
    # The sets of 32 boards would not fit into the cache of a CPU core.
    boards_at_once = max(1, limits.joint_boards // 32)
    width = min(B, limits.max_items(boards_at_once, bytes_per_board(K, axis_size, limits.kernels)))
    use_blocks = boards_at_once == 1

    Buffers = BlockBuffers | None

    def solve_chunk(chunk: DenseBoards, buffers: Buffers) -> tuple[DenseResults, Buffers]:
        if use_blocks:
            board = jax.tree.map(lambda leaf: leaf[..., 0], chunk)
            results, buffers = _solve_board(board, horizon, axis_size, buffers)
            return jax.tree.map(lambda leaf: leaf[..., None], results), buffers

        def solve_board(board: DenseBoards) -> DenseResults:
            return _solve_board(board, horizon, axis_size, None)[0]

        return jax.vmap(solve_board, in_axes=-1, out_axes=-1)(chunk), None

    false, zero = jnp.zeros(B, bool), jnp.zeros(B, jnp.int16)
    plan = jnp.zeros((horizon, K, B), jnp.int8)
    defaults = DenseResults(false, false, zero, zero, false, plan, plan, jnp.zeros(B, jnp.int32))
    length = jnp.sum(boards.free, axis=(0, 1), dtype=jnp.int32)

    def solve_all() -> DenseResults:
        buffers = allocate_buffers(K, axis_size) if use_blocks else None
        results, _ = map_chunks(solve_chunk, boards, active, length, defaults, width, buffers)
        # A chunk may be padded with other boards.
        return jax.tree.map(
            lambda leaf, default: jnp.where(active, leaf, default), results, defaults
        )

    # Without active boards, skip the allocation of the sets.
    return jax.lax.cond(jnp.any(active), solve_all, lambda: defaults)


class _Progress(NamedTuple):
    """Results of the attempts made so far."""

    makespan: jax.Array  # int32 (), 0 if it was not requested or not found
    makespan_plan: jax.Array  # int8 (T, K)
    cost: jax.Array  # int32 (), likewise
    plan: jax.Array  # int8 (T, K)
    length: jax.Array  # int32 (), steps of that plan
    waitless: jax.Array  # bool (), a plan of that cost without waits exists
    unsolvable: jax.Array  # bool (), proved
    num_sets: jax.Array  # int32 (), sets computed
    buffers: BlockBuffers | None


_MAKESPAN, _COST, _WAITLESS = range(3)
_ATTEMPTS = ((_MAKESPAN, NEVER), (_COST, NEVER), (_WAITLESS, NEVER))
_BLOCK_ATTEMPTS = ((_MAKESPAN, 1), (_MAKESPAN, NEVER), (_COST, 2), (_COST, 6), *_ATTEMPTS[1:])
"""Searches in order: the objective, and how far above its lower bound to search."""


def _solve_board(
    board: DenseBoards, horizon: int, axis_size: int, buffers: BlockBuffers | None
) -> tuple[DenseResults, BlockBuffers | None]:
    """Find the least makespan, the least cost, and whether that cost needs a wait.

    With `buffers`, search block by block.
    """
    components = number_components(board, axis_size)
    goal_distances = _goal_distances(board, components)
    K, N = len(goal_distances), board.free.shape[0]
    distances = jnp.sum(goal_distances[np.arange(K), components.start], dtype=jnp.int32)

    def search(results: _Progress, attempt: tuple[jax.Array, ...]) -> tuple[_Progress, None]:
        objective, slack = attempt
        sum_objective, may_wait = objective != _MAKESPAN, objective != _WAITLESS
        makespan, cost, buffers = results.makespan, results.cost, results.buffers
        excess = cost - distances
        # An odd excess requires a wait, because the cells are coloured like a chessboard.
        is_undecided = (cost > 0) & (excess > 0) & (excess % 2 == 0)
        needs_makespan = ~board.has_makespan & (makespan == 0) & ~results.unsolvable
        needs_cost = (board.has_makespan | (makespan > 0)) & (cost == 0)
        active = jnp.where(
            sum_objective, jnp.where(may_wait, needs_cost, is_undecided), needs_makespan
        )
        active &= components.all_numbered
        max_cost = jnp.where(sum_objective, MAX_COST, min(horizon, MAX_COST))
        max_cost = jnp.where(active, jnp.where(may_wait, max_cost, cost), 0)
        lower_bound, upper_bound = jnp.where(
            sum_objective, board.cost_bounds, board.makespan_bounds
        )
        bound = jnp.where(may_wait, jnp.minimum(lower_bound + slack, upper_bound), cost)
        look_up: Callable[[jax.Array], jax.Array]
        state: _SetSearch | BlockSearch
        if buffers is None:
            state = _search_sets(components, N, sum_objective, may_wait, max_cost)
            look_up = partial(_least_costs, state.cost_bits)
        else:
            state = search_blocks(
                components, N, goal_distances, sum_objective, may_wait, max_cost, bound, buffers
            )
            look_up, buffers = partial(least_costs, state), state.buffers
        value = jnp.where(state.solved, state.cost, 0)
        plan, length = _trace_plan(components, look_up, N, sum_objective, value * may_wait, horizon)
        # Without a bound, the search has examined every reachable state.
        is_unsolvable = active & ~sum_objective & (bound >= NEVER) & state.stuck
        is_final = active & (state.solved | (slack == NEVER))

        def update(target: int, new_value: jax.Array, old_value: jax.Array) -> jax.Array:
            return jnp.where(active & state.solved & (objective == target), new_value, old_value)

        return _Progress(
            makespan=update(_MAKESPAN, value, makespan),
            makespan_plan=update(_MAKESPAN, plan, results.makespan_plan),
            cost=update(_COST, value, cost),
            plan=update(_COST, plan, results.plan),
            length=update(_COST, length, results.length),
            waitless=(objective == _WAITLESS) & state.solved & (state.cost == cost),
            unsolvable=results.unsolvable | is_unsolvable,
            num_sets=results.num_sets + jnp.where(is_final, state.cost, 0),
            buffers=buffers,
        ), None

    attempts = np.array(_ATTEMPTS if buffers is None else _BLOCK_ATTEMPTS, np.int32).T
    zero, false = jnp.int32(0), jnp.bool_(False)
    plan = jnp.zeros((horizon, K), jnp.int8)
    initial_state = _Progress(zero, plan, zero, plan, zero, false, false, zero, buffers)
    results, _ = jax.lax.scan(search, initial_state, tuple(jnp.asarray(x) for x in attempts))
    makespan, cost = results.makespan, results.cost
    is_optimal = (board.has_makespan | (makespan > 0)) & (cost > 0) & (results.length <= horizon)
    return DenseResults(
        optimal=is_optimal,
        unsolvable=results.unsolvable,
        sum_of_costs=cost.astype(jnp.int16),
        makespan=makespan.astype(jnp.int16),
        needs_wait=is_optimal & (cost > distances) & ~results.waitless,
        plan=results.plan,
        makespan_plan=results.makespan_plan,
        num_sets=results.num_sets,
    ), results.buffers


def _goal_distances(board: DenseBoards, components: Components) -> jax.Array:
    """Return distances from all cells to the goals, int32 (K, A); 0 if retired or absent."""
    K, N = board.starts.shape[0], board.free.shape[0]
    grid = np.indices((N, N))[..., None]
    at_goal = jnp.all(grid == board.goals.T[:, None, None], axis=0)
    steps = flood(jnp.broadcast_to(board.free[..., None], (N, N, K)), at_goal).reshape(N * N, K)
    positions = components.positions
    distance = steps[jnp.maximum(positions, 0), np.arange(K)[:, None]].astype(jnp.int32)
    return jnp.where(positions >= 0, distance, 0).at[:, 0].set(0)


class _SetSearch(NamedTuple):
    cost: jax.Array  # int32 (), c of the last set
    half_done: jax.Array  # bool (), one colour of the next set is done; only without waits
    recent: jax.Array  # uint32 (K + 1, W, A, ...), [c % (K + 1)]: D_c
    cost_bits: jax.Array  # uint32 (8, W, A, ...), bits of 1 + the least cost of each state
    solved: jax.Array  # bool ()
    stuck: jax.Array  # bool (), the sets stopped growing


def _find_origins(recent: jax.Array, cost: jax.Array) -> jax.Array:
    """Return the states from which a step reaches `cost`.

    A step costs as much as the number of agents that have not retired.
    """
    K, axis_size = recent.shape[0] - 1, recent.shape[-1]
    retired_bit = jnp.where(np.arange(recent.shape[1]) == 0, jnp.uint32(1), jnp.uint32(0))
    last_retired = broadcast_words(retired_bit, K - 1)  # the bit of the retired last agent
    num_active = sum(  # of the agents with axes
        broadcast_agent(jnp.arange(axis_size) > 0, i, K).astype(jnp.int32) for i in range(K - 1)
    )
    origins = jnp.zeros(recent.shape[1:], recent.dtype)
    for a in range(1, K + 1):
        mask = jnp.where(num_active == a, last_retired, jnp.uint32(0))
        mask |= jnp.where(num_active == a - 1, ~last_retired, jnp.uint32(0))
        origins |= recent[(cost - a) % (K + 1)] & mask
    return origins


def _search_sets(
    components: Components,
    N: int,
    sum_objective: jax.Array,
    may_wait: jax.Array,
    max_cost: jax.Array,
) -> _SetSearch:
    """Compute D_c until it holds the goal, it stops growing, or c reaches `max_cost`."""
    K, axis_size = components.positions.shape
    last_agent = make_last_agent(components, N)
    shape = (num_words(axis_size), *(axis_size,) * (K - 1))

    start_states = single_state(components.start, axis_size)
    goal_numbers = jnp.where(sum_objective, jnp.zeros(K, jnp.int32), components.goal)
    # As a set, because on a TPU a look-up of one word would copy all words to another layout.
    goal_states = single_state(goal_numbers, axis_size)

    def states_of_colour(colour: jax.Array) -> jax.Array:
        """Return the joint states in which all agents are on cells of one colour, or retired."""
        has_colour = [
            broadcast_agent((components.colours[i] == colour) | (np.arange(axis_size) == 0), i, K)
            for i in range(K - 1)
        ]
        cells = broadcast_words(last_agent.colours[:, colour], K - 1)
        return jnp.where(reduce(jnp.logical_and, has_colour), cells, jnp.uint32(0))

    def advance(state: _SetSearch) -> _SetSearch:
        # Without waits, all agents change colour in every step. A set then takes two steps, one
        # from the states of each colour.
        cost, colour = state.cost + 1, state.half_done.astype(jnp.int32)
        is_complete = may_wait | state.half_done
        origins = jax.lax.cond(
            sum_objective,
            lambda recent: _find_origins(recent, cost),
            lambda recent: recent[(cost - 1) % (K + 1)],
            state.recent,
        )
        origins = jax.lax.cond(
            may_wait, lambda x: x, lambda x: x & states_of_colour(colour), origins
        )
        targets = take_step(origins, components, last_agent, sum_objective)

        def add_states(targets: jax.Array, recent: jax.Array) -> tuple[jax.Array, jax.Array]:
            previous_states = recent[(cost - 1) % (K + 1)]
            half_states = jnp.where(state.half_done, recent[cost % (K + 1)], jnp.uint32(0))
            states = jnp.where(may_wait, previous_states, half_states) | (
                targets & jnp.where(may_wait, ~jnp.uint32(0), states_of_colour(1 - colour))
            )
            return states, states & ~previous_states

        # Compute both results at once, so that `recent` is not read after it is changed.
        states, new_states = materialize_call(
            add_states, components.all_numbered, targets, state.recent
        )

        def add_cost_bit(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            """Set the lowest remaining bit of 1 + cost for the new states."""
            remaining_bits, cost_bits = carry
            lowest_bit = remaining_bits & -remaining_bits
            i = jax.lax.population_count(lowest_bit - 1)
            return remaining_bits ^ lowest_bit, cost_bits.at[i].set(cost_bits[i] | new_states)

        stored_cost = jnp.where(may_wait, cost + 1, 0)
        _, cost_bits = jax.lax.while_loop(
            lambda carry: carry[0] > 0, add_cost_bit, (stored_cost, state.cost_bits)
        )
        return _SetSearch(
            cost=jnp.where(is_complete, cost, state.cost),
            half_done=~is_complete,
            recent=state.recent.at[cost % (K + 1)].set(states),
            cost_bits=cost_bits,
            solved=is_complete & jnp.any(states & goal_states != 0),
            stuck=~sum_objective & may_wait & ~jnp.any(new_states != 0),
        )

    cost_bits = jnp.zeros((COST_BITS, *shape), jnp.uint32).at[0].set(start_states)
    recent = jnp.zeros((K + 1, *shape), jnp.uint32).at[0].set(start_states)
    false = jnp.bool_(False)
    initial_state = _SetSearch(jnp.int32(0), false, recent, cost_bits, false, false)
    return jax.lax.while_loop(
        lambda state: (state.cost < max_cost) & ~state.solved & ~state.stuck, advance, initial_state
    )


def _least_costs(cost_bits: jax.Array, states: jax.Array) -> jax.Array:
    """Return the least costs of joint states, as `blocks.least_costs`."""
    word, bit = states[-1] // 32, (states[-1] % 32).astype(jnp.uint32)
    return decode_costs((cost_bits[:, word, *states[:-1]] >> bit) & 1)


def _trace_plan(
    components: Components,
    look_up: Callable[[jax.Array], jax.Array],
    N: int,
    sum_objective: jax.Array,
    cost: jax.Array,
    horizon: int,
) -> tuple[jax.Array, jax.Array]:
    """Trace a plan back from the goal, given its cost and a look-up of the least costs of states.

    Returns:
        The plan, int8 (T, K), cut off after T = `horizon` steps, and its length, int32 (). Both
        are 0 if the cost is 0.
    """
    K, axis_size = components.positions.shape
    unused_number = np.int32(axis_size - 1)
    k = np.arange(K)
    # The cells that an agent can come from: four neighbours, its own, and 0 if it had retired.
    numbers = np.arange(axis_size, dtype=np.int32)
    cells = jnp.broadcast_to(numbers, (K, axis_size)).at[:, 0].set(components.goal)
    edges = components.cell_edges[:, :4]
    neighbours = jnp.take_along_axis(components.edge_ends[:, :1], edges, axis=2)
    neighbours += jnp.take_along_axis(components.edge_ends[:, 1:], edges, axis=2) - cells[:, None]
    neighbours = jnp.where(edges == unused_number, unused_number, neighbours)
    retired_origin = jnp.broadcast_to(
        np.where(numbers == 0, np.int32(0), unused_number), (K, 1, axis_size)
    )
    origins = jnp.concatenate([neighbours, cells[:, None], retired_origin], axis=1)
    choices = np.indices((6,) * K).reshape(K, -1)
    # Prefer the predecessors from which the fewest agents wait.
    choices = choices[:, np.argsort(np.sum(choices == 4, axis=0), kind="stable")]

    State = tuple[jax.Array, jax.Array, jax.Array, jax.Array]

    def step_back(state: State) -> State:
        cost, steps, numbers, actions = state
        sources = origins[k[:, None], choices, numbers[:, None]]
        is_legal = jnp.all(sources != unused_number, axis=0)
        ends = components.positions[k, numbers]
        starts = components.positions[k[:, None], sources]
        for i in range(K):
            for j in range(i):
                # Two agents must not swap cells. Absent agents have position -1.
                is_legal &= (starts[i] != ends[j]) | (starts[j] != ends[i]) | (ends[i] < 0)
        costs = look_up(sources)
        step_cost = jnp.where(sum_objective, jnp.sum(sources > 0, axis=0, dtype=jnp.int32), 1)
        choice = jnp.argmax(is_legal & (costs == cost - step_cost))
        change = ends - starts[:, choice]
        deltas = ACTION_DELTAS @ np.array([N, 1])
        action = jnp.argmax(change[:, None] == deltas, axis=1).astype(jnp.int8)
        return (
            cost - step_cost[choice],
            steps + 1,
            sources[:, choice],
            actions.at[steps].set(action, mode="drop"),
        )

    goal = jnp.where(sum_objective, jnp.zeros(K, jnp.int32), components.goal)
    initial_state = (cost, jnp.int32(0), goal, jnp.zeros((horizon, K), jnp.int8))
    _, length, _, actions = jax.lax.while_loop(lambda state: state[0] > 0, step_back, initial_state)
    step_index = length - 1 - np.arange(horizon)  # the actions are in reverse
    plan = jnp.where((step_index >= 0)[:, None], actions[jnp.maximum(step_index, 0)], jnp.int8(0))
    return plan, length
