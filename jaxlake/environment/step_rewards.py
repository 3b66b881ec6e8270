"""Rewards of the environment: functions of one transition."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxlake.board.dynamics import Step, any_of
from jaxlake.environment.conflict_policies import breaks_a_rule


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Transition:
    """All that a reward may depend on. What a reward doesn't read is not computed under jit."""

    before: jax.Array  # int8 (K, 2), where the agents stood
    after: jax.Array  # int8 (K, 2), where they stand
    goals: jax.Array  # int8 (K, 2)
    num_away: jax.Array  # int32 (), agents of the mask that are not at their goals
    agent_mask: jax.Array  # bool (K,)
    actions: jax.Array  # int8 (K,), as they were given
    executed: jax.Array  # int8 (K,), as they were carried out
    attempt: Step  # which rules the actions broke as they were given
    failed: jax.Array  # bool (), a broken rule ends the episode
    solved: jax.Array  # bool (), all agents are at their goals
    time: jax.Array  # int32 (), steps made, this one included


RewardFunction = Callable[[Transition], jax.Array]
"""Gives float32 () for the team, or float32 (K,), one reward per agent."""


def team_reward(transition: Transition) -> jax.Array:
    """Reward the team (the default): 1 when all agents reach their goals, -1 for a broken rule.

    Every other step costs 0.01 times the share of the agents that are not at their goals, so that
    shorter plans are worth more.
    """
    # Python's sum adds agent by agent: see `any_of`.
    agents = jnp.maximum(sum(transition.agent_mask.astype(jnp.float32)), 1)
    share = transition.num_away.astype(jnp.float32) / agents
    cost = jnp.float32(-0.01) * share
    return jnp.where(
        transition.failed, jnp.float32(-1), jnp.where(transition.solved, jnp.float32(1), cost)
    )


def sparse_reward(transition: Transition) -> jax.Array:
    """Reward the team with 1 when all agents reach their goals, and 0 otherwise."""
    return transition.solved.astype(jnp.float32)


def agent_reward(transition: Transition) -> jax.Array:
    """Reward each agent: float32 (K,).

    1 for entering the goal, -1 for leaving it, 0 outside the mask. Breaking a rule is -1 for the
    agents involved where it ends the episode, and elsewhere for those of them that are held back.
    """
    at_goal = ~any_of(transition.after != transition.goals)
    was_at_goal = ~any_of(transition.before != transition.goals)
    gained = at_goal.astype(jnp.float32) - was_at_goal.astype(jnp.float32)
    held_back = transition.executed != transition.actions
    at_fault = breaks_a_rule(transition.attempt) & (held_back | transition.failed)
    reward = jnp.where(at_fault, jnp.float32(-1), gained)
    return jnp.where(transition.agent_mask, reward, jnp.float32(0))
