"""The dense joint search for two agents in one launch for many boards, with plans or without."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver.chunks import Kernels
from jaxlake.solver.joint_search import (
    FAR,
    HALT_PERIOD,
    Geometry,
    JointOptima,
    PairPlans,
    TwoAgentBoards,
)
from jaxlake.solver.kernels.joint_plans import walk_back_alone, walk_back_together
from jaxlake.solver.kernels.lanes import Words, any_lane, flag, meet, union
from jaxlake.solver.kernels.pair_lanes import (
    JOINED,
    ODD,
    JointLanes,
    Numbers,
    as_word,
    output_rows,
    run_pairs,
)


def search_costs(
    boards: TwoAgentBoards,
    running: jax.Array,
    horizon: int,
    board: Geometry,
    machine: Kernels,
    waitless_cost: jax.Array | None = None,
) -> JointOptima:
    """Search without plans in one launch; arguments as `joint_search`."""
    found, _ = _search(boards, running, horizon, board, machine, waitless_cost, plans=False)
    return _optima(found)


def search_pairs(
    boards: TwoAgentBoards,
    running: jax.Array,
    horizon: int,
    board: Geometry,
    machine: Kernels,
    waitless_cost: jax.Array | None = None,
) -> PairPlans:
    """Search and find plans in one launch; with a `waitless_cost` only plans without waits."""
    T, B = horizon, len(running)
    found, by_row = _search(boards, running, horizon, board, machine, waitless_cost, plans=True)
    actions, heads = jnp.split(by_row, [output_rows(T, by_row.shape[1]).actions])
    actions = actions.reshape(-1, B)
    pairs = heads.reshape(2, -1, B)[:, :T]
    both_act = jnp.stack([pairs // 5, pairs % 5], axis=2)  # (plans, T, agents, B)
    length = found.spent - found.retirement
    # Action c of the one that walks alone leads from cost c - 1 to c, and each takes one step.
    step = np.arange(T)[:, None]
    alone = (step >= found.retirement) & (step < length)
    on_foot = jnp.take_along_axis(actions, jnp.where(alone, step + 1 + found.retirement, 0), axis=0)
    walker = np.arange(2)[:, None] == found.walker
    tail = jnp.where(walker & alone[:, None], on_foot[:, None], 0)
    plan = (tail + both_act[0]).astype(jnp.int8)
    makespan_plan = jnp.where(found.head > 0, both_act[1].astype(jnp.int8), plan)
    return PairPlans(_optima(found), length, plan, makespan_plan)


def _optima(found: Numbers) -> JointOptima:
    return JointOptima(found.sum_of_costs, found.makespan, found.stuck != 0, found.expansions)


def _search(
    boards: TwoAgentBoards,
    running: jax.Array,
    horizon: int,
    board: Geometry,
    machine: Kernels,
    waitless_cost: jax.Array | None,
    *,
    plans: bool,
) -> tuple[Numbers, jax.Array]:
    """Search: give what is said of each board, and the rows of plans, int32 (rows, lanes, B)."""
    waiting = waitless_cost is None
    cost = jnp.zeros_like(running, jnp.int32) if waitless_cost is None else waitless_cost
    settings = {"horizon": horizon, "board": board, "waiting": waiting, "plans": plans}
    kernel = partial(_search_program, **settings, machine=machine)
    kept = horizon if plans else None
    output = run_pairs(kernel, boards, [running, cost], kept, board, machine)
    by_row = output.transpose(0, 2, 1)  # (rows, lanes, B)
    return Numbers(*by_row[0, : len(Numbers._fields)]), by_row[1:]


class _State(NamedTuple):
    time: jax.Array  # int32 ()
    layer: tuple[jax.Array, ...]  # L_time, the row of each lane
    walk: jax.Array  # (boards, lanes), S_c of either agent for the last c looked at
    cost: jax.Array  # int32 (boards, lanes), at which an agent came to its goal in this lane
    running: jax.Array  # int32 (boards, 1), as are the others
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
    machine: Kernels,
) -> None:
    """Write `Numbers` and, for plans, the actions of the one that walks alone and of both."""
    program = _Search(columns, outputs, memory, horizon, board, waiting, plans, machine)
    state = program.search()
    arrivals = [program.least(program.where_at(goal, state.cost, FAR)) for goal in program.goals]
    cost = jnp.minimum(*arrivals)
    if not plans:
        none = 0 * cost
        unset = {"walker": none, "spent": none, "retirement": none, "head": none}
        numbers = Numbers(cost, state.makespan, state.stuck, state.expansions, **unset)
        program.write_numbers(numbers)
        return
    found = (state.makespan if waiting else cost) < FAR
    spent = jnp.where(found, cost, 0)
    walker = flag(arrivals[0] != cost)
    walk = walk_back_alone(program, walker, found, spent)
    retirement = walk.left >> 1
    too_long = found & (spent - retirement > state.makespan)
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
    walk_back_together(program, walker, walk.place, retirement, head)


class _Search(JointLanes):
    """The search of the boards of one program."""

    def search(self) -> _State:
        """Expand layer after layer, as `joint_search` does."""
        nothing, zero = jnp.zeros_like(self.home), jnp.zeros_like(self.running)
        layer = self.first_layer()
        self.write_layer(jnp.int32(0), layer)
        self.write_walk(jnp.int32(0), nothing)
        self.meet_lanes()
        far = zero + FAR
        state = _State(
            time=jnp.int32(0),
            layer=tuple(layer),
            walk=nothing,
            cost=jnp.zeros_like(self.lane) + FAR,
            running=self.running,
            makespan=far,
            stuck=zero,
            expansions=zero,
        )
        begun = self._end(state, self._progress(layer, layer))

        def unfinished(state: _State) -> jax.Array:
            return (state.time < self.horizon) & any_lane(state.running != 0)

        return self._retire(jax.lax.while_loop(unfinished, self._advance, begun))

    def _advance(self, state: _State) -> _State:
        """Make L_{t+1} of L_t, and S_{2t} and S_{2t+1} of L_t, whose lanes are read together."""
        t = state.time
        layer = self.expand(self.slot(t), state.layer, self.waiting)
        self.write_layer(self.slot(t + 1), layer)
        state = self._retire(state)
        expansions, halted = state.expansions + state.running, jnp.zeros_like(state.running)
        progress = self._progress(layer, state.layer)
        if self.waiting:
            due = flag(t & (HALT_PERIOD - 1) == HALT_PERIOD - 1)
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
        """Tell, as int32 (boards, 1), what a new layer brings: 2 the joint goal, 1 anything."""
        if not self.waiting:
            return jnp.zeros_like(self.running)
        grown = union([x ^ y for x, y in zip(layer, before, strict=True)]) != 0
        at_goals = self.where_at(self.goals[0], flag(meet(layer, self.goal_1)), 0)
        return jnp.max(jnp.maximum(flag(grown), 2 * at_goals), axis=1, keepdims=True)

    def _end(self, state: _State, progress: jax.Array) -> _State:
        """Say which boards need no further layer."""
        t = state.time
        if self.waiting:
            ended = progress == 2
            least = jnp.minimum(state.makespan, jnp.where(ended, t, jnp.int32(FAR)))
            state = state._replace(makespan=least)
        else:
            ended = 2 * t + 1 >= self.asked
        return state._replace(running=jnp.where(ended, 0, state.running))

    def _retire(self, state: _State) -> _State:
        """Compute S_{2t} and S_{2t+1}, and see who has come to its goal."""
        t = state.time
        # Where either agent can be while the other one, at its goal, may retire.
        beside_1 = as_word(meet(state.layer, self.goal_1))
        joins = beside_1 | (self.column_of_goal_0(self.slot(t), state.layer) << 1)
        even = (self._step(state.walk, self.slot(jnp.maximum(t - 1, 0)), ODD) & self.clear) | joins
        self.write_walk(self.slot(t), even | (joins << JOINED))
        self.meet_lanes()
        odd = self._step(even, self.slot(t), 0) & self.clear
        self.write_walk(self.slot(t), even | (joins << JOINED) | (odd << ODD))
        self.meet_lanes()
        even_arrived, odd_arrived = (even & self.home) != 0, (odd & self.home) != 0
        if self.waiting:
            arrived = jnp.where(odd_arrived, 2 * t + 1, jnp.int32(FAR))
            arrived = jnp.where(even_arrived, 2 * t, arrived)
            cost = jnp.minimum(state.cost, arrived)
        else:
            hit = even_arrived & (self.asked == 2 * t)
            hit = hit | (odd_arrived & (self.asked == 2 * t + 1))
            cost = jnp.where(hit & (self.running != 0), self.asked, state.cost)
        return state._replace(walk=odd, cost=cost)

    def _step(self, walk: jax.Array, t: jax.Array, part: int) -> jax.Array:
        """Return the cells one step away from a walk, which `write_walk` has written."""
        stepped = self.step_walk(t, part)
        return stepped | walk if self.waiting else stepped
