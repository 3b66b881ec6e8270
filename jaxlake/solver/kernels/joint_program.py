"""What one program does: the joint search of its boards, and the way back to their plans.

A lane is a cell of agent 0, and a layer is a few words in each (`joint_lanes`). So all joint cells
take their step at once, and a program has its answer after as many short rounds as there are
layers, and as many again on the way back (`joint_plans`).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxlake.solver.chunks import Kernels
from jaxlake.solver.joint_search import FAR, HALT_PERIOD, Geometry
from jaxlake.solver.kernels.joint_lanes import JOINED, ODD, JointLanes, Numbers, as_word
from jaxlake.solver.kernels.joint_plans import walk_back_alone, walk_back_together
from jaxlake.solver.kernels.lanes import any_lane, flag, union
from jaxlake.solver.kernels.word_sets import Words, meet


class _State(NamedTuple):
    time: jax.Array  # int32 ()
    layer: tuple[jax.Array, ...]  # L_time, the row of each lane
    walk: jax.Array  # (boards, lanes), S_c of either agent for the last c looked at
    cost: jax.Array  # int32 (boards, lanes), at which an agent came to its goal in this lane
    running: jax.Array  # int32 (boards, 1), as are the others
    makespan: jax.Array
    stuck: jax.Array
    expansions: jax.Array


def search(
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
