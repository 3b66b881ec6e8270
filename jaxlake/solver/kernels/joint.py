"""Dense joint search for two agents, for many boards in one launch, with or without plans."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver.chunks import Kernels
from jaxlake.solver.kernels.lanes import (
    Words,
    any_lane,
    intersects,
    select,
    single_cell,
    subtract,
    to_int32,
    union,
)
from jaxlake.solver.kernels.pair_lanes import (
    LAST_TIMES,
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

_JOINED, _ODD = 2, 4
"""Offsets of the second and third part of a word of `write_walk`."""

_ILLEGAL = 99
"""Rank of an illegal choice, above all others."""


class Numbers(NamedTuple):
    """Results per board, int32 each."""

    sum_of_costs: jax.Array
    makespan: jax.Array
    stuck: jax.Array
    expansions: jax.Array
    walker: jax.Array  # the agent that arrives last
    spent: jax.Array  # the sum of costs if there is a plan, else 0
    retirement: jax.Array  # arrival of the other agent
    head: jax.Array  # steps of a separate makespan plan; 0 if the other plan serves


def search_costs(
    boards: TwoAgentBoards,
    running: jax.Array,
    horizon: int,
    board: Geometry,
    backend: Kernels,
    waitless_cost: jax.Array | None = None,
) -> JointOptima:
    """Search without plans in one launch; arguments as in `joint_search`."""
    numbers, _ = _search(boards, running, horizon, board, backend, waitless_cost, plans=False)
    return _optima(numbers)


def search_pairs(
    boards: TwoAgentBoards,
    running: jax.Array,
    horizon: int,
    board: Geometry,
    backend: Kernels,
    waitless_cost: jax.Array | None = None,
) -> PairPlans:
    """Search and find plans in one launch; given `waitless_cost`, only plans without waits."""
    T, B = horizon, len(running)
    numbers, by_row = _search(boards, running, horizon, board, backend, waitless_cost, plans=True)
    actions, heads = jnp.split(by_row, [output_rows(T, by_row.shape[1]).actions])
    actions = actions.reshape(-1, B)
    pairs = heads.reshape(2, -1, B)[:, :T]
    both_act = jnp.stack([pairs // 5, pairs % 5], axis=2)  # (plans, T, agents, B)
    length = numbers.spent - numbers.retirement
    # Action c of the agent that walks alone leads from cost c - 1 to c, one step each.
    step = np.arange(T)[:, None]
    walks_alone = (step >= numbers.retirement) & (step < length)
    on_foot = jnp.take_along_axis(
        actions, jnp.where(walks_alone, step + 1 + numbers.retirement, 0), axis=0
    )
    walker = np.arange(2)[:, None] == numbers.walker
    tail = jnp.where(walker & walks_alone[:, None], on_foot[:, None], 0)
    plan = (tail + both_act[0]).astype(jnp.int8)
    makespan_plan = jnp.where(numbers.head > 0, both_act[1].astype(jnp.int8), plan)
    return PairPlans(_optima(numbers), length, plan, makespan_plan)


def _optima(numbers: Numbers) -> JointOptima:
    return JointOptima(
        numbers.sum_of_costs, numbers.makespan, numbers.stuck != 0, numbers.expansions
    )


def _search(
    boards: TwoAgentBoards,
    running: jax.Array,
    horizon: int,
    board: Geometry,
    backend: Kernels,
    waitless_cost: jax.Array | None,
    *,
    plans: bool,
) -> tuple[Numbers, jax.Array]:
    """Return the numbers of each board, and the rows of plans, int32 (rows, lanes, B)."""
    waiting = waitless_cost is None
    cost = jnp.zeros_like(running, jnp.int32) if waitless_cost is None else waitless_cost
    settings: dict[str, Any] = {
        "horizon": horizon,
        "board": board,
        "waiting": waiting,
        "plans": plans,
    }
    kernel = partial(_search_program, **settings, backend=backend)
    output = run_pairs(kernel, boards, [running, cost], horizon if plans else None, board, backend)
    by_row = output.transpose(0, 2, 1)  # (rows, lanes, B)
    return Numbers(*by_row[0, : len(Numbers._fields)]), by_row[1:]


class _State(NamedTuple):
    time: jax.Array  # int32 ()
    layer: tuple[jax.Array, ...]  # L_time, the row of each lane
    walk: jax.Array  # (boards, lanes), S_c of either agent for the last c examined
    cost: jax.Array  # int32 (boards, lanes), cost at which an agent reached its goal in this lane
    running: jax.Array  # int32 (boards, 1), as are the following
    makespan: jax.Array
    stuck: jax.Array
    expansions: jax.Array


def _search_program(
    columns: Any,
    outputs: Any,
    memory: Any,
    *,
    horizon: int,
    board: Geometry,
    waiting: bool,
    plans: bool,
    backend: Kernels,
) -> None:
    """Write `Numbers` and, for plans, the actions of the lone walker and of both agents."""
    program = _Search(columns, outputs, memory, horizon, board, waiting, plans, backend)
    state = program.search()
    arrivals = [program.min(program.select_cell(goal, state.cost, FAR)) for goal in program.goals]
    cost = jnp.minimum(*arrivals)
    if not plans:
        zero = 0 * cost
        unset = {"walker": zero, "spent": zero, "retirement": zero, "head": zero}
        numbers = Numbers(cost, state.makespan, state.stuck, state.expansions, **unset)
        program.write_numbers(numbers)
        return
    has_plan = (state.makespan if waiting else cost) < FAR
    spent = jnp.where(has_plan, cost, 0)
    walker = to_int32(arrivals[0] != cost)
    walk = _walk_back_alone(program, walker, has_plan, spent)
    retirement = walk.retirement_cost >> 1
    too_long = has_plan & (spent - retirement > state.makespan)
    head = jnp.where(too_long, state.makespan, 0) if waiting else 0 * spent
    numbers = Numbers(
        sum_of_costs=cost,
        makespan=state.makespan,
        stuck=state.stuck,
        expansions=state.expansions,
        walker=walker,
        spent=spent,
        retirement=retirement,
        head=head,
    )
    program.write_numbers(numbers)
    _walk_back_together(program, walker, walk.place, retirement, head)


class _Search(PairLanes):
    """Search of the boards of one program."""

    def __init__(
        self,
        columns: Any,
        outputs: Any,
        memory: Any,
        horizon: int,
        board: Geometry,
        waiting: bool,
        plans: bool,
        backend: Kernels,
    ) -> None:
        super().__init__(columns, memory, board, backend)
        self.horizon, self.waiting, self.plans = horizon, waiting, plans
        self.outputs, self.rows = outputs, output_rows(horizon if plans else None, self.lanes)
        (self.waitless_cost,) = self.more  # cost of the requested plan without waits

    def slot(self, t: jax.Array) -> jax.Array:
        """Return the memory slot of a time's sets."""
        return t if self.plans else t & (LAST_TIMES - 1)

    def write_numbers(self, numbers: Numbers) -> None:
        """Write the results of each board, number i into lane i."""
        self.outputs[0] = self.pack_row(numbers)

    def clear_rows(self, first: int, rows: int) -> None:
        """Write zeros to some rows of the output."""
        for i in range(first, first + rows):
            self.outputs[i] = jnp.zeros_like(self.lane)

    def put(self, first: jax.Array | int, rows: int, i: jax.Array, value: jax.Array) -> None:
        """Write value i of some rows of the output."""
        row = first if rows == 1 else first + (i >> (self.lanes.bit_length() - 1))
        mask = self.lane == (i & (self.lanes - 1))
        self.outputs[row] = jnp.where(mask, value, self.outputs[row])

    def search(self) -> _State:
        """Expand layer after layer, as `joint_search` does."""
        empty, zero = jnp.zeros_like(self.home), jnp.zeros_like(self.running)
        layer = self.first_layer()
        self.write_layer(jnp.int32(0), layer)
        self.write_walk(jnp.int32(0), empty)
        self.meet_lanes()
        far = zero + FAR
        state = _State(
            time=jnp.int32(0),
            layer=tuple(layer),
            walk=empty,
            cost=jnp.zeros_like(self.lane) + FAR,
            running=self.running,
            makespan=far,
            stuck=zero,
            expansions=zero,
        )
        initial = self._end(state, self._progress(layer, layer))

        def unfinished(state: _State) -> jax.Array:
            return (state.time < self.horizon) & any_lane(state.running != 0)

        return self._retire(jax.lax.while_loop(unfinished, self._advance, initial))

    def _advance(self, state: _State) -> _State:
        """Compute L_{t+1}, S_{2t} and S_{2t+1} from L_t, whose lanes are read together."""
        t = state.time
        layer = self.expand(self.slot(t), state.layer, self.waiting)
        self.write_layer(self.slot(t + 1), layer)
        state = self._retire(state)
        expansions, halted = state.expansions + state.running, jnp.zeros_like(state.running)
        progress = self._progress(layer, state.layer)
        if self.waiting:
            due = to_int32(t & (HALT_PERIOD - 1) == HALT_PERIOD - 1)
            halted = jnp.where(progress == 0, state.running, 0) * due
        state = state._replace(
            time=t + 1,
            layer=tuple(layer),
            running=state.running - halted,
            stuck=state.stuck | halted,
            expansions=expansions,
        )
        return self._end(state, progress)

    def _progress(self, layer: Words, before: Any) -> jax.Array:
        """Return the progress of a layer, int32 (boards, 1): 2 joint goal, 1 new cell, else 0."""
        if not self.waiting:
            return jnp.zeros_like(self.running)
        grown = union([x ^ y for x, y in zip(layer, before, strict=True)]) != 0
        at_goals = self.select_cell(self.goals[0], to_int32(intersects(layer, self.goal_1)), 0)
        return jnp.max(jnp.maximum(to_int32(grown), 2 * at_goals), axis=1, keepdims=True)

    def _end(self, state: _State, progress: jax.Array) -> _State:
        """Mark the boards that need no further layer."""
        t = state.time
        if self.waiting:
            ended = progress == 2
            least = jnp.minimum(state.makespan, jnp.where(ended, t, jnp.int32(FAR)))
            state = state._replace(makespan=least)
        else:
            ended = 2 * t + 1 >= self.waitless_cost
        return state._replace(running=jnp.where(ended, 0, state.running))

    def _retire(self, state: _State) -> _State:
        """Compute S_{2t} and S_{2t+1}, and record agents that reached their goal."""
        t = state.time
        # Cells of either agent while the other one, at its goal, may retire.
        beside_1 = to_uint32(intersects(state.layer, self.goal_1))
        joins = beside_1 | (self.column_of_goal_0(self.slot(t), state.layer) << 1)
        even = (self._step(state.walk, self.slot(jnp.maximum(t - 1, 0)), _ODD) & self.clear) | joins
        self.write_walk(self.slot(t), even | (joins << _JOINED))
        self.meet_lanes()
        odd = self._step(even, self.slot(t), 0) & self.clear
        self.write_walk(self.slot(t), even | (joins << _JOINED) | (odd << _ODD))
        self.meet_lanes()
        even_arrived, odd_arrived = (even & self.home) != 0, (odd & self.home) != 0
        if self.waiting:
            arrived = jnp.where(odd_arrived, 2 * t + 1, jnp.int32(FAR))
            arrived = jnp.where(even_arrived, 2 * t, arrived)
            cost = jnp.minimum(state.cost, arrived)
        else:
            hit = even_arrived & (self.waitless_cost == 2 * t)
            hit = hit | (odd_arrived & (self.waitless_cost == 2 * t + 1))
            cost = jnp.where(hit & (self.running != 0), self.waitless_cost, state.cost)
        return state._replace(walk=odd, cost=cost)

    def _step(self, walk: jax.Array, t: jax.Array, part: int) -> jax.Array:
        """Return the cells one step away from a walk that `write_walk` has written."""
        stepped = self.step_walk(t, part)
        return stepped | walk if self.waiting else stepped


class _Walk(NamedTuple):
    """Backward walk of the last-arriving agent while the other is retired."""

    cost: jax.Array  # int32 (), cost paid up to this point
    place: jax.Array  # int32 (boards, 1), as are the following
    walking: jax.Array
    retirement_cost: jax.Array  # cost paid when the other agent retired


def _walk_back_alone(
    lanes: _Search, walker: jax.Array, has_plan: jax.Array, spent: jax.Array
) -> _Walk:
    """Walk the last-arriving agent back from its goal until the other one has retired."""
    W, rows = lanes.board.words, lanes.rows.actions
    # WAIT comes last, so that moves are preferred.
    order = (1, 2, 3, 4, 0) if lanes.waiting else (1, 2, 3, 4)
    walker_bit = walker.astype(jnp.uint32)

    def step_back(walk: _Walk) -> _Walk:
        cost, before = walk.cost, jnp.maximum(walk.cost - 1, 0)
        due = walk.walking * to_int32(spent >= cost)
        rank = jnp.zeros_like(lanes.lane) + _ILLEGAL
        for number, move in enumerate(order):
            rank = lanes.mark_origin(walk.place, move, number, rank)
        odd = to_uint32(before & 1 == 1)
        reached = lanes.memory[before >> 1, W] >> (odd * _ODD + walker_bit)
        rank = jnp.where((reached & 1) != 0, rank, _ILLEGAL)
        # The other agent retires in the layer of this cost, if both can be there.
        joins = (lanes.memory[cost >> 1, W] >> (_JOINED + walker_bit)) & to_uint32(cost & 1 == 0)
        rank = jnp.where((lanes.lane == walk.place) & (joins != 0), -1, rank)
        first = lanes.min(rank)
        met = due * to_int32(first < 0)
        due = due - met
        action = due * jnp.where(first < 4, first + 1, 0)
        lanes.put(lanes.rows.numbers, rows, cost, action)
        return _Walk(
            cost=cost - 1,
            place=walk.place - lanes.action_delta(action),
            walking=walk.walking - met,
            retirement_cost=jnp.where(met != 0, cost, walk.retirement_cost),
        )

    lanes.clear_rows(lanes.rows.numbers, rows)
    zero = jnp.zeros_like(walker)
    start = _Walk(jnp.max(spent), jnp.where(walker == 0, *lanes.goals), to_int32(has_plan), zero)
    return jax.lax.while_loop(
        lambda walk: (walk.cost >= 0) & any_lane(walk.walking != 0), step_back, start
    )


def _walk_back_together(
    lanes: _Search, walker: jax.Array, place: jax.Array, retirement: jax.Array, head: jax.Array
) -> None:
    """Write the steps up to the retirement, and those of a separate makespan plan."""
    retired = jnp.where(walker == 0, *lanes.goals[::-1])
    joint = jnp.where(walker == 0, place, retired), jnp.where(walker == 0, retired, place)
    first, rows = lanes.rows.numbers + lanes.rows.actions, lanes.rows.heads
    lanes.clear_rows(first, 2 * rows)

    def trace(plan: jax.Array, _: None) -> None:
        end = [jnp.where(plan == 0, *ends) for ends in zip(joint, lanes.goals, strict=True)]
        steps = jnp.where(plan == 0, retirement, head)
        last = jnp.max(steps)

        def step_back(i: jax.Array, places: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            t = last - i
            pair = jnp.where(t <= steps, _last_step(lanes, t, *places), 0)
            lanes.put(first + plan * rows, rows, t - 1, pair)
            # Divides a number below 25 by 5 without a division.
            first_action = (pair * 13) >> 6
            actions = first_action, pair - 5 * first_action
            return tuple(
                place - lanes.action_delta(action)
                for place, action in zip(places, actions, strict=True)
            )

        jax.lax.fori_loop(0, last, step_back, tuple(end))

    jax.lax.fori_loop(0, 2 if lanes.waiting else 1, trace, None)


def _last_step(lanes: _Search, t: jax.Array, cell_0: jax.Array, cell_1: jax.Array) -> jax.Array:
    """Return 5 times the action of agent 0 plus that of agent 1 for the step that ends at t."""
    # Choose a legal predecessor in which as few agents as possible wait: both move (ranks 0 to
    # 15), only agent 1 moves (16 to 19), only agent 0 moves (20 to 23), or neither.
    W = lanes.board.words
    swapped = select(lanes.lane == cell_1, single_cell(cell_0, W))
    before = subtract([lanes.memory[t - 1, w] for w in range(W)], swapped)
    came = [intersects(before, single_cell(cell_1 - delta, W)) for delta in lanes.deltas]
    rank = jnp.zeros_like(lanes.lane) + _ILLEGAL
    for number, legal in reversed(list(enumerate(came[1:]))):
        rank = jnp.where(legal, number, rank)
    first = jnp.zeros_like(lanes.lane) + _ILLEGAL
    for action in range(1, 5):
        first = lanes.mark_origin(cell_0, action, 4 * (action - 1), first)
    if not lanes.waiting:
        return _pair_of(lanes.min(first + rank), waiting=lanes.waiting)
    first = lanes.mark_origin(cell_0, 0, 16, first)
    solo_distances = jnp.where(first < 16, 20 + (first >> 2), first + 8)
    rank = jnp.minimum(first + rank, jnp.where(came[0], solo_distances, _ILLEGAL))
    return _pair_of(lanes.min(rank), waiting=lanes.waiting)


def _pair_of(rank: jax.Array, *, waiting: bool) -> jax.Array:
    """Return 5 times the action of agent 0 plus that of agent 1, for a rank."""
    both_move = 5 * ((rank >> 2) + 1) + (rank & 3) + 1
    if not waiting:
        return both_move
    one_moves = jnp.where(rank < 20, rank - 15, 5 * (rank - 19))
    return jnp.where(rank < 16, both_move, jnp.where(rank < 24, one_moves, 0))
