"""Two agents: both optima, a plan for each and needs_wait, by the dense joint search."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.dynamics import ACTION_DELTAS
from jaxlake.instance import Instance
from jaxlake.solver.chunks import in_chunks
from jaxlake.solver.joint import (
    FAR,
    Geometry,
    History,
    Lanes,
    Search,
    geometry,
    lanes_at_once,
    prepare,
    search,
    search_without_waits,
)
from jaxlake.solver.solution import Solution, Status


def solve_two(batch: Instance, wanted: jax.Array, horizon: int) -> Solution:
    """Solve a batch of boards exactly where two agents play, in whichever slots.

    Args:
        batch: leaves (B, ...), K >= 2 slots. Boards whose `agent_mask` has another number of True
            than two are UNKNOWN and cost next to nothing.
        wanted: bool (B,); so are those that are not wanted.
        horizon: longest plan to look for, in steps (static).

    Returns:
        A `Solution` with leaves (B, ...). Boards are UNKNOWN if their makespan is longer than
        `horizon`, or if the plan of optimal sum of costs that is found is; plans of empty slots are
        WAIT where OPTIMAL. `expansions` counts the layers of `jaxlake.solver.joint` that were
        expanded until the board was decided, those of the search without waits included; it does
        not depend on the rest of the batch.
    """
    K = batch.agent_mask.shape[-1]
    slots = jnp.argsort(~batch.agent_mask, axis=-1, stable=True)[:, :2]
    answer = _solve_pairs(
        ~batch.holes,
        jnp.take_along_axis(batch.starts, slots[..., None], axis=1),
        jnp.take_along_axis(batch.goals, slots[..., None], axis=1),
        wanted & (jnp.sum(batch.agent_mask, axis=-1) == 2),
        horizon,
    )
    optimal = answer.status == Status.OPTIMAL
    in_slot = slots[:, None] == jnp.arange(K)[:, None]

    def scatter(plan: jax.Array) -> jax.Array:
        rows = plan.transpose(2, 0, 1)[:, :, None]
        own = jnp.sum(jnp.where(in_slot[:, None], rows, jnp.int8(0)), axis=-1, dtype=jnp.int8)
        return jnp.where(optimal[:, None, None], own, jnp.int8(-1))

    none = jnp.int16(-1)
    return Solution(
        status=answer.status,
        sum_of_costs=jnp.where(optimal, answer.sum_of_costs.astype(jnp.int16), none),
        makespan=jnp.where(optimal, answer.makespan.astype(jnp.int16), none),
        needs_wait=answer.needs_wait,
        plan=scatter(answer.plan),
        makespan_plan=scatter(answer.makespan_plan),
        expansions=answer.expansions,
    )


class _Answer(NamedTuple):
    status: jax.Array  # int8 (B,), a Status
    sum_of_costs: jax.Array  # int32 (B,), FAR if not known
    makespan: jax.Array  # int32 (B,), FAR if not known
    needs_wait: jax.Array  # bool (B,)
    expansions: jax.Array  # int32 (B,)
    plan: jax.Array  # int8 (horizon, 2, B)
    makespan_plan: jax.Array  # int8 (horizon, 2, B)


class _Found(NamedTuple):
    """What the search with waits leaves of a lane."""

    stuck: jax.Array  # bool (B,)
    sum_of_costs: jax.Array  # int32 (B,), FAR if not found
    makespan: jax.Array  # int32 (B,), FAR if not found
    length: jax.Array  # int32 (B,), steps of the plan
    expansions: jax.Array  # int32 (B,)
    plan: jax.Array  # int8 (horizon, 2, B)
    makespan_plan: jax.Array  # int8 (horizon, 2, B)


class _Replanned(NamedTuple):
    """What the search without waits may change."""

    undecided: jax.Array  # bool (B,), no plan without waits is known, and there may be one
    sum_of_costs: jax.Array  # int32 (B,)
    expansions: jax.Array  # int32 (B,)
    length: jax.Array  # int32 (B,)
    plan: jax.Array  # int8 (horizon, 2, B)


def _solve_pairs(
    free: jax.Array, starts: jax.Array, goals: jax.Array, playing: jax.Array, horizon: int
) -> _Answer:
    """Arguments as `prepare` has them; leaves (..., B)."""
    board = geometry(free.shape[-1])
    B = playing.shape[0]
    lanes = prepare(free, starts, goals, playing, board)
    width = max(1, min(B, lanes_at_once(board, horizon)))
    # Made once, not per chunk: the loops write every set that they later read.
    history = History(
        layers=jnp.zeros((horizon + 1, board.words, board.cells, width), jnp.uint32),
        walks=jnp.zeros((2 * horizon + 2, board.words, 2, width), jnp.uint32),
    )

    def find(own: Lanes, history: History) -> tuple[_Found, History]:
        return _find(own, history, horizon, board)

    nothing = jnp.zeros(B, jnp.int32)
    far = jnp.full(B, FAR, jnp.int32)
    none = jnp.zeros((horizon, 2, B), jnp.int8)
    blank = _Found(jnp.zeros(B, bool), far, far, far, nothing, none, none)
    found, history = in_chunks(
        find, lanes, lanes.connected, jnp.max(lanes.alone, axis=0), blank, width, history
    )

    known = found.makespan < FAR
    excess = found.sum_of_costs - jnp.sum(lanes.alone, axis=0)
    # Without an excess nobody waits; on a bipartite grid an odd excess can only come from waiting.
    undecided = known & (excess > 0) & (excess % 2 == 0)

    def replan(operands: tuple[Lanes, _Replanned], history: History) -> tuple[_Replanned, History]:
        own, before = operands
        waitless, ended = search_without_waits(
            own, before.sum_of_costs, before.undecided, horizon, board, history
        )
        history = _recorded(ended)
        plan, length = _cheapest_plan(
            own, before.sum_of_costs, waitless, history, horizon, board, waiting=False
        )
        after = before._replace(
            undecided=before.undecided & ~waitless,
            expansions=before.expansions + ended.expansions,
            length=jnp.where(waitless, length, before.length),
            plan=jnp.where(waitless, plan, before.plan),
        )
        return after, history

    first = _Replanned(undecided, found.sum_of_costs, found.expansions, found.length, found.plan)
    final, _ = in_chunks(
        replan, (lanes, first), undecided, found.sum_of_costs, first, width, history
    )
    optimal = known & (final.length <= horizon)
    unsolvable = found.stuck | (playing & ~lanes.connected)
    status = jnp.where(
        optimal, Status.OPTIMAL, jnp.where(unsolvable, Status.UNSOLVABLE, Status.UNKNOWN)
    )
    return _Answer(
        status=status.astype(jnp.int8),
        sum_of_costs=found.sum_of_costs,
        makespan=found.makespan,
        needs_wait=optimal & ((excess % 2 == 1) | final.undecided),
        expansions=final.expansions,
        plan=final.plan,
        makespan_plan=found.makespan_plan,
    )


def _recorded(ended: Search) -> History:
    assert ended.history is not None
    return ended.history


def _find(lanes: Lanes, history: History, horizon: int, board: Geometry) -> tuple[_Found, History]:
    """Both optima of a chunk and a plan for each."""
    ended = search(lanes, lanes.connected, horizon, board, history)
    history = _recorded(ended)
    found = ended.makespan < FAR
    plan, length = _cheapest_plan(
        lanes, ended.sum_of_costs, found, history, horizon, board, waiting=True
    )
    too_long = found & (length > ended.makespan)
    quickest = _back_through_layers(
        jnp.where(too_long, jnp.int8(0), plan),
        lanes.goals,
        jnp.where(too_long, ended.makespan, 0),
        history.layers,
        board,
        waiting=True,
    )
    return _Found(
        stuck=ended.stuck,
        sum_of_costs=ended.sum_of_costs,
        makespan=ended.makespan,
        length=length,
        expansions=ended.expansions,
        plan=plan,
        makespan_plan=quickest,
    ), history


def _cheapest_plan(
    lanes: Lanes,
    cost: jax.Array,
    wanted: jax.Array,
    history: History,
    horizon: int,
    board: Geometry,
    *,
    waiting: bool,
) -> tuple[jax.Array, jax.Array]:
    """Plans of optimal sum of costs, int8 (horizon, 2, B), and their lengths, int32 (B,).

    From the walker's goal back through S_c until the joint cell lies in a layer, and from there
    back through the layers. With waits every set of `history` holds the ones before it, but since
    the cost is the least, every cell on the way back was reached at its time and not before.
    """
    deltas = _deltas(board)
    lane = jnp.arange(cost.shape[0])
    spent = jnp.where(wanted, cost, 0)

    def among(walks: jax.Array, cells: jax.Array) -> jax.Array:
        return (walks >> (cells % 32).astype(jnp.uint32)) & 1 != 0

    home = history.walks[spent, lanes.goals[0] // 32, 0, lane]
    walker = jnp.where(among(home, lanes.goals[0]), 0, 1)
    goal = jnp.where(walker == 0, lanes.goals[0], lanes.goals[1])
    retired = jnp.where(walker == 0, lanes.goals[1], lanes.goals[0])

    def both(place: jax.Array) -> jax.Array:
        return jnp.where(walker == 0, jnp.stack([place, retired]), jnp.stack([retired, place]))

    def walking(place: jax.Array, left: jax.Array) -> jax.Array:
        cell, bit = both(place)
        met = (left % 2 == 0) & among(history.layers[left // 2, bit // 32, cell, lane], bit)
        return wanted & ~met

    def step_back(state: _Walk) -> _Walk:
        before = state.place - deltas[:, None]
        inside = (before >= 0) & (before < board.cells)
        cells = jnp.where(inside, before, 0)
        sets = history.walks[jnp.maximum(state.left - 1, 0), cells // 32, walker, lane]
        legal = inside & among(sets, cells)
        # WAIT comes last: a move is better where both will do.
        order = np.array([1, 2, 3, 4, 0] if waiting else [1, 2, 3, 4])
        action = jnp.asarray(order)[jnp.argmax(legal[order], axis=0)]
        action = jnp.where(state.walking, action, 0)
        place = state.place - deltas[action]
        left = state.left - state.walking
        return _Walk(
            steps=state.steps + 1,
            place=place,
            left=left,
            walking=state.walking & walking(place, left),
            actions=state.actions.at[state.steps].set(action.astype(jnp.int8)),
        )

    walk = jax.lax.while_loop(
        lambda state: jnp.any(state.walking),
        step_back,
        _Walk(
            steps=jnp.int32(0),
            place=goal,
            left=spent,
            walking=walking(goal, spent),
            actions=jnp.zeros((2 * horizon + 2, cost.shape[0]), jnp.int8),
        ),
    )
    retirement = walk.left // 2
    length = spent - retirement
    # The actions of the walk stand in reverse.
    back = length - 1 - np.arange(horizon)[:, None]
    on_foot = (back >= 0) & (np.arange(horizon)[:, None] >= retirement)
    alone = jnp.take_along_axis(walk.actions, jnp.where(on_foot, back, 0), axis=0)
    alone = jnp.where(on_foot, alone, jnp.int8(0))
    plan = jnp.where(np.arange(2)[:, None] == walker, alone[:, None], jnp.int8(0))
    plan = _back_through_layers(
        plan, both(walk.place), retirement, history.layers, board, waiting=waiting
    )
    return plan, length


class _Walk(NamedTuple):
    """One agent on its way back, the other retired."""

    steps: jax.Array  # int32 (), steps back
    place: jax.Array  # int32 (B,), cell of the walker
    left: jax.Array  # int32 (B,), cost paid up to here
    walking: jax.Array  # bool (B,), not yet where the other retired
    actions: jax.Array  # int8 (2 * horizon + 2, B), last one first


def _back_through_layers(
    plan: jax.Array,
    places: jax.Array,
    time: jax.Array,
    layers: jax.Array,
    board: Geometry,
    *,
    waiting: bool,
) -> jax.Array:
    """Fill the first `time` steps of a plan, int8 (horizon, 2, B), which end in `places`.

    With waits, `places` must be a joint cell that was reached at `time` for the first time. So each
    of its predecessors was reached one step earlier and not before, and any that lies in the
    previous layer will do.
    """
    deltas = _deltas(board)
    lane = jnp.arange(places.shape[-1])
    choices = np.indices((5, 5)).reshape(2, 25)
    moving = np.sum(choices > 0, axis=0)
    # Of the legal predecessors take one in which as few agents as possible wait.
    choices = choices[:, np.argsort(-moving, kind="stable")][:, : 25 if waiting else 16]
    last = jnp.max(time, initial=0)

    def step_back(i: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        plan, places = state
        t = last - i
        before = places[:, None] - deltas[choices][..., None]
        inside = jnp.all((before >= 0) & (before < board.cells), axis=0)
        swap = (before[0] == places[1]) & (before[1] == places[0])
        cell, bit = jnp.where(inside, before, 0)
        words = layers[t - 1, bit // 32, cell, lane]
        was_there = (words >> (bit % 32).astype(jnp.uint32)) & 1 != 0
        action = jnp.asarray(choices)[:, jnp.argmax(inside & ~swap & was_there, axis=0)]
        due = t <= time
        action = jnp.where(due, action, 0)
        row = jnp.where(due, action.astype(jnp.int8), plan[t - 1])
        return plan.at[t - 1].set(row), places - deltas[action]

    return jax.lax.fori_loop(0, last, step_back, (plan, places))[0]


def _deltas(board: Geometry) -> jax.Array:
    """int32 (5,): what each action adds to a cell."""
    return jnp.asarray(ACTION_DELTAS @ np.array([board.pitch, 1]), jnp.int32)
