"""Search of boards with few cells, by sets of joint states.

D_c is the set of all joint states within cost c (design_notes/solver.md).
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
from jaxlake.solver.chunks import Kernels, Widths, map_chunks
from jaxlake.solver.dense.blocks import (
    PLANES,
    BlockBuffers,
    BlockSearch,
    block_buffers,
    least_costs,
    search_blocks,
)
from jaxlake.solver.dense.components import Components, DenseBoards, number_components
from jaxlake.solver.dense.step import (
    broadcast_agent,
    broadcast_words,
    decode_costs,
    last_agent,
    num_words,
    single_state,
    step,
)
from jaxlake.solver.materialize import materialize_call
from jaxlake.solver.space_time import NEVER

MAX_COST = 254
"""Largest cost that is searched: costs are stored in 8 bits, and 0 stands for none."""


class DenseAnswers(NamedTuple):
    """Results per board, boards last."""

    optimal: jax.Array  # bool (B,), the other fields are exact; both plans fit into the horizon
    unsolvable: jax.Array  # bool (B,), proved
    sum_of_costs: jax.Array  # int16 (B,)
    makespan: jax.Array  # int16 (B,), if it was requested
    needs_wait: jax.Array  # bool (B,)
    plan: jax.Array  # int8 (T, K, B)
    makespan_plan: jax.Array  # int8 (T, K, B), likewise
    layers: jax.Array  # int32 (B,), sets D_c that were computed


def bytes_per_board(agents: int, radix: int, kernels: Kernels | None = None) -> int:
    """Return the approximate memory of one board's sets; a TPU pads two axes to 8 x 128."""
    axes = [radix] * (agents - 1)
    if kernels is Kernels.TPU:
        pads = (1,) * (agents - 3) + (8, 128)
        axes = [-(-n // pad) * pad for n, pad in zip(axes, pads[-len(axes) :], strict=True)]
    sets = PLANES + agents + 5
    return 4 * sets * num_words(radix) * prod(axes)


def solve_dense(
    boards: DenseBoards, active: jax.Array, horizon: int, radix: int, widths: Widths
) -> DenseAnswers:
    """Solve the active boards whose components have at most `radix` - 2 cells and as many edges.

    Larger boards, and boards with plans longer than `horizon` steps (static), are neither optimal
    nor unsolvable.
    """
    K, _, B = boards.starts.shape
    # Sets of this size keep a core busy; more of them would leave its cache.
    boards_at_once = max(1, widths.joint_boards // 32)
    width = min(B, widths.fitting(boards_at_once, bytes_per_board(K, radix, widths.kernels)))
    by_blocks = boards_at_once == 1

    Buffers = BlockBuffers | None

    def solve_chunk(chunk: DenseBoards, buffers: Buffers) -> tuple[DenseAnswers, Buffers]:
        if by_blocks:
            board = jax.tree.map(lambda leaf: leaf[..., 0], chunk)
            answer, buffers = _solve_board(board, horizon, radix, buffers)
            return jax.tree.map(lambda leaf: leaf[..., None], answer), buffers

        def solve_one(board: DenseBoards) -> DenseAnswers:
            return _solve_board(board, horizon, radix, None)[0]

        return jax.vmap(solve_one, in_axes=-1, out_axes=-1)(chunk), None

    false, zero = jnp.zeros(B, bool), jnp.zeros(B, jnp.int16)
    plan = jnp.zeros((horizon, K, B), jnp.int8)
    blank = DenseAnswers(false, false, zero, zero, false, plan, plan, jnp.zeros(B, jnp.int32))
    length = jnp.sum(boards.free, axis=(0, 1), dtype=jnp.int32)

    def solve_all() -> DenseAnswers:
        buffers = block_buffers(K, radix) if by_blocks else None
        answers, _ = map_chunks(solve_chunk, boards, active, length, blank, width, buffers)
        # A chunk may be padded with other boards.
        return jax.tree.map(lambda leaf, default: jnp.where(active, leaf, default), answers, blank)

    # Without active boards, skip the allocation of the sets.
    return jax.lax.cond(jnp.any(active), solve_all, lambda: blank)


class _Results(NamedTuple):
    """Results of the attempts made so far."""

    makespan: jax.Array  # int32 (), 0 if it was not requested or not found
    makespan_plan: jax.Array  # int8 (T, K)
    cost: jax.Array  # int32 (), likewise
    plan: jax.Array  # int8 (T, K)
    length: jax.Array  # int32 (), steps of that plan
    waitless: jax.Array  # bool (), a plan of that cost without waits exists
    stuck: jax.Array  # bool (), proved unsolvable
    layers: jax.Array  # int32 (), sets computed
    buffers: BlockBuffers | None


_MAKESPAN, _COST, _WAITLESS = range(3)
_WHOLE_SETS = ((_MAKESPAN, NEVER), (_COST, NEVER), (_WAITLESS, NEVER))
_BY_BLOCKS = ((_MAKESPAN, 1), (_MAKESPAN, NEVER), (_COST, 2), (_COST, 6), *_WHOLE_SETS[1:])
"""Attempts in order: the objective, and how far above its lower bound to search."""


def _solve_board(
    board: DenseBoards, horizon: int, radix: int, buffers: BlockBuffers | None
) -> tuple[DenseAnswers, BlockBuffers | None]:
    """Find the makespan, the cost, and a waitless plan of it; by blocks if given `buffers`."""
    components = number_components(board, radix)
    goal_distances = _distances(board, components)
    K, N = len(goal_distances), board.free.shape[0]
    distances = jnp.sum(goal_distances[np.arange(K), components.start], dtype=jnp.int32)

    def attempt(results: _Results, task: tuple[jax.Array, ...]) -> tuple[_Results, None]:
        question, slack = task
        total, waits = question != _MAKESPAN, question != _WAITLESS
        makespan, cost, buffers = results.makespan, results.cost, results.buffers
        excess = cost - distances
        even = (cost > 0) & (excess > 0) & (excess % 2 == 0)
        for_makespan = ~board.timed & (makespan == 0) & ~results.stuck
        for_cost = (board.timed | (makespan > 0)) & (cost == 0)
        active = jnp.where(total, jnp.where(waits, for_cost, even), for_makespan)
        active &= components.fits
        last = jnp.where(total, MAX_COST, min(horizon, MAX_COST))
        last = jnp.where(active, jnp.where(waits, last, cost), 0)
        lower, upper = jnp.where(total, board.costs, board.makespans)
        within = jnp.where(waits, jnp.minimum(lower + slack, upper), cost)
        least: Callable[[jax.Array], jax.Array]
        state: _Search | BlockSearch
        if buffers is None:
            state = _search(components, N, total, waits, last)
            least = partial(_least_costs, state.planes)
        else:
            state = search_blocks(
                components, N, goal_distances, total, waits, last, within, buffers
            )
            least, buffers = partial(least_costs, state), state.buffers
        value = jnp.where(state.solved, state.cost, 0)
        plan, length = _plan(components, least, N, total, value * waits, horizon)
        # No state was excluded.
        stuck = active & ~total & (within >= NEVER) & state.stuck
        answered = active & (state.solved | (slack == NEVER))

        def update(target: int, new: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(active & state.solved & (question == target), new, old)

        return _Results(
            makespan=update(_MAKESPAN, value, makespan),
            makespan_plan=update(_MAKESPAN, plan, results.makespan_plan),
            cost=update(_COST, value, cost),
            plan=update(_COST, plan, results.plan),
            length=update(_COST, length, results.length),
            waitless=(question == _WAITLESS) & state.solved & (state.cost == cost),
            stuck=results.stuck | stuck,
            layers=results.layers + jnp.where(answered, state.cost, 0),
            buffers=buffers,
        ), None

    attempts = np.array(_WHOLE_SETS if buffers is None else _BY_BLOCKS, np.int32).T
    zero, false = jnp.int32(0), jnp.bool_(False)
    plan = jnp.zeros((horizon, K), jnp.int8)
    initial = _Results(zero, plan, zero, plan, zero, false, false, zero, buffers)
    results, _ = jax.lax.scan(attempt, initial, tuple(jnp.asarray(x) for x in attempts))
    makespan, cost = results.makespan, results.cost
    optimal = (board.timed | (makespan > 0)) & (cost > 0) & (results.length <= horizon)
    return DenseAnswers(
        optimal=optimal,
        unsolvable=results.stuck,
        sum_of_costs=cost.astype(jnp.int16),
        makespan=makespan.astype(jnp.int16),
        needs_wait=optimal & (cost > distances) & ~results.waitless,
        plan=results.plan,
        makespan_plan=results.makespan_plan,
        layers=results.layers,
    ), results.buffers


def _distances(board: DenseBoards, components: Components) -> jax.Array:
    """Return distances from all cells to the goals, int32 (K, radix); 0 if retired or absent."""
    K, N = board.starts.shape[0], board.free.shape[0]
    grid = np.indices((N, N))[..., None]
    at_goal = jnp.all(grid == board.goals.T[:, None, None], axis=0)
    steps = flood(jnp.broadcast_to(board.free[..., None], (N, N, K)), at_goal).reshape(N * N, K)
    place = components.place
    distance = steps[jnp.maximum(place, 0), np.arange(K)[:, None]].astype(jnp.int32)
    return jnp.where(place >= 0, distance, 0).at[:, 0].set(0)


class _Search(NamedTuple):
    cost: jax.Array  # int32 (), c of the last set
    half: jax.Array  # bool (), one colour of the next set is done; only without waits
    recent: jax.Array  # uint32 (K + 1, W, radix, ...), D_c at c % (K + 1)
    planes: jax.Array  # uint32 (8, W, radix, ...), bits of 1 + the least cost of each state
    solved: jax.Array  # bool ()
    stuck: jax.Array  # bool (), the sets stopped growing


def _origins(recent: jax.Array, c: jax.Array) -> jax.Array:
    """Return the states from which a step reaches cost c: c - a for a agents not retired."""
    K, radix = recent.shape[0] - 1, recent.shape[-1]
    retired = jnp.where(np.arange(recent.shape[1]) == 0, jnp.uint32(1), jnp.uint32(0))
    first = broadcast_words(retired, K - 1)  # the bit that marks the last agent as retired
    on_axes = sum(
        broadcast_agent(jnp.arange(radix) > 0, i, K).astype(jnp.int32) for i in range(K - 1)
    )
    origins = jnp.zeros(recent.shape[1:], recent.dtype)
    for active in range(1, K + 1):
        mask = jnp.where(on_axes == active, first, jnp.uint32(0))
        mask |= jnp.where(on_axes == active - 1, ~first, jnp.uint32(0))
        origins |= recent[(c - active) % (K + 1)] & mask
    return origins


def _search(
    components: Components, N: int, total: jax.Array, waits: jax.Array, max_cost: jax.Array
) -> _Search:
    """Compute set after set until one holds the goal, none grows any more, or c is `max_cost`."""
    K, radix = components.place.shape
    last = last_agent(components, N)
    sets = (num_words(radix), *(radix,) * (K - 1))

    begin = single_state(components.start, radix)
    end = jnp.where(total, jnp.zeros(K, jnp.int32), components.goal)
    # As a set, because on a TPU a look-up of one word would copy all words to another layout.
    goal = single_state(end, radix)

    def states_of_colour(colour: jax.Array) -> jax.Array:
        """Return all joint states of one colour, as needed without waits."""
        agrees = [
            broadcast_agent((components.colour[i] == colour) | (np.arange(radix) == 0), i, K)
            for i in range(K - 1)
        ]
        cells = broadcast_words(last.colours[:, colour], K - 1)
        return jnp.where(reduce(jnp.logical_and, agrees), cells, jnp.uint32(0))

    def advance(state: _Search) -> _Search:
        # With waits, colours do not matter and a single step suffices; without, it takes two.
        c, colour = state.cost + 1, state.half.astype(jnp.int32)
        complete = waits | state.half
        origins = jax.lax.cond(
            total,
            lambda recent: _origins(recent, c),
            lambda recent: recent[(c - 1) % (K + 1)],
            state.recent,
        )
        origins = jax.lax.cond(waits, lambda x: x, lambda x: x & states_of_colour(colour), origins)
        reached = step(origins, components, last, total)

        def unite(reached: jax.Array, recent: jax.Array) -> tuple[jax.Array, jax.Array]:
            before = recent[(c - 1) % (K + 1)]
            half_done = jnp.where(state.half, recent[c % (K + 1)], jnp.uint32(0))
            so_far = jnp.where(waits, before, half_done)
            states = so_far | (
                reached & jnp.where(waits, ~jnp.uint32(0), states_of_colour(1 - colour))
            )
            return states, states & ~before

        # Both at once, so that `recent` is not read after it is changed.
        states, new = materialize_call(unite, components.fits, reached, state.recent)

        def note(rest_and_planes: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            rest, planes = rest_and_planes
            lowest = rest & -rest
            plane = jax.lax.population_count(lowest - 1)
            return rest ^ lowest, planes.at[plane].set(planes[plane] | new)

        # One plane for each bit of c + 1.
        cost_bits = jnp.where(waits, c + 1, 0)
        _, planes = jax.lax.while_loop(lambda state: state[0] > 0, note, (cost_bits, state.planes))
        return _Search(
            cost=jnp.where(complete, c, state.cost),
            half=~complete,
            recent=state.recent.at[c % (K + 1)].set(states),
            planes=planes,
            solved=complete & jnp.any(states & goal != 0),
            stuck=~total & waits & ~jnp.any(new != 0),
        )

    planes = jnp.zeros((PLANES, *sets), jnp.uint32).at[0].set(begin)
    recent = jnp.zeros((K + 1, *sets), jnp.uint32).at[0].set(begin)
    false = jnp.bool_(False)
    start = _Search(jnp.int32(0), false, recent, planes, false, false)
    return jax.lax.while_loop(
        lambda state: (state.cost < max_cost) & ~state.solved & ~state.stuck, advance, start
    )


def _least_costs(planes: jax.Array, states: jax.Array) -> jax.Array:
    """Return the least costs of joint states, int32 (K, S) numbers of cells; -1 if not reached."""
    word, bit = states[-1] // 32, (states[-1] % 32).astype(jnp.uint32)
    return decode_costs((planes[:, word, *states[:-1]] >> bit) & 1)


def _plan(
    components: Components,
    least_costs: Callable[[jax.Array], jax.Array],
    N: int,
    total: jax.Array,
    cost: jax.Array,
    horizon: int,
) -> tuple[jax.Array, jax.Array]:
    """Return a plan, int8 (T, K), traced back from the goal at cost > 0, and its length.

    Plans longer than T = `horizon` are cut off.
    """
    # Among the predecessors of a joint state, choose one in which as few agents as possible wait.
    K, radix = components.place.shape
    unused = np.int32(radix - 1)
    k = np.arange(K)
    # The cells that an agent can come from: four neighbours, its own, and 0 if it had retired.
    numbers = np.arange(radix, dtype=np.int32)
    at = jnp.broadcast_to(numbers, (K, radix)).at[:, 0].set(components.goal)
    edges = components.edges_at[:, :4]
    neighbours = jnp.take_along_axis(components.ends[:, :1], edges, axis=2)
    neighbours += jnp.take_along_axis(components.ends[:, 1:], edges, axis=2) - at[:, None]
    neighbours = jnp.where(edges == unused, unused, neighbours)
    retired = jnp.broadcast_to(np.where(numbers == 0, np.int32(0), unused), (K, 1, radix))
    origins = jnp.concatenate([neighbours, at[:, None], retired], axis=1)
    choices = np.indices((6,) * K).reshape(K, -1)
    choices = choices[:, np.argsort(np.sum(choices == 4, axis=0), kind="stable")]

    State = tuple[jax.Array, jax.Array, jax.Array, jax.Array]

    def step_back(state: State) -> State:
        cost, steps, position, actions = state
        before = origins[k[:, None], choices, position[:, None]]
        legal = jnp.all(before != unused, axis=0)
        now = components.place[k, position]
        then = components.place[k[:, None], before]
        for i in range(K):
            for j in range(i):
                # Absent agents have place -1.
                legal &= (then[i] != now[j]) | (then[j] != now[i]) | (now[i] < 0)
        least = least_costs(before)
        step_cost = jnp.where(total, jnp.sum(before > 0, axis=0, dtype=jnp.int32), 1)
        choice = jnp.argmax(legal & (least == cost - step_cost))
        change = now - then[:, choice]
        deltas = ACTION_DELTAS @ np.array([N, 1])
        action = jnp.argmax(change[:, None] == deltas, axis=1).astype(jnp.int8)
        return (
            cost - step_cost[choice],
            steps + 1,
            before[:, choice],
            actions.at[steps].set(action, mode="drop"),
        )

    end = jnp.where(total, jnp.zeros(K, jnp.int32), components.goal)
    initial = (cost, jnp.int32(0), end, jnp.zeros((horizon, K), jnp.int8))
    _, length, _, actions = jax.lax.while_loop(lambda state: state[0] > 0, step_back, initial)
    back = length - 1 - np.arange(horizon)
    plan = jnp.where((back >= 0)[:, None], actions[jnp.maximum(back, 0)], jnp.int8(0))
    return plan, length
