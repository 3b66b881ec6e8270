"""Joint actions under a conflict policy: fail, block all agents in conflict, or block by priority.

There are two equivalent variants. On CPUs and TPUs, arrays over agents are fastest. On GPUs, the
inputs of each agent are packed into one uint32, so that XLA fuses all rules into one kernel.
"""

from dataclasses import dataclass
from enum import Enum
from functools import partial, reduce
from itertools import chain

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.dynamics import Action, Step, any_of, pair_conflicts, step, target_cells
from jaxlake.board.instance import Instance
from jaxlake.board.verification import Failure
from jaxlake.errors import did_you_mean

MAX_PACKED_AGENTS = 8  # limit of `resolve_packed`, whose program size is quadratic in the agents
MAX_PACKED_SIDE = 64  # largest side of a board whose cells have 12-bit numbers

_SIDE_BITS = 6
_CELL_BITS = 2 * _SIDE_BITS  # row * MAX_PACKED_SIDE + column
# Bit positions of the flags of an agent, its current cell and its target cell in the packed uint32.
_EXISTS, _OFF_BOARD, _HOLE, _AT_GOAL, _TARGET_IS_GOAL, _CELL = range(6)
_TARGET = _CELL + _CELL_BITS


class ConflictPolicy(Enum):
    """How to handle a joint action that breaks a rule.

    FAIL: the episode terminates, as a plan fails in `jaxlake.verify`.
    BLOCK_BOTH: an agent whose move leaves the board, enters a hole or takes part in a vertex or
        swapping conflict stays in its cell, and agents that would move into that cell stay too.
    PRIORITY: like BLOCK_BOTH, but if several agents enter one free cell, the lowest index moves.
    """

    FAIL = "fail"
    BLOCK_BOTH = "block_both"
    PRIORITY = "priority"


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ResolvedAction:
    """A joint action before and after conflict resolution."""

    attempt: Step  # the step that the given actions would make, with the rules they break
    executed: jax.Array  # int8 (K,), the executed actions, WAIT for blocked agents
    positions: jax.Array  # int8 (K, 2), positions after the step
    at_goal: jax.Array  # bool (K,), enabled agents that are at their goals after the step
    num_away: jax.Array  # int32 (), enabled agents that are not at their goals
    failed: jax.Array  # bool (), a broken rule ends the episode; only with FAIL


def parse_conflict_policy(conflict: ConflictPolicy | str) -> ConflictPolicy:
    """Return the conflict policy of a name, such as "block_both".

    Raises:
        ValueError: `conflict` is neither a `ConflictPolicy` nor the name of one.
    """
    if isinstance(conflict, ConflictPolicy):
        return conflict
    allowed_names = [policy.value for policy in ConflictPolicy]
    if conflict not in allowed_names:
        suggestion = did_you_mean(conflict, allowed_names)
        raise ValueError(
            f"conflict must be one of {', '.join(allowed_names)}, got {conflict!r}{suggestion}"
        )
    return ConflictPolicy(conflict)


@partial(jax.jit, static_argnums=0)
def resolve(
    policy: ConflictPolicy | str, instance: Instance, positions: jax.Array, actions: jax.Array
) -> ResolvedAction:
    """Execute one joint action under a conflict policy.

    Args:
        policy: the conflict policy or its name (static).
        instance: the board, unbatched.
        positions: int8 (K, 2), distinct free cells for enabled agents.
        actions: int8 (K,).

    Returns:
        The `ResolvedAction`.

    Raises:
        ValueError: `policy` is neither a `ConflictPolicy` nor the name of one.
    """
    policy = parse_conflict_policy(policy)
    unpacked, packed = partial(resolve_unpacked, policy), partial(resolve_packed, policy)
    if len(positions) > MAX_PACKED_AGENTS or np.shape(instance.holes)[-1] > MAX_PACKED_SIDE:
        return unpacked(instance, positions, actions)
    return jax.lax.platform_dependent(
        *(instance, positions, actions),
        cuda=packed,
        rocm=packed,
        default=unpacked,
    )


def resolve_unpacked(
    policy: ConflictPolicy, instance: Instance, positions: jax.Array, actions: jax.Array
) -> ResolvedAction:
    """Execute a joint action with arrays over agents: the variant for CPUs and TPUs."""
    mask = instance.agent_mask
    attempt = step(instance, positions, actions)
    executed, next_positions = actions, attempt.positions
    has_failed = jnp.bool_(False)
    if policy is ConflictPolicy.FAIL:
        has_failed = any_of(breaks_rule(attempt))
    else:
        is_blocked = breaks_rule(attempt)
        if policy is ConflictPolicy.PRIORITY:
            is_blocked = _loses_priority(actions, attempt)
        enters_cell = ~any_of(attempt.positions[:, None] != positions[None, :])
        follows = enters_cell & mask[:, None] & mask[None, :]
        for _ in range(len(positions) - 1):  # the longest queue
            is_blocked |= any_of(follows & is_blocked[None, :])
        executed = jnp.where(is_blocked, jnp.int8(Action.WAIT), actions)
        next_positions = jnp.where(is_blocked[:, None], positions, attempt.positions)
    at_goal = mask & ~any_of(next_positions != instance.goals)
    # Python's sum adds agent by agent: see `any_of`.
    num_away = sum((mask & ~at_goal).astype(jnp.int32), jnp.int32(0))
    return ResolvedAction(attempt, executed, next_positions, at_goal, num_away, has_failed)


def resolve_packed(
    policy: ConflictPolicy, instance: Instance, positions: jax.Array, actions: jax.Array
) -> ResolvedAction:
    """Execute a joint action with one packed uint32 per agent: the variant for GPUs."""
    agents, packed_agents = range(len(positions)), _pack_agents(instance, positions, actions)
    agent_bits = [packed_agents[k] for k in agents]
    mask, off_board, hole, at_goal_before, targets_goal = (
        [bits & np.uint32(1 << flag) != 0 for bits in agent_bits]
        for flag in (_EXISTS, _OFF_BOARD, _HOLE, _AT_GOAL, _TARGET_IS_GOAL)
    )
    cell_mask = np.uint32((1 << _CELL_BITS) - 1)
    cells = [(bits >> _CELL) & cell_mask for bits in agent_bits]
    targets = [bits >> _TARGET for bits in agent_bits]
    # A waiting loser keeps its cell, so `follows` below also blocks the agent that would enter it.
    vertex, swapping, losers = pair_conflicts(cells, targets, mask)
    violations = off_board, hole, vertex, swapping
    has_failed, blocked = jnp.bool_(False), [jnp.zeros_like(flag) for flag in mask]
    if policy is ConflictPolicy.FAIL:
        has_failed = reduce(jnp.logical_or, chain(*violations))
    else:
        has_lost = losers if policy is ConflictPolicy.PRIORITY else vertex
        blocked = [off_board[k] | hole[k] | swapping[k] | has_lost[k] for k in agents]
        follows = [[mask[i] & mask[j] & (targets[i] == cells[j]) for j in agents] for i in agents]
        for _ in agents[1:]:  # the longest queue
            behind = [[follows[i][j] & blocked[j] for j in agents if j != i] for i in agents]
            blocked = [reduce(jnp.logical_or, behind[i], blocked[i]) for i in agents]
    at_goal = [mask[k] & jnp.where(blocked[k], at_goal_before[k], targets_goal[k]) for k in agents]
    num_away = sum((mask[k] & ~at_goal[k] for k in agents), jnp.int32(0))
    moves, is_blocked = _stack([cells[k] != targets[k] for k in agents]), _stack(blocked)
    target_positions = _unpack_cells(_stack(targets)).astype(positions.dtype)
    new_positions = jnp.where(moves[:, None], target_positions, positions)
    return ResolvedAction(
        attempt=Step(new_positions, *map(_stack, violations)),
        executed=jnp.where(is_blocked, jnp.int8(Action.WAIT), actions),
        positions=jnp.where(is_blocked[:, None], positions, new_positions),
        at_goal=_stack(at_goal),
        num_away=num_away,
        failed=has_failed,
    )


def _pack_agents(instance: Instance, positions: jax.Array, actions: jax.Array) -> jax.Array:
    """Pack the inputs of the rules into one uint32 per agent, (K,)."""
    rows, columns = positions[:, 0], positions[:, 1]
    to_rows, to_columns, on_board = target_cells(
        rows, columns, actions, instance.size.astype(jnp.int8)
    )
    goal_rows, goal_columns = instance.goals[:, 0], instance.goals[:, 1]
    mask = instance.agent_mask
    flags = {
        _EXISTS: mask,
        _OFF_BOARD: mask & ~on_board,
        _HOLE: mask & on_board & jnp.asarray(instance.holes)[to_rows, to_columns],
        _AT_GOAL: (rows == goal_rows) & (columns == goal_columns),
        _TARGET_IS_GOAL: (to_rows == goal_rows) & (to_columns == goal_columns),
    }
    fields = [flag.astype(jnp.uint32) << position for position, flag in flags.items()]
    fields += [_pack_cells(rows, columns) << _CELL, _pack_cells(to_rows, to_columns) << _TARGET]
    return reduce(jnp.bitwise_or, fields)


def _pack_cells(rows: jax.Array, columns: jax.Array) -> jax.Array:
    side_mask = np.uint32(MAX_PACKED_SIDE - 1)
    row, column = (axis.astype(jnp.uint32) & side_mask for axis in (rows, columns))
    return (row << _SIDE_BITS) | column


def _unpack_cells(cells: jax.Array) -> jax.Array:
    """Return the rows and columns of packed cells (K,), uint32 (K, 2)."""
    shifts = np.array([_SIDE_BITS, 0], np.uint32)
    return (cells[:, None] >> shifts) & np.uint32(MAX_PACKED_SIDE - 1)


def _stack(scalars: list[jax.Array]) -> jax.Array:
    """Stack scalars into an array (K,) by selects, which XLA fuses better than a concatenation."""
    result = jnp.broadcast_to(scalars[-1], len(scalars))
    for k, scalar in enumerate(scalars[:-1]):
        result = jnp.where(np.arange(len(scalars)) == k, scalar, result)
    return result


def breaks_rule(attempt: Step) -> jax.Array:
    """Return the agents that break a rule, bool (K,)."""
    return attempt.off_board | attempt.hole | attempt.vertex_conflict | attempt.swapping_conflict


def first_failure(attempt: Step) -> tuple[jax.Array, jax.Array]:
    """Return the first failure of a step, in the order of `Failure`, as `jaxlake.verify` does.

    Returns:
        (failure, agent): int8 (), `Failure.NONE` if no rule is broken, and the lowest agent
        involved, int8 (), -1 if none.
    """
    kind, agent = jnp.int8(Failure.NONE), jnp.int8(-1)
    for failure, flags in (
        (Failure.SWAPPING_CONFLICT, attempt.swapping_conflict),
        (Failure.VERTEX_CONFLICT, attempt.vertex_conflict),
        (Failure.HOLE, attempt.hole),
        (Failure.OFF_BOARD, attempt.off_board),
    ):
        for k in reversed(range(flags.shape[0])):
            kind = jnp.where(flags[k], jnp.int8(failure), kind)
            agent = jnp.where(flags[k], jnp.int8(k), agent)
    return kind, agent


def _loses_priority(actions: jax.Array, attempt: Step) -> jax.Array:
    """Return the agents that break a rule, except the winners of contested cells; bool (K,)."""
    K = actions.shape[0]
    is_same_cell = ~any_of(attempt.positions[:, None] != attempt.positions[None, :])
    is_contested = (
        is_same_cell & attempt.vertex_conflict[:, None] & attempt.vertex_conflict[None, :]
    )
    agents = jnp.arange(K)
    # A waiting agent keeps its cell, whatever its index.
    is_waiting = actions == Action.WAIT
    has_priority = is_waiting[None, :] | (agents[None, :] < agents[:, None])
    loses = any_of(is_contested & has_priority & ~jnp.eye(K, dtype=bool))
    return attempt.off_board | attempt.hole | attempt.swapping_conflict | loses
