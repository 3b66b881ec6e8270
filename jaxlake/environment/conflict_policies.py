"""Resolve joint actions that break a rule: fail, block both agents, or block by priority."""

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

MOST_AGENTS = 8  # limit of `resolve_from_words`, whose program size is quadratic in the agents
LARGEST_SIDE = 64  # largest side of a board whose cells fit into a word

_SIDE_BITS = 6
_CELL_BITS = 2 * _SIDE_BITS  # row * LARGEST_SIDE + column
_REAL, _OFF_BOARD, _HOLE, _HOME, _ARRIVES, _CELL = range(6)
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


def conflict_policy(conflict: ConflictPolicy | str) -> ConflictPolicy:
    """Return a conflict policy by name, such as "block_both".

    Raises:
        ValueError: `conflict` is neither a `ConflictPolicy` nor the name of one.
    """
    if isinstance(conflict, ConflictPolicy):
        return conflict
    allowed = [policy.value for policy in ConflictPolicy]
    if conflict not in allowed:
        suggestion = did_you_mean(conflict, allowed)
        raise ValueError(
            f"conflict must be one of {', '.join(allowed)}, got {conflict!r}{suggestion}"
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
    policy = conflict_policy(policy)
    along_agents = partial(resolve_along_agents, policy)
    if len(positions) > MOST_AGENTS or np.shape(instance.holes)[-1] > LARGEST_SIDE:
        return along_agents(instance, positions, actions)
    from_words = partial(resolve_from_words, policy)
    return jax.lax.platform_dependent(
        *(instance, positions, actions), cuda=from_words, rocm=from_words, default=along_agents
    )


def resolve_along_agents(
    policy: ConflictPolicy, instance: Instance, positions: jax.Array, actions: jax.Array
) -> ResolvedAction:
    """Resolve with arrays over agents: the variant for CPUs and TPUs."""
    mask = instance.agent_mask
    attempt = step(instance, positions, actions)
    executed, after = actions, attempt.positions
    failed = jnp.bool_(False)
    if policy is ConflictPolicy.FAIL:
        failed = any_of(breaks_a_rule(attempt))
    else:
        stays = breaks_a_rule(attempt)
        if policy is ConflictPolicy.PRIORITY:
            stays = _losers(actions, attempt)
        takes_place = ~any_of(attempt.positions[:, None] != positions[None, :])
        follows = takes_place & mask[:, None] & mask[None, :]
        for _ in range(len(positions) - 1):  # the longest queue
            stays |= any_of(follows & stays[None, :])
        executed = jnp.where(stays, jnp.int8(Action.WAIT), actions)
        after = jnp.where(stays[:, None], positions, attempt.positions)
    at_goal = mask & ~any_of(after != instance.goals)
    # Python's sum adds agent by agent: see `any_of`.
    num_away = sum((mask & ~at_goal).astype(jnp.int32), jnp.int32(0))
    return ResolvedAction(attempt, executed, after, at_goal, num_away, failed)


def resolve_from_words(
    policy: ConflictPolicy, instance: Instance, positions: jax.Array, actions: jax.Array
) -> ResolvedAction:
    """Resolve from one packed word per agent: the variant for GPUs, which fuses into one kernel."""
    agents, packed = range(len(positions)), _agent_words(instance, positions, actions)
    words = [packed[k] for k in agents]
    mask, off_board, hole, home, arrives = (
        [word & np.uint32(1 << place) != 0 for word in words]
        for place in (_REAL, _OFF_BOARD, _HOLE, _HOME, _ARRIVES)
    )
    cell = np.uint32((1 << _CELL_BITS) - 1)
    cells, targets = [(word >> _CELL) & cell for word in words], [word >> _TARGET for word in words]
    # An agent that meets a waiting agent enters its cell, so `follows` below blocks it too.
    vertex, swapping, losers = pair_conflicts(cells, targets, mask)
    broken = off_board, hole, vertex, swapping
    failed, stays = jnp.bool_(False), [jnp.zeros_like(flag) for flag in mask]
    if policy is ConflictPolicy.FAIL:
        failed = reduce(jnp.logical_or, chain(*broken))
    else:
        losing = losers if policy is ConflictPolicy.PRIORITY else vertex
        stays = [off_board[k] | hole[k] | swapping[k] | losing[k] for k in agents]
        follows = [[mask[i] & mask[j] & (targets[i] == cells[j]) for j in agents] for i in agents]
        for _ in agents[1:]:  # the longest queue
            behind = [[follows[i][j] & stays[j] for j in agents if j != i] for i in agents]
            stays = [reduce(jnp.logical_or, behind[i], stays[i]) for i in agents]
    at_goal = [mask[k] & jnp.where(stays[k], home[k], arrives[k]) for k in agents]
    num_away = sum((mask[k] & ~at_goal[k] for k in agents), jnp.int32(0))
    leaves, stay = _join([cells[k] != targets[k] for k in agents]), _join(stays)
    target = jnp.where(leaves[:, None], _places(_join(targets)).astype(positions.dtype), positions)
    return ResolvedAction(
        attempt=Step(target, *map(_join, broken)),
        executed=jnp.where(stay, jnp.int8(Action.WAIT), actions),
        positions=jnp.where(stay[:, None], positions, target),
        at_goal=_join(at_goal),
        num_away=num_away,
        failed=failed,
    )


def _agent_words(instance: Instance, positions: jax.Array, actions: jax.Array) -> jax.Array:
    """Pack the inputs of the rules into one word per agent, uint32 (K,)."""
    rows, columns = positions[:, 0], positions[:, 1]
    to_rows, to_columns, on_board = target_cells(
        rows, columns, actions, instance.size.astype(jnp.int8)
    )
    goal_rows, goal_columns = instance.goals[:, 0], instance.goals[:, 1]
    mask = instance.agent_mask
    flags = {
        _REAL: mask,
        _OFF_BOARD: mask & ~on_board,
        _HOLE: mask & on_board & jnp.asarray(instance.holes)[to_rows, to_columns],
        _HOME: (rows == goal_rows) & (columns == goal_columns),
        _ARRIVES: (to_rows == goal_rows) & (to_columns == goal_columns),
    }
    packed = [flag.astype(jnp.uint32) << place for place, flag in flags.items()]
    packed += [_cells(rows, columns) << _CELL, _cells(to_rows, to_columns) << _TARGET]
    return reduce(jnp.bitwise_or, packed)


def _cells(rows: jax.Array, columns: jax.Array) -> jax.Array:
    row, column = (x.astype(jnp.uint32) & np.uint32(LARGEST_SIDE - 1) for x in (rows, columns))
    return (row << _SIDE_BITS) | column


def _places(cells: jax.Array) -> jax.Array:
    """Return the rows and columns of packed cells (K,), uint32 (K, 2)."""
    return (cells[:, None] >> np.array([_SIDE_BITS, 0], np.uint32)) & np.uint32(LARGEST_SIDE - 1)


def _join(scalars: list[jax.Array]) -> jax.Array:
    """Stack scalars into an array (K,), by selects: XLA fuses these better than a concatenation."""
    result = jnp.broadcast_to(scalars[-1], len(scalars))
    for k, scalar in enumerate(scalars[:-1]):
        result = jnp.where(np.arange(len(scalars)) == k, scalar, result)
    return result


def breaks_a_rule(attempt: Step) -> jax.Array:
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


def _losers(executed: jax.Array, attempt: Step) -> jax.Array:
    """Return the agents that break a rule, except the winners of contested cells; bool (K,)."""
    K = executed.shape[0]
    same_cell = ~any_of(attempt.positions[:, None] != attempt.positions[None, :])
    contest = same_cell & attempt.vertex_conflict[:, None] & attempt.vertex_conflict[None, :]
    agents = jnp.arange(K)
    # A waiting agent keeps its cell, whatever its index.
    stays = executed == Action.WAIT
    ahead = stays[None, :] | (agents[None, :] < agents[:, None])
    loses = any_of(contest & ahead & ~jnp.eye(K, dtype=bool))
    return attempt.off_board | attempt.hole | attempt.swapping_conflict | loses
