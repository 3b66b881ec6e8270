"""Exact joint search for two agents: optimal sum of costs, optimal makespan, needs_wait.

Let L_t be the set of joint cells (p0, p1) that two agents can occupy after exactly t steps. Waiting
is always legal, so L_t only grows, and once it stops growing without the joint goal the board is
unsolvable. In any plan some agent is the first to arrive at its goal for good, at a time t; from
then on the other walks alone around a static obstacle. Hence

    makespan     = min { t : (g0, g1) in L_t }
    sum of costs = min over t of 2t + min( min { d1(p1) : (g0, p1) in L_t },
                                           min { d0(p0) : (p0, g1) in L_t } )

where d1 is agent 1's distance to g1 with g0 blocked and d0 agent 0's to g0 with g1 blocked.

L_t is dense: for every cell of agent 0 the set of agent 1's cells as a bit mask, dilated by
shift-and-or. A guard column ends every row so that no shift wraps. Boards lie last in memory, so
one vector instruction serves several of them.
"""

from collections.abc import Callable
from functools import cache, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.distances import UNREACHABLE, flood
from jaxlake.dynamics import ACTION_DELTAS
from jaxlake.instance import Instance
from jaxlake.solver.solution import DEFAULT_HORIZON, Solution, Status

_FAR = 1 << 14


def solve(instance: Instance, *, horizon: int = DEFAULT_HORIZON) -> Solution:
    """Solve one two-agent instance exactly; `jax.vmap` solves a batch at full speed.

    An instance needs a wait if no plan of optimal sum of costs exists in which neither agent waits
    before its last arrival at its goal.

    Args:
        instance: holes bool (N, N), K >= 2 slots of which exactly 0 and 1 hold agents.
        horizon: longest plan to look for, in steps (static, 1 to 4096).

    Returns:
        A `Solution`. UNSOLVABLE is proved. UNKNOWN means that the shortest plans are longer than
        `horizon`, or that the agents are not exactly those of slots 0 and 1.

    Raises:
        ValueError: `horizon` or the number of agent slots is out of range.
    """
    if not 1 <= horizon <= 4096:
        raise ValueError(f"horizon: got {horizon}, 1 to 4096 are allowed")
    if np.shape(instance.agent_mask)[-1] < 2:
        raise ValueError(
            f"agent_mask: got shape {np.shape(instance.agent_mask)}, 2 slots are needed"
        )
    batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], instance)
    return jax.tree.map(lambda leaf: leaf[0], _batch_solver(horizon)(batch))


class _Geometry(NamedTuple):
    """Cells of an N x N board as bits: cell (r, c) is bit r * pitch + c."""

    size: int
    pitch: int
    cells: int
    words: int


def _geometry(size: int) -> _Geometry:
    pitch = size + 1
    cells = size * pitch
    return _Geometry(size, pitch, cells, -(-cells // 32))


class _Retirement(NamedTuple):
    """The first agent to stay at its goal, and where that leaves the other."""

    cost: jax.Array  # int32 (B,), sum of costs, _FAR if neither agent can retire
    time: jax.Array  # int32 (B,), when it retires
    agent: jax.Array  # int32 (B,), who retires, 0 or 1
    meets: jax.Array  # int32 (B,), cell of the other agent at that time


class _Search(NamedTuple):
    time: jax.Array  # int32 ()
    layer: jax.Array  # uint32 (W, M, B), L_time
    layers: jax.Array  # uint32 (horizon + 1, W, M, B), L_0 .. L_{time-1}
    running: jax.Array  # bool (B,)
    stuck: jax.Array  # bool (B,), proved unsolvable
    makespan: jax.Array  # int32 (B,), _FAR until known
    best: _Retirement


class _Waitless(NamedTuple):
    time: jax.Array  # int32 ()
    layer: jax.Array  # uint32 (W, M, B)
    layers: jax.Array  # uint32 (horizon + 1, W, M, B)
    found: jax.Array  # bool (B,), looked for a plan of optimal sum of costs, and there is one
    best: _Retirement  # where found


@cache
def _batch_solver(horizon: int) -> Callable[[Instance], Solution]:
    """The solver of a whole batch, with a vmap rule that merges further batch axes into one.

    Under plain vmap a while loop selects between old and new state for every lane in every
    iteration, history included. All lanes share one clock here and extra layers of a finished lane
    change nothing, so nothing has to be selected.
    """

    @jax.custom_batching.custom_vmap
    def solver(batch: Instance) -> Solution:
        return _solve_batch(batch, horizon)

    @solver.def_vmap
    def merge_axes(
        axis_size: int, in_batched: list[Instance], batch: Instance
    ) -> tuple[Solution, Solution]:
        wide = jax.tree.map(
            lambda leaf, batched: (
                leaf if batched else jnp.broadcast_to(leaf, (axis_size, *leaf.shape))
            ),
            batch,
            in_batched[0],
        )
        merged = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), wide)
        solutions = solver(merged)
        split = jax.tree.map(lambda leaf: leaf.reshape(axis_size, -1, *leaf.shape[1:]), solutions)
        return split, jax.tree.map(lambda _: True, split)

    return solver


class _Lanes(NamedTuple):
    """Boards in the form that the search works on, boards last."""

    free: jax.Array  # bool (M, B), False everywhere unless the agents are those of slots 0 and 1
    starts: jax.Array  # int32 (2, B), cells of agents 0 and 1
    goals: jax.Array  # int32 (2, B)
    alone: jax.Array  # int32 (2, B), distance of each start to its goal, the other agent left out
    detour: jax.Array  # int16 (M, 2, B), distance to each goal around the other agent's goal


class _Answer(NamedTuple):
    status: jax.Array  # int8 (B,)
    sum_of_costs: jax.Array  # int32 (B,)
    makespan: jax.Array  # int32 (B,)
    needs_wait: jax.Array  # bool (B,)
    plan: jax.Array  # int8 (horizon, 2, B)


def _solve_batch(batch: Instance, horizon: int) -> Solution:
    geometry = _geometry(batch.holes.shape[-1])
    B, K = batch.agent_mask.shape
    lanes = _prepare(batch, geometry)

    # A loop runs until its slowest lane, so boards of like length share a loop.
    width = max(1, min(B, _lanes_at_once()))
    chunks = -(-B // width)
    order = jnp.argsort(jnp.where(_connected(lanes), jnp.max(lanes.alone, axis=0), -1))
    order = jnp.pad(order, (0, chunks * width - B), mode="edge")
    chunked = jax.tree.map(
        lambda leaf: jnp.moveaxis(leaf[..., order].reshape(*leaf.shape[:-1], chunks, width), -2, 0),
        lanes,
    )
    # Two histories, made once: the loops write every layer that they later read.
    scratch = jnp.zeros((2, horizon + 1, geometry.words, geometry.cells, width), jnp.uint32)
    _, answers = jax.lax.scan(
        lambda layers, chunk: _solve_lanes(chunk, layers, geometry),
        (scratch[0], scratch[1]),
        chunked,
    )
    place = jnp.argsort(order[:B])
    answer = jax.tree.map(
        lambda leaf: jnp.moveaxis(leaf, 0, -2).reshape(*leaf.shape[1:-1], -1)[..., place], answers
    )

    optimal = answer.status == Status.OPTIMAL
    none = jnp.int16(-1)
    plan = jnp.pad(answer.plan.transpose(2, 0, 1), [(0, 0), (0, 0), (0, K - 2)])
    return Solution(
        status=answer.status,
        sum_of_costs=jnp.where(optimal, answer.sum_of_costs.astype(jnp.int16), none),
        makespan=jnp.where(optimal, answer.makespan.astype(jnp.int16), none),
        needs_wait=answer.needs_wait,
        plan=jnp.where(optimal[:, None, None], plan, jnp.int8(-1)),
        makespan_plan=jnp.where(optimal[:, None, None], plan, jnp.int8(-1)),
        expansions=jnp.zeros(B, jnp.int32),
    )


def _lanes_at_once() -> int:
    """Boards in one loop: few enough for a CPU's cache, many enough to fill an accelerator."""
    return 64 if jax.default_backend() == "cpu" else 2048


def _prepare(batch: Instance, geometry: _Geometry) -> _Lanes:
    K = batch.agent_mask.shape[-1]
    two_agents = jnp.all(batch.agent_mask == (jnp.arange(K) < 2), axis=-1)
    free = _flat(~batch.holes, geometry) & two_agents
    starts = _cell(batch.starts, geometry)
    goals = _cell(batch.goals, geometry)
    at_goal = _one_hot(goals, geometry)

    # Four floods at once: each agent alone, and each agent around the other's goal.
    anywhere = jnp.broadcast_to(free[:, None], at_goal.shape)
    around = anywhere & ~at_goal[:, ::-1]
    board = (geometry.size, geometry.pitch, 4, -1)
    fields = flood(
        jnp.concatenate([anywhere, around], axis=1).reshape(board),
        jnp.concatenate([at_goal, at_goal], axis=1).reshape(board),
    ).reshape(geometry.cells, 4, -1)
    alone = jnp.take_along_axis(fields[:, :2], starts[None], axis=0)[0].astype(jnp.int32)
    return _Lanes(free, starts, goals, alone, detour=fields[:, 2:])


def _connected(lanes: _Lanes) -> jax.Array:
    return jnp.all(lanes.alone < UNREACHABLE, axis=0)


def _solve_lanes(
    lanes: _Lanes, scratch: tuple[jax.Array, jax.Array], geometry: _Geometry
) -> tuple[tuple[jax.Array, jax.Array], _Answer]:
    horizon = scratch[0].shape[0] - 1
    bit = _bit_of_cell(geometry)
    free_words = jnp.where(lanes.free, ~jnp.uint32(0), jnp.uint32(0))
    allowed = _pack(lanes.free, geometry)[:, None] & free_words & ~bit[..., None]
    at_start = _one_hot(lanes.starts, geometry)[:, 0]
    first_layer = jnp.where(at_start, bit[:, lanes.starts[1]][:, None], jnp.uint32(0)) & allowed

    search = _joint_search(first_layer, allowed, lanes, scratch[0], geometry)
    length = search.best.cost - search.best.time
    optimal = (search.makespan < _FAR) & (length <= horizon)
    excess = search.best.cost - jnp.sum(lanes.alone, axis=0)
    # Without an excess nobody waits; on a bipartite grid an odd excess can only come from waiting.
    undecided = optimal & (excess > 0) & (excess % 2 == 0)
    waitless = _search_without_waits(
        first_layer, allowed, lanes, search.best, undecided, scratch[1], geometry
    )
    played = jnp.any(lanes.free, axis=0)
    unsolvable = search.stuck | (played & ~_connected(lanes))
    status = jnp.where(
        optimal, Status.OPTIMAL, jnp.where(unsolvable, Status.UNSOLVABLE, Status.UNKNOWN)
    )
    answer = _Answer(
        status=status.astype(jnp.int8),
        sum_of_costs=search.best.cost,
        makespan=search.makespan,
        needs_wait=optimal & (excess > 0) & ~waitless.found,
        plan=_backtrack(search, waitless, optimal, lanes, geometry),
    )
    return (search.layers, waitless.layers), answer


def _joint_search(
    first_layer: jax.Array,
    allowed: jax.Array,
    lanes: _Lanes,
    layers: jax.Array,
    geometry: _Geometry,
) -> _Search:
    """Layers L_0, L_1, ... until every lane has reached its joint goal or is stuck.

    The loop need not look at sums of costs: when both agents are at their goals at time t, no
    later retirement can cost less than 2t.
    """
    B = lanes.goals.shape[-1]
    horizon = layers.shape[0] - 1

    def advance(search: _Search) -> _Search:
        t = search.time
        now = _retire(search.layer, t, lanes, geometry)
        reached = now.cost == 2 * t
        following = (_expand(search.layer, geometry, waiting=True) & allowed) | search.layer
        halted = jnp.all(following == search.layer, axis=(0, 1))
        return _Search(
            time=t + 1,
            layer=following,
            layers=search.layers.at[t].set(search.layer),
            running=search.running & ~reached & ~halted,
            stuck=search.stuck | (search.running & ~reached & halted),
            makespan=jnp.where(reached, jnp.minimum(search.makespan, t), search.makespan),
            best=_where(now.cost < search.best.cost, now, search.best),
        )

    nothing = jnp.zeros(B, jnp.int32)
    return jax.lax.while_loop(
        lambda search: (search.time <= horizon) & jnp.any(search.running),
        advance,
        _Search(
            time=jnp.int32(0),
            layer=first_layer,
            layers=layers,
            running=_connected(lanes),
            stuck=jnp.zeros(B, bool),
            makespan=jnp.full(B, _FAR, jnp.int32),
            best=_Retirement(jnp.full(B, _FAR, jnp.int32), nothing, nothing, nothing),
        ),
    )


def _search_without_waits(
    first_layer: jax.Array,
    allowed: jax.Array,
    lanes: _Lanes,
    optimum: _Retirement,
    undecided: jax.Array,
    layers: jax.Array,
    geometry: _Geometry,
) -> _Waitless:
    """The same recursion with WAIT banned before the first agent retires."""
    B = lanes.goals.shape[-1]

    def open_lanes(search: _Waitless) -> jax.Array:
        return undecided & ~search.found & (2 * search.time <= optimum.cost)

    def advance(search: _Waitless) -> _Waitless:
        now = _retire(search.layer, search.time, lanes, geometry)
        hit = open_lanes(search) & (now.cost == optimum.cost)
        return _Waitless(
            time=search.time + 1,
            layer=_expand(search.layer, geometry, waiting=False) & allowed,
            layers=search.layers.at[search.time].set(search.layer),
            found=search.found | hit,
            best=_where(hit, now, search.best),
        )

    return jax.lax.while_loop(
        lambda search: jnp.any(open_lanes(search)),
        advance,
        _Waitless(jnp.int32(0), first_layer, layers, jnp.zeros(B, bool), optimum),
    )


def _retire(layer: jax.Array, time: jax.Array, lanes: _Lanes, geometry: _Geometry) -> _Retirement:
    """The cheapest way for one agent to stay at its goal from now on."""
    goals = lanes.goals
    word, shift = np.divmod(np.arange(geometry.cells), 32)
    row = jnp.take_along_axis(layer, goals[0][None, None], axis=1)[:, 0]
    others_of_0 = row[word] >> shift[:, None].astype(np.uint32)
    column = jnp.take_along_axis(layer, (goals[1] // 32)[None, None], axis=0)[0]
    others_of_1 = column >> (goals[1] % 32).astype(jnp.uint32)

    # Steps and cell in one word: a plain minimum vectorises where an argmin does not.
    others = (jnp.stack([others_of_0, others_of_1], axis=1) & 1) != 0
    steps = jnp.where(others, lanes.detour[:, ::-1], jnp.int16(UNREACHABLE)).astype(jnp.int32)
    least = jnp.min((steps << 16) | np.arange(geometry.cells)[:, None, None], axis=0)
    agent = (least[1] >> 16 < least[0] >> 16).astype(jnp.int32)
    chosen = jnp.where(agent == 1, least[1], least[0])
    remaining = chosen >> 16
    return _Retirement(
        cost=jnp.where(remaining < UNREACHABLE, 2 * time + remaining, _FAR),
        time=jnp.broadcast_to(time, agent.shape),
        agent=agent,
        meets=chosen & 0xFFFF,
    )


def _where(condition: jax.Array, chosen: _Retirement, other: _Retirement) -> _Retirement:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), chosen, other)


def _expand(layer: jax.Array, geometry: _Geometry, *, waiting: bool) -> jax.Array:
    """All joint cells one simultaneous step away, swapping conflicts left out.

    Cells that are blocked, and vertex conflicts, are for the caller to mask. A swap from (u, v)
    ends with agent 1 in the cell that agent 0 has left, so for each move of agent 0 it concerns a
    single bit of agent 1's mask: the bit of u, when it came from the cell that agent 0 enters.
    """
    bit = _bit_of_cell(geometry)[..., None]
    pitch = geometry.pitch
    by_move = {delta: _shift_bits(layer, delta) for delta in (-pitch, pitch, -1, 1)}
    anywhere = reduce(jnp.bitwise_or, by_move.values())
    if waiting:
        anywhere |= layer
    moved = anywhere if waiting else jnp.zeros_like(layer)
    for delta in by_move:
        entering = reduce(jnp.bitwise_or, (by_move[d] for d in by_move if d != -delta))
        moved |= _shift_cells((anywhere & ~bit) | (entering & bit), delta)
    return moved


def _shift_cells(layer: jax.Array, delta: int) -> jax.Array:
    """Move agent 0 by `delta` cells: axis 1 of (W, M, B)."""
    if delta > 0:
        return jnp.pad(layer[:, :-delta], [(0, 0), (delta, 0), (0, 0)])
    return jnp.pad(layer[:, -delta:], [(0, 0), (0, -delta), (0, 0)])


def _shift_bits(layer: jax.Array, delta: int) -> jax.Array:
    """Move agent 1 by `delta` cells: the bits of axis 0 of (W, M, B)."""
    words, bits = divmod(abs(delta), 32)
    W = layer.shape[0]

    def whole(count: int) -> jax.Array:
        count = min(count, W)
        if delta > 0:
            return jnp.pad(layer[: W - count], [(count, 0), (0, 0), (0, 0)])
        return jnp.pad(layer[count:], [(0, count), (0, 0), (0, 0)])

    if bits == 0:
        return whole(words)
    near, far = jnp.uint32(bits), jnp.uint32(32 - bits)
    if delta > 0:
        return (whole(words) << near) | (whole(words + 1) >> far)
    return (whole(words) >> near) | (whole(words + 1) << far)


def _backtrack(
    search: _Search,
    waitless: _Waitless,
    optimal: jax.Array,
    lanes: _Lanes,
    geometry: _Geometry,
) -> jax.Array:
    """The plan, int8 (horizon, 2, B): back through the layers, then down the distance field.

    The state in which the first agent retires was reached then for the first time, or it would have
    retired earlier at a lower cost. So each of its predecessors was reached one step earlier and
    not before, and any that lies in the previous layer belongs to an optimal plan.
    """
    horizon = search.layers.shape[0] - 1
    B = lanes.goals.shape[-1]
    lane = jnp.arange(B)
    deltas = jnp.asarray(ACTION_DELTAS @ np.array([geometry.pitch, 1]), jnp.int32)
    best = _where(waitless.found, waitless.best, search.best)
    first = best.agent == 0
    at_retirement = jnp.where(
        jnp.stack([first, ~first]), lanes.goals, jnp.broadcast_to(best.meets, (2, B))
    )
    actions = np.indices((5, 5)).reshape(2, 25, 1)
    moving = np.sum(actions > 0, axis=0)
    last = jnp.max(jnp.where(optimal, best.time, 0))

    def step_back(i: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        plan, places = state
        t = last - i
        before = places[:, None] - deltas[actions]
        inside = jnp.all((before >= 0) & (before < geometry.cells), axis=0)
        swap = (before[0] == places[1]) & (before[1] == places[0])
        cell, bits = jnp.where(inside, before, 0)
        where = (t - 1, bits // 32, cell, lane)
        words = jnp.where(waitless.found, waitless.layers[where], search.layers[where])
        was_there = ((words >> (bits % 32).astype(jnp.uint32)) & 1) != 0
        legal = inside & ~swap & was_there & ((moving == 2) | ~waitless.found)
        # Of the legal predecessors take one in which as few agents as possible wait.
        choice = jnp.argmax(jnp.where(legal, moving, -1), axis=0)
        chosen = jnp.where(t <= best.time, jnp.stack([choice // 5, choice % 5]), 0)
        return plan.at[t - 1].set(chosen.astype(jnp.int8)), places - deltas[chosen]

    goal = jnp.where(first, lanes.goals[1], lanes.goals[0])
    field = jnp.where(first, lanes.detour[:, 1], lanes.detour[:, 0])
    walker = jnp.stack([~first, first])

    def walk_on(t: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        plan, place = state
        walks = (t >= best.time) & (place != goal)
        neighbours = place + deltas[:, None]
        inside = (neighbours >= 0) & (neighbours < geometry.cells)
        steps = field[jnp.where(inside, neighbours, 0), lane]
        nearest = jnp.argmin(jnp.where(inside, steps, jnp.int16(UNREACHABLE)), axis=0)
        action = jnp.where(walks, nearest, 0)
        row = jnp.where(walker & walks, action.astype(jnp.int8), plan[t])
        return plan.at[t].set(row), place + deltas[action]

    plan = jnp.zeros((horizon, 2, B), jnp.int8)
    plan, _ = jax.lax.fori_loop(0, last, step_back, (plan, at_retirement))
    end = jnp.max(jnp.where(optimal, best.cost - best.time, 0))
    return jax.lax.fori_loop(0, end, walk_on, (plan, best.meets))[0]


def _flat(board: jax.Array, geometry: _Geometry) -> jax.Array:
    """(B, N, N) to (M, B), guard column included as False."""
    padded = jnp.pad(board, [(0, 0), (0, 0), (0, 1)])
    return padded.reshape(-1, geometry.cells).T


def _cell(places: jax.Array, geometry: _Geometry) -> jax.Array:
    """(B, K, 2) to int32 (2, B): the flat cells of agents 0 and 1."""
    places = places[:, :2].astype(jnp.int32)
    return (places[..., 0] * geometry.pitch + places[..., 1]).T


def _one_hot(cells: jax.Array, geometry: _Geometry) -> jax.Array:
    """int32 (2, B) to bool (M, 2, B)."""
    return jnp.arange(geometry.cells)[:, None, None] == cells


def _bit_of_cell(geometry: _Geometry) -> jax.Array:
    """uint32 (W, M): column m is the bit mask of cell m."""
    m = np.arange(geometry.cells)
    bits = np.zeros((geometry.words, geometry.cells), np.uint32)
    bits[m // 32, m] = np.uint32(1) << (m % 32).astype(np.uint32)
    return jnp.asarray(bits)


def _pack(cells: jax.Array, geometry: _Geometry) -> jax.Array:
    """bool (M, B) to uint32 (W, B)."""
    spare = geometry.words * 32 - geometry.cells
    padded = jnp.pad(cells, [(0, spare), (0, 0)]).reshape(geometry.words, 32, -1)
    weights = jnp.uint32(1) << jnp.arange(32, dtype=jnp.uint32)
    return jnp.sum(padded * weights[:, None], axis=1, dtype=jnp.uint32)
