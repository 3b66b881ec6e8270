"""The way back from the goals of a joint search to its plans, a step of all boards per round."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxlake.solver.kernels.lanes import any_lane, flag, meet, single, where, without
from jaxlake.solver.kernels.pair_lanes import JOINED, ODD, JointLanes, as_word

_NOT = 99  # a rank behind all others


class Walk(NamedTuple):
    """The agent that arrives last on its way back, the other one retired."""

    cost: jax.Array  # int32 (), paid up to here
    place: jax.Array  # int32 (boards, 1), as are the others
    walking: jax.Array
    left: jax.Array  # what had been paid when the other one retired


def walk_back_alone(
    lanes: JointLanes, walker: jax.Array, found: jax.Array, spent: jax.Array
) -> Walk:
    """Go back from the goal of the agent that arrives last, until the other one has retired."""
    W, rows = lanes.board.words, lanes.rows.actions
    # WAIT comes last: a move is better where both will do.
    order = (1, 2, 3, 4, 0) if lanes.waiting else (1, 2, 3, 4)
    own = walker.astype(jnp.uint32)

    def step_back(walk: Walk) -> Walk:
        cost, before = walk.cost, jnp.maximum(walk.cost - 1, 0)
        due = walk.walking * flag(spent >= cost)
        rank = jnp.zeros_like(lanes.lane) + _NOT
        for number, move in enumerate(order):
            rank = lanes.where_from(walk.place, move, number, rank)
        odd = as_word(before & 1 == 1)
        reached = lanes.memory[before >> 1, W] >> (odd * ODD + own)
        rank = jnp.where((reached & 1) != 0, rank, _NOT)
        # The other one retires in the layer of this cost, if they can both be there.
        joins = (lanes.memory[cost >> 1, W] >> (JOINED + own)) & as_word(cost & 1 == 0)
        rank = jnp.where((lanes.lane == walk.place) & (joins != 0), -1, rank)
        first = lanes.least(rank)
        met = due * flag(first < 0)
        due = due - met
        action = due * jnp.where(first < 4, first + 1, 0)
        lanes.put(lanes.rows.numbers, rows, cost, action)
        return Walk(
            cost=cost - 1,
            place=walk.place - lanes.delta_of(action),
            walking=walk.walking - met,
            left=jnp.where(met != 0, cost, walk.left),
        )

    lanes.clear_rows(lanes.rows.numbers, rows)
    zero = jnp.zeros_like(walker)
    start = Walk(jnp.max(spent), jnp.where(walker == 0, *lanes.goals), flag(found), zero)
    return jax.lax.while_loop(
        lambda walk: (walk.cost >= 0) & any_lane(walk.walking != 0), step_back, start
    )


def walk_back_together(
    lanes: JointLanes, walker: jax.Array, place: jax.Array, retirement: jax.Array, head: jax.Array
) -> None:
    """Write the steps up to the retirement, and those of the makespan's own plan."""
    other = jnp.where(walker == 0, *lanes.goals[::-1])
    joint = jnp.where(walker == 0, place, other), jnp.where(walker == 0, other, place)
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
            # A fifth of a number below 25, without a division.
            one = (pair * 13) >> 6
            chosen = one, pair - 5 * one
            return tuple(
                place - lanes.delta_of(action) for place, action in zip(places, chosen, strict=True)
            )

        jax.lax.fori_loop(0, last, step_back, tuple(end))

    jax.lax.fori_loop(0, 2 if lanes.waiting else 1, trace, None)


def _last_step(lanes: JointLanes, t: jax.Array, one: jax.Array, two: jax.Array) -> jax.Array:
    """Return 5 times the action of agent 0 plus that of agent 1 that lead here at t."""
    # Of the legal predecessors one in which as few agents as possible wait: both move (ranks 0 to
    # 15), agent 1 alone (16 to 19), agent 0 alone (20 to 23), neither.
    W = lanes.board.words
    swapped = where(lanes.lane == two, single(one, W))
    before = without([lanes.memory[t - 1, w] for w in range(W)], swapped)
    came = [meet(before, single(two - delta, W)) for delta in lanes.deltas]
    rank = jnp.zeros_like(lanes.lane) + _NOT
    for number, legal in reversed(list(enumerate(came[1:]))):
        rank = jnp.where(legal, number, rank)
    first = jnp.zeros_like(lanes.lane) + _NOT
    for action in range(1, 5):
        first = lanes.where_from(one, action, 4 * (action - 1), first)
    if not lanes.waiting:
        return _pair_of(lanes.least(first + rank), waiting=lanes.waiting)
    first = lanes.where_from(one, 0, 16, first)
    alone = jnp.where(first < 16, 20 + (first >> 2), first + 8)
    rank = jnp.minimum(first + rank, jnp.where(came[0], alone, _NOT))
    return _pair_of(lanes.least(rank), waiting=lanes.waiting)


def _pair_of(rank: jax.Array, *, waiting: bool) -> jax.Array:
    """Return 5 times the action of agent 0 plus that of agent 1 of a rank."""
    both_move = 5 * ((rank >> 2) + 1) + (rank & 3) + 1
    if not waiting:
        return both_move
    one_moves = jnp.where(rank < 20, rank - 15, 5 * (rank - 19))
    return jnp.where(rank < 16, both_move, jnp.where(rank < 24, one_moves, 0))
