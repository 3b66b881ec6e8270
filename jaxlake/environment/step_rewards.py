"""Reward functions of the environment."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxlake.board.dynamics import Step, any_of
from jaxlake.environment.conflict_policies import breaks_rule


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Transition:
    """The inputs of a reward function. Under jit, unused fields are not computed."""

    before: jax.Array  # int8 (K, 2), positions before the step
    after: jax.Array  # int8 (K, 2), positions after the step
    goals: jax.Array  # int8 (K, 2)
    num_away: jax.Array  # int32 (), enabled agents that are not at their goals
    agent_mask: jax.Array  # bool (K,)
    actions: jax.Array  # int8 (K,), the given actions
    executed: jax.Array  # int8 (K,), the actions after conflict resolution
    attempt: Step  # the step that the given actions would make, with the rules they break
    failed: jax.Array  # bool (), a broken rule ends the episode
    solved: jax.Array  # bool (), all agents are at their goals
    time: jax.Array  # int32 (), steps made, including this one


RewardFunction = Callable[[Transition], jax.Array]
"""Function of a `Transition` that returns a team reward, float32 (), or float32 (K,) per agent."""


def team_reward(transition: Transition) -> jax.Array:
    """Return the default team reward, float32 (): 1 for a solved board, -1 for a failure.

    Every other step costs 0.01 times the fraction of agents that are not at their goals, so
    shorter plans earn more.
    """
    # Python's sum adds agent by agent: see `any_of`.
    num_agents = jnp.maximum(sum(transition.agent_mask.astype(jnp.float32)), 1)
    fraction_away = transition.num_away.astype(jnp.float32) / num_agents
    step_reward = jnp.float32(-0.01) * fraction_away
    reward = jnp.where(transition.solved, jnp.float32(1), step_reward)
    return jnp.where(transition.failed, jnp.float32(-1), reward)


def sparse_reward(transition: Transition) -> jax.Array:
    """Return 1 when all agents reach their goals and 0 otherwise, float32 ()."""
    return transition.solved.astype(jnp.float32)


def agent_reward(transition: Transition) -> jax.Array:
    """Return one reward per agent, float32 (K,).

    An agent gets 1 for entering its goal and -1 for leaving it. An agent that breaks a rule gets
    -1 if the episode ends or the agent is blocked. Agents outside the mask get 0.
    """
    at_goal = ~any_of(transition.after != transition.goals)
    was_at_goal = ~any_of(transition.before != transition.goals)
    goal_reward = at_goal.astype(jnp.float32) - was_at_goal.astype(jnp.float32)
    is_blocked = transition.executed != transition.actions
    at_fault = breaks_rule(transition.attempt) & (is_blocked | transition.failed)
    reward = jnp.where(at_fault, jnp.float32(-1), goal_reward)
    return jnp.where(transition.agent_mask, reward, jnp.float32(0))
