"""What happens when a joint action breaks a rule: fail, block both, or give way by priority."""

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

MOST_AGENTS = 8  # of `resolve_from_words`, whose program grows with the square of their number
LARGEST_SIDE = 64  # of a board whose cells fit into a word

_SIDE_BITS = 6
_CELL_BITS = 2 * _SIDE_BITS  # row * LARGEST_SIDE + column
_REAL, _OFF_BOARD, _HOLE, _HOME, _ARRIVES, _HERE = range(6)
_THERE = _HERE + _CELL_BITS


class ConflictPolicy(Enum):
    """What happens when a joint action breaks a rule.

    FAIL: the episode terminates, as a plan does for `jaxlake.verify`.
    BLOCK_BOTH: an agent whose move leaves the board, meets a hole or is part of a vertex or
        swapping conflict stays where it is, and so does, in turn, whoever meant to take its cell.
    PRIORITY: as BLOCK_BOTH, but of several agents moving into one free cell the lowest goes.
    """

    FAIL = "fail"
    BLOCK_BOTH = "block_both"
    PRIORITY = "priority"


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ResolvedAction:
    """A joint action as it was given and as it was carried out."""

    attempt: Step  # what the rules say of the actions as they were given
    executed: jax.Array  # int8 (K,), the actions carried out, WAIT for agents that were held back
    positions: jax.Array  # int8 (K, 2), where the agents stand afterwards
    at_goal: jax.Array  # bool (K,), the agents of the mask that then are at their goals
    num_away: jax.Array  # int32 (), agents of the mask that are not
    failed: jax.Array  # bool (), a rule is broken for good; only ever with FAIL


def conflict_policy(conflict: ConflictPolicy | str) -> ConflictPolicy:
    """Look a conflict policy up by its name, such as "block_both".

    Raises:
        ValueError: `conflict` is neither a `ConflictPolicy` nor the name of one.
    """
    if isinstance(conflict, ConflictPolicy):
        return conflict
    allowed = [policy.value for policy in ConflictPolicy]
    if conflict not in allowed:
        meant = did_you_mean(conflict, allowed)
        raise ValueError(f"conflict: got {conflict!r}, allowed are {allowed}{meant}")
    return ConflictPolicy(conflict)


@partial(jax.jit, static_argnums=0)
def resolve(
    policy: ConflictPolicy | str, instance: Instance, positions: jax.Array, actions: jax.Array
) -> ResolvedAction:
    """Carry out one joint action under a conflict policy.

    The policy is static; actions are int8 (K,), positions int8 (K, 2), distinct free cells for
    agents in the mask.

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
    """Resolve with an axis of agents: the form for CPUs and TPUs."""
    mask = instance.agent_mask
    attempt = step(instance, positions, actions)
    executed, after = actions, attempt.positions
    failed = jnp.bool_(False)
    if policy is ConflictPolicy.FAIL:
        failed = any_of(breaks_a_rule(attempt))
    else:
        stays = breaks_a_rule(attempt)
        if policy is ConflictPolicy.PRIORITY:
            stays = _beaten(actions, attempt)
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
    """Resolve from one word per agent: a GPU runs this form as one kernel."""
    agents, packed = range(len(positions)), _agent_words(instance, positions, actions)
    words = [packed[k] for k in agents]
    mask, off_board, hole, home, arrives = (
        [word & np.uint32(1 << place) != 0 for word in words]
        for place in (_REAL, _OFF_BOARD, _HOLE, _HOME, _ARRIVES)
    )
    cell = np.uint32((1 << _CELL_BITS) - 1)
    here, there = [(word >> _HERE) & cell for word in words], [word >> _THERE for word in words]
    # Whoever meets an agent that waits takes its place, and so stays with it, see below.
    vertex, swapping, beaten = pair_conflicts(here, there, mask)
    broken = off_board, hole, vertex, swapping
    failed, stays = jnp.bool_(False), [jnp.zeros_like(flag) for flag in mask]
    if policy is ConflictPolicy.FAIL:
        failed = reduce(jnp.logical_or, chain(*broken))
    else:
        lost = beaten if policy is ConflictPolicy.PRIORITY else vertex
        stays = [off_board[k] | hole[k] | swapping[k] | lost[k] for k in agents]
        follows = [[mask[i] & mask[j] & (there[i] == here[j]) for j in agents] for i in agents]
        for _ in agents[1:]:  # the longest queue
            held = [[follows[i][j] & stays[j] for j in agents if j != i] for i in agents]
            stays = [reduce(jnp.logical_or, held[i], stays[i]) for i in agents]
    at_goal = [mask[k] & jnp.where(stays[k], home[k], arrives[k]) for k in agents]
    num_away = sum((mask[k] & ~at_goal[k] for k in agents), jnp.int32(0))
    leaves, stay = _join([here[k] != there[k] for k in agents]), _join(stays)
    target = jnp.where(leaves[:, None], _places(_join(there)).astype(positions.dtype), positions)
    return ResolvedAction(
        attempt=Step(target, *map(_join, broken)),
        executed=jnp.where(stay, jnp.int8(Action.WAIT), actions),
        positions=jnp.where(stay[:, None], positions, target),
        at_goal=_join(at_goal),
        num_away=num_away,
        failed=failed,
    )


def _agent_words(instance: Instance, positions: jax.Array, actions: jax.Array) -> jax.Array:
    """Pack what the rules read of each agent, uint32 (K,)."""
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
    packed += [_cells(rows, columns) << _HERE, _cells(to_rows, to_columns) << _THERE]
    return reduce(jnp.bitwise_or, packed)


def _cells(rows: jax.Array, columns: jax.Array) -> jax.Array:
    row, column = (x.astype(jnp.uint32) & np.uint32(LARGEST_SIDE - 1) for x in (rows, columns))
    return (row << _SIDE_BITS) | column


def _places(cells: jax.Array) -> jax.Array:
    """Give rows and columns of cells (K,): uint32 (K, 2)."""
    return (cells[:, None] >> np.array([_SIDE_BITS, 0], np.uint32)) & np.uint32(LARGEST_SIDE - 1)


def _join(scalars: list[jax.Array]) -> jax.Array:
    """Give one array (K,). By selects: XLA fuses a concatenation into fewer other operations."""
    joined = jnp.broadcast_to(scalars[-1], len(scalars))
    for k, scalar in enumerate(scalars[:-1]):
        joined = jnp.where(np.arange(len(scalars)) == k, scalar, joined)
    return joined


def breaks_a_rule(moved: Step) -> jax.Array:
    """Say which agents break a rule: bool (K,)."""
    return moved.off_board | moved.hole | moved.vertex_conflict | moved.swapping_conflict


def first_failure(moved: Step) -> tuple[jax.Array, jax.Array]:
    """Name the failure that `jaxlake.verify` would name: the first in the order of `Failure`.

    Gives it, int8 (), NONE if no rule is broken, and the lowest agent it involves, int8 () or -1.
    """
    kind, agent = jnp.int8(Failure.NONE), jnp.int8(-1)
    for failure, flags in (
        (Failure.SWAPPING_CONFLICT, moved.swapping_conflict),
        (Failure.VERTEX_CONFLICT, moved.vertex_conflict),
        (Failure.HOLE, moved.hole),
        (Failure.OFF_BOARD, moved.off_board),
    ):
        for k in reversed(range(flags.shape[0])):
            kind = jnp.where(flags[k], jnp.int8(failure), kind)
            agent = jnp.where(flags[k], jnp.int8(k), agent)
    return kind, agent


def _beaten(executed: jax.Array, moved: Step) -> jax.Array:
    """The agents that break a rule, without those that win the cell they share with others."""
    K = executed.shape[0]
    same_cell = ~any_of(moved.positions[:, None] != moved.positions[None, :])
    contest = same_cell & moved.vertex_conflict[:, None] & moved.vertex_conflict[None, :]
    agents = jnp.arange(K)
    # An agent that stays can't be sent away, whatever its index.
    stays = executed == Action.WAIT
    ahead = stays[None, :] | (agents[None, :] < agents[:, None])
    beaten = any_of(contest & ahead & ~jnp.eye(K, dtype=bool))
    return moved.off_board | moved.hole | moved.swapping_conflict | beaten
