"""What happens when a joint action breaks a rule: fail, block both, or give way by priority."""

from dataclasses import dataclass
from enum import Enum

import jax
import jax.numpy as jnp

from jaxlake.dynamics import Action, Step, any_of, step
from jaxlake.instance import Instance
from jaxlake.verification import Failure


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
    failed: jax.Array  # bool (), a rule is broken for good; only ever with FAIL


def resolve(
    policy: ConflictPolicy, instance: Instance, positions: jax.Array, actions: jax.Array
) -> ResolvedAction:
    """Carry out one joint action under a conflict policy.

    With BLOCK_BOTH and PRIORITY whoever breaks a rule or, with PRIORITY, loses a cell to a lower
    index stays where it is, and so does, in turn, whoever follows an agent that stays. No other
    conflict arises: agents that meant to enter one cell were in conflict from the beginning.

    The policy is static; actions are int8 (K,), positions int8 (K, 2), distinct free cells for
    agents in the mask.
    """
    attempt = step(instance, positions, actions)
    if policy is ConflictPolicy.FAIL:
        failed = any_of(breaks_a_rule(attempt))
        return ResolvedAction(attempt, actions, attempt.positions, failed)
    stays = breaks_a_rule(attempt)
    if policy is ConflictPolicy.PRIORITY:
        stays = _beaten(actions, attempt)
    takes_place = ~any_of(attempt.positions[:, None] != positions[None, :])
    follows = takes_place & instance.agent_mask[:, None] & instance.agent_mask[None, :]
    for _ in range(len(positions) - 1):  # the longest queue
        stays |= any_of(follows & stays[None, :])
    return ResolvedAction(
        attempt,
        executed=jnp.where(stays, jnp.int8(Action.WAIT), actions),
        positions=jnp.where(stays[:, None], positions, attempt.positions),
        failed=jnp.bool_(False),
    )


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
