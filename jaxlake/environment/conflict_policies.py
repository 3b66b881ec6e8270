"""What happens when a joint action breaks a rule: fail, block both, or give way by priority."""

from dataclasses import dataclass
from enum import Enum

import jax
import jax.numpy as jnp

from jaxlake.dynamics import Action, Step, step
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

    With BLOCK_BOTH and PRIORITY agents are held back in rounds until `step` finds nothing wrong.
    The first round stops whoever breaks a rule or, with PRIORITY, loses a cell to a lower index;
    the later ones stop whoever follows an agent that stays, so that at most K + 1 are needed.

    The policy is static; actions are int8 (K,), positions int8 (K, 2), distinct free cells for
    agents in the mask.
    """
    attempt = step(instance, positions, actions)
    if policy is ConflictPolicy.FAIL:
        failed = jnp.any(breaks_a_rule(attempt))
        return ResolvedAction(attempt, actions, attempt.positions, failed)
    wait = jnp.int8(Action.WAIT)

    def hold_back(state: tuple[jax.Array, Step]) -> tuple[jax.Array, Step]:
        executed, moved = state
        held = breaks_a_rule(moved)
        if policy is ConflictPolicy.PRIORITY:
            held = _beaten(executed, moved)
        executed = jnp.where(held, wait, executed)
        return executed, step(instance, positions, executed)

    executed, moved = jax.lax.while_loop(
        lambda state: jnp.any(breaks_a_rule(state[1])), hold_back, (actions, attempt)
    )
    return ResolvedAction(attempt, executed, moved.positions, jnp.bool_(False))


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
        present = jnp.any(flags)
        kind = jnp.where(present, jnp.int8(failure), kind)
        agent = jnp.where(present, jnp.argmax(flags).astype(jnp.int8), agent)
    return kind, agent


def _beaten(executed: jax.Array, moved: Step) -> jax.Array:
    """The agents that break a rule, without those that win the cell they share with others."""
    K = executed.shape[0]
    same_cell = jnp.all(moved.positions[:, None] == moved.positions[None, :], axis=-1)
    contest = same_cell & moved.vertex_conflict[:, None] & moved.vertex_conflict[None, :]
    agents = jnp.arange(K)
    # An agent that stays can't be sent away, whatever its index.
    stays = executed == Action.WAIT
    ahead = stays[None, :] | (agents[None, :] < agents[:, None])
    beaten = jnp.any(contest & ahead & ~jnp.eye(K, dtype=bool), axis=-1)
    return moved.off_board | moved.hole | moved.swapping_conflict | beaten
