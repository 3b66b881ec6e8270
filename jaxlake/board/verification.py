"""Verification of plans: their first failure, their costs, and a comparison with the optimum."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.dynamics import Action, as_actions, step_batch
from jaxlake.board.instance import Instance, check_unbatched
from jaxlake.runtime.batch_axes import merge_batch_axes
from jaxlake.runtime.cpu_devices import is_eager
from jaxlake.solver import Solution, Status
from jaxlake.solver.bitboard import pack_rows, word_type

_MAX_SLOTS = 128  # agent numbers are int8
_NUM_RULES = 4  # failures of a single step, from OFF_BOARD to SWAPPING_CONFLICT
_ACTIONS = ", ".join(f"{action:d} {action.name}" for action in Action)
_STEPS_PER_TEST = 4  # steps between exit tests; on a GPU each test synchronises with the host
_NO_FAILURE = np.iinfo(np.int32).max


class Failure(IntEnum):
    """Reason why a plan is invalid. The first member in this order decides within a time step."""

    NONE = 0
    PARSE_ERROR = 1
    OFF_BOARD = 2
    HOLE = 3
    VERTEX_CONFLICT = 4
    SWAPPING_CONFLICT = 5
    GOAL_NOT_REACHED = 6

    @property
    def label(self) -> str:
        """The name in lower case, as used in files and prompts, such as `off_board`."""
        return self.name.lower()


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Outcome:
    """Result of verifying one plan. K is the number of agent slots."""

    parsed: jax.Array  # bool ()
    valid: jax.Array  # bool (), the plan keeps every rule and every agent ends at its goal
    optimal_sum_of_costs: jax.Array  # bool (), valid with the optimal sum of costs
    optimal_makespan: jax.Array  # bool (), valid with the optimal makespan
    failure: jax.Array  # int8 (), a Failure
    agent: jax.Array  # int8 (), lowest agent involved in the first failure, -1 without failure
    time: jax.Array  # int16 (), 0-based step of the first failure, -1 without failure
    sum_of_costs: jax.Array  # int16 (), of this plan, -1 unless valid
    makespan: jax.Array  # int16 (), of this plan, -1 unless valid
    at_goal: jax.Array  # bool (K,), the agent ends at its goal; a step that breaks a rule is undone


def verify(
    instance: Instance,
    plan: jax.Array,
    length: jax.Array | int | None = None,
    parsed: jax.Array | bool = True,
    solution: Solution | None = None,
) -> Outcome:
    """Return the first failure of a plan, or its costs if it is valid.

    Failures are ordered by time, and within one step by the order of `Failure`. The cost of an
    agent is the time of its last arrival at its goal. Waiting at the goal counts only if the agent
    leaves again. `jax.vmap` verifies a batch in one loop that ends with its longest plan.

    Args:
        instance: The board.
        plan: integers (T, K), actions 0 to 4. Rows from `length` on are ignored. Under jit and
            vmap any other action counts as OFF_BOARD.
        length: int32 (), the number of steps of the plan, clipped to 0 to T. Defaults to T.
        parsed: bool (), whether a plan could be parsed. If not, the failure is PARSE_ERROR, with
            agent and time -1.
        solution: The optimum to compare with. Unless it is OPTIMAL, the optimal flags are False.

    Returns:
        The `Outcome`. GOAL_NOT_REACHED has the time `length` and the lowest agent that does not
        end at its goal. `at_goal` is False without a plan and outside the agent mask.

    Raises:
        TypeError: `instance` is not an `Instance` or one of its leaves has the wrong dtype, `plan`
            is not an array of integers, or `length` is not a single integer.
        ValueError: The board has more than 128 slots, `plan` does not have shape (T, K) for its K
            slots, or T * K exceeds 32,767, the largest sum of costs that int16 holds. Outside jit
            and vmap also if an agent has an action other than 0 to 4 before step `length`.
    """
    check_unbatched(instance, "verify")
    num_slots = np.shape(instance.agent_mask)[-1]
    if num_slots > _MAX_SLOTS:
        raise ValueError(
            f"agent_mask must have at most {_MAX_SLOTS} slots, because agent numbers are int8, "
            f"got {num_slots}"
        )
    if isinstance(plan, list | tuple) and len(set(map(np.size, plan))) > 1:
        raise ValueError("plan must have shape (T, K), got rows of different lengths")
    if len(np.shape(plan)) != 2 or np.shape(plan)[1] != num_slots:
        raise ValueError(
            f"plan must have shape (T, {num_slots}), got {np.shape(plan)}; it has one row per step "
            f"and one action for each of the board's {num_slots} slots, 0 (WAIT) in a slot without "
            "an agent; parse_grid(rows, max_agents=K) creates a board with K slots"
        )
    T, K = np.shape(plan)
    if np.iinfo(np.int16).max < T * K:
        raise ValueError(f"plan must have T * K at most 32767, got {T} steps of {K} agents")
    plan = plan if isinstance(plan, jax.Array) else np.asarray(plan)
    if plan.dtype.kind not in "iu":
        raise TypeError(f"plan must hold integers ({_ACTIONS}), got {plan.dtype}")
    if parsed is True and is_eager(instance, plan, length):
        _check_actions(np.asarray(plan), T if length is None else int(length), instance)
    if length is not None and (
        np.shape(length) or not jnp.issubdtype(jnp.result_type(length), jnp.integer)
    ):
        raise TypeError(f"length must be one integer, got {length!r}")
    # Clip before the cast to int8, which could wrap an invalid action to a valid one.
    min_action = -1 if plan.dtype.kind == "i" else 0
    plan = jnp.asarray(jnp.clip(as_actions(plan), min_action, len(Action)), jnp.int8)
    length = jnp.asarray(T if length is None else length, jnp.int32)
    if solution is None:
        no_cost = jnp.int16(-1)
        optimum = _Optimum(jnp.int8(Status.UNKNOWN), no_cost, no_cost)
    else:
        optimum = _Optimum(solution.status, solution.sum_of_costs, solution.makespan)
    return _verify(instance, plan, length, jnp.asarray(parsed, bool), optimum)


def _check_actions(plan: np.ndarray, length: int, instance: Instance) -> None:
    steps = plan[: max(length, 0)]
    is_unknown = ((steps < 0) | (steps >= len(Action))) & np.asarray(instance.agent_mask)
    for time, agent in np.argwhere(is_unknown)[:1]:
        number = steps[time, agent]
        hint = "; solutions that are not OPTIMAL have no plan" if number == -1 else ""
        raise ValueError(
            f"plan must hold actions {_ACTIONS}, got action {number} in step {time} of agent "
            f"{agent}{hint}"
        )


class _Optimum(NamedTuple):
    """The optimal costs of a board, without the optimal plans."""

    status: jax.Array  # int8 (), a Status
    sum_of_costs: jax.Array  # int16 ()
    makespan: jax.Array  # int16 ()


@jax.jit
def _verify(
    instance: Instance, plan: jax.Array, length: jax.Array, parsed: jax.Array, optimum: _Optimum
) -> Outcome:
    T, K = plan.shape
    length = jnp.clip(length, 0, T)
    batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], (instance, plan, length))
    execution = jax.tree.map(lambda leaf: leaf[0], _execute_plans(*batch))

    mask = jnp.asarray(instance.agent_mask)
    has_failure = execution.first_failure < _NO_FAILURE
    misses_goal = ~has_failure & jnp.any(mask & ~execution.at_goal)
    # Failures are numbered by time, then rule, then agent, so the minimum is the first failure.
    time_and_rule, agent = execution.first_failure // K, execution.first_failure % K
    time, rule = time_and_rule // _NUM_RULES, time_and_rule % _NUM_RULES
    failure = jnp.where(has_failure, rule + Failure.OFF_BOARD, Failure.NONE)
    failure = jnp.where(misses_goal, Failure.GOAL_NOT_REACHED, failure)
    agent = jnp.where(misses_goal, jnp.argmax(mask & ~execution.at_goal), agent)
    time = jnp.where(misses_goal, length, time)

    failure = jnp.where(parsed, failure, Failure.PARSE_ERROR)
    is_valid = failure == Failure.NONE
    has_location = parsed & ~is_valid
    costs = jnp.where(mask, execution.last_arrival, 0)
    sum_of_costs = jnp.where(is_valid, jnp.sum(costs), -1).astype(jnp.int16)
    makespan = jnp.where(is_valid, jnp.max(costs), -1).astype(jnp.int16)
    is_comparable = is_valid & (optimum.status == Status.OPTIMAL)
    return Outcome(
        parsed=parsed,
        valid=is_valid,
        optimal_sum_of_costs=is_comparable & (sum_of_costs == optimum.sum_of_costs),
        optimal_makespan=is_comparable & (makespan == optimum.makespan),
        failure=failure.astype(jnp.int8),
        agent=jnp.where(has_location, agent, -1).astype(jnp.int8),
        time=jnp.where(has_location, time, -1).astype(jnp.int16),
        sum_of_costs=sum_of_costs,
        makespan=makespan,
        at_goal=execution.at_goal & mask & parsed,
    )


class _Execution(NamedTuple):
    """State of executing B plans. Inside the loop, plans are the last axis."""

    first_failure: jax.Array  # int32 (B,), numbered as in `_verify`; _NO_FAILURE without failure
    last_arrival: jax.Array  # int32 (B, K), time of the last arrival of agents at their goals
    at_goal: jax.Array  # bool (B, K), at the end of the plan or before its first failure


@merge_batch_axes
def _execute_plans(instances: Instance, plans: jax.Array, lengths: jax.Array) -> _Execution:
    """Execute plans int8 (B, T, K) of lengths int32 (B,) on instances with leaves (B, ...)."""
    B, T, K = plans.shape
    agents = range(K)
    steps = plans.transpose(1, 2, 0) if T else jnp.zeros((1, K, B), jnp.int8)
    starts = jnp.asarray(instances.starts, jnp.int8).transpose(2, 1, 0)
    goals = jnp.asarray(instances.goals, jnp.int8).transpose(2, 1, 0)
    mask = list(jnp.asarray(instances.agent_mask).T)
    side = jnp.asarray(instances.size).astype(jnp.int8)
    is_hole = _make_hole_lookup(jnp.asarray(instances.holes))
    State = tuple[jax.Array, _Execution]

    def are_at_goals(rows: Sequence[jax.Array], columns: Sequence[jax.Array]) -> list[jax.Array]:
        return [(rows[k] == goals[0, k]) & (columns[k] == goals[1, k]) for k in agents]

    def advance(time: jax.Array, state: State) -> State:
        positions, execution = state
        rows, columns = list(positions[0]), list(positions[1])
        actions = jax.lax.dynamic_index_in_dim(steps, time, keepdims=False)
        step = step_batch(rows, columns, list(actions), side=side, mask=mask, is_hole=is_hole)
        flags = [*step.off_board, *step.hole, *step.vertex_conflict, *step.swapping_conflict]
        first_flag = no_flag = jnp.int16(len(flags))
        for index in reversed(range(len(flags))):
            first_flag = jnp.where(flags[index], jnp.int16(index), first_flag)
        is_active = time < lengths
        is_first = is_active & (execution.first_failure == _NO_FAILURE) & (first_flag < no_flag)
        failure_number = time * len(flags) + first_flag.astype(jnp.int32)
        first_failure = jnp.where(is_first, failure_number, execution.first_failure)
        # Use the stored `first_failure`, because XLA would recompute all flags otherwise.
        is_valid = is_active & (first_failure == _NO_FAILURE)
        was_at_goal, is_at_goal = are_at_goals(rows, columns), are_at_goals(step.rows, step.columns)
        last_arrival = [
            jnp.where(is_active & ~was_at_goal[k], time + 1, execution.last_arrival[k])
            for k in agents
        ]
        at_goal = [jnp.where(is_valid, is_at_goal[k], execution.at_goal[k]) for k in agents]
        positions = jnp.stack([jnp.stack(step.rows), jnp.stack(step.columns)])
        return positions, _Execution(first_failure, jnp.stack(last_arrival), jnp.stack(at_goal))

    initial = _Execution(
        first_failure=jnp.full(B, _NO_FAILURE, jnp.int32),
        last_arrival=jnp.zeros((K, B), jnp.int32),
        at_goal=jnp.all(starts == goals, axis=0),
    )

    def advance_several(number: jax.Array, state: State) -> State:
        first_time = number * _STEPS_PER_TEST
        return jax.lax.fori_loop(
            0, _STEPS_PER_TEST, lambda i, state: advance(first_time + i, state), state
        )

    num_iterations = -(-jnp.max(lengths, initial=0) // _STEPS_PER_TEST)
    execution = jax.lax.fori_loop(0, num_iterations, advance_several, (starts, initial))[1]
    return execution._replace(last_arrival=execution.last_arrival.T, at_goal=execution.at_goal.T)


def _make_hole_lookup(holes: jax.Array) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Return a function of rows and columns, int8 (B,), that looks them up in bool (B, N, N)."""
    B, N = holes.shape[:2]
    if N > 32:
        return lambda row, column: holes[jnp.arange(B), row, column]
    # One bit mask per row, selected by comparisons: a gather would process boards one by one.
    dtype, row_masks = word_type(N), pack_rows(holes)

    def is_hole(row: jax.Array, column: jax.Array) -> jax.Array:
        mask, row = jnp.zeros_like(row_masks[0]), row.astype(dtype)
        for index in range(N):
            mask = jnp.where(row == index, row_masks[index], mask)
        return (mask >> column.astype(dtype)) & 1 != 0

    return is_hole
