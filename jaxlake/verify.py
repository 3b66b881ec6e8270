"""Verification of a plan against the rules and the optimum."""

from dataclasses import dataclass
from enum import IntEnum

import jax
import jax.numpy as jnp

from jaxlake.dynamics import Step, step
from jaxlake.instance import Instance
from jaxlake.solver import Solution, Status


class Failure(IntEnum):
    """Why a plan is not valid, in the order in which kinds are named within one time step."""

    NONE = 0
    PARSE_ERROR = 1
    OFF_BOARD = 2
    HOLE = 3
    VERTEX_CONFLICT = 4
    SWAPPING_CONFLICT = 5
    GOAL_NOT_REACHED = 6

    @property
    def label(self) -> str:
        """The name in lower case, as files and prompts write it: `off_board`."""
        return self.name.lower()


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Outcome:
    """What became of one plan."""

    parsed: jax.Array  # bool ()
    valid: jax.Array  # bool (), every rule kept and every agent at its goal at the end
    optimal_sum_of_costs: jax.Array  # bool (), valid and of least sum of costs
    optimal_makespan: jax.Array  # bool (), valid and of least makespan
    failure: jax.Array  # int8 (), a Failure
    agent: jax.Array  # int8 (), lowest agent involved in the first failure, -1 if there is none
    time: jax.Array  # int16 (), 0-based step of the first failure, -1 if there is none
    sum_of_costs: jax.Array  # int16 (), of this plan, -1 unless valid
    makespan: jax.Array  # int16 (), of this plan, -1 unless valid


def verify(
    instance: Instance,
    plan: jax.Array,
    length: jax.Array,
    parsed: jax.Array,
    solution: Solution,
) -> Outcome:
    """Run a plan through `dynamics.step` and name its first failure or its costs.

    The first failure in time counts, within one step in the order of `Failure`. The cost of an
    agent is the time of its last arrival at its goal: waiting there counts only if it leaves again.

    Args:
        instance: the board.
        plan: int8 (T, K), actions; rows from `length` on are not read.
        length: int32 (), number of steps of the plan, at most T (larger values count as T).
        parsed: bool (), whether there is a plan at all; if not the failure is PARSE_ERROR, with
            agent and time -1.
        solution: the optimum to compare with; the optimal flags are False unless it is OPTIMAL.

    Returns:
        The `Outcome`. GOAL_NOT_REACHED has the time `length` and the lowest agent that is not at
        its goal when the plan has ended.
    """
    T = plan.shape[0]
    mask = instance.agent_mask
    length = jnp.clip(jnp.asarray(length, jnp.int32), 0, T)
    goals = instance.goals

    def advance(
        carry: tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array],
        row: tuple[jax.Array, jax.Array],
    ) -> tuple[tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array], None]:
        positions, cost, failure, agent, time = carry
        t, actions = row
        live = (t < length) & (failure == Failure.NONE)
        moved = step(instance, positions, actions)
        kind, who = _first_failure(moved)
        failed = live & (kind != Failure.NONE)
        arrived = jnp.all(moved.positions == goals, axis=-1) & jnp.any(positions != goals, axis=-1)
        return (
            jnp.where(live, moved.positions, positions),
            jnp.where(live & arrived, t.astype(jnp.int16) + jnp.int16(1), cost),
            jnp.where(failed, kind, failure),
            jnp.where(failed, who, agent),
            jnp.where(failed, t.astype(jnp.int16), time),
        ), None

    start = (
        jnp.asarray(instance.starts, jnp.int8),
        jnp.zeros(mask.shape, jnp.int16),
        jnp.int8(Failure.NONE),
        jnp.int8(-1),
        jnp.int16(-1),
    )
    times = jnp.arange(T, dtype=jnp.int32)
    (positions, cost, failure, agent, time), _ = jax.lax.scan(
        advance, start, (times, jnp.asarray(plan, jnp.int8))
    )

    away = mask & jnp.any(positions != goals, axis=-1)
    unreached = (failure == Failure.NONE) & jnp.any(away)
    failure = jnp.where(unreached, jnp.int8(Failure.GOAL_NOT_REACHED), failure)
    agent = jnp.where(unreached, jnp.argmax(away).astype(jnp.int8), agent)
    time = jnp.where(unreached, length.astype(jnp.int16), time)

    parsed = jnp.asarray(parsed, bool)
    failure = jnp.where(parsed, failure, jnp.int8(Failure.PARSE_ERROR))
    valid = failure == Failure.NONE
    none = jnp.int16(-1)
    cost = jnp.where(mask, cost, jnp.int16(0))
    sum_of_costs = jnp.where(valid, jnp.sum(cost, dtype=jnp.int16), none)
    makespan = jnp.where(valid, jnp.max(cost), none)
    comparable = valid & (solution.status == Status.OPTIMAL)
    return Outcome(
        parsed=parsed,
        valid=valid,
        optimal_sum_of_costs=comparable & (sum_of_costs == solution.sum_of_costs),
        optimal_makespan=comparable & (makespan == solution.makespan),
        failure=failure,
        agent=jnp.where(parsed, agent, jnp.int8(-1)),
        time=jnp.where(parsed, time, none),
        sum_of_costs=sum_of_costs,
        makespan=makespan,
    )


def _first_failure(moved: Step) -> tuple[jax.Array, jax.Array]:
    """The kind that comes first in the order of `Failure` and the lowest agent it involves."""
    flags = jnp.stack([moved.off_board, moved.hole, moved.vertex_conflict, moved.swapping_conflict])
    present = jnp.any(flags, axis=-1)
    first = jnp.argmax(present)
    kind = jnp.where(jnp.any(present), first + Failure.OFF_BOARD, Failure.NONE)
    return kind.astype(jnp.int8), jnp.argmax(flags[first]).astype(jnp.int8)
