"""Multi-agent interface with dictionaries keyed by agent name."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jaxlake.environment.lake_environment import Info, LakeEnvironment
from jaxlake.environment.observations import NUM_ACTIONS
from jaxlake.environment.params import EnvParams, EnvState
from jaxlake.environment.spaces import Box, Discrete, Space
from jaxlake.runtime.random_keys import to_typed_key

ByAgent = dict[str, Any]
"""One value for each name in `AgentDictionaryLake.agents`."""


class AgentDictionaryLake:
    """A `LakeEnvironment` with the JaxMARL interface, for agents agent_0 to agent_(K-1).

    As in JaxMARL, `step` resets finished episodes. An episode ends for all agents at the same time,
    and `dones["__all__"]` is then True. Every agent receives the team reward.

    Args:
        environment: the environment; its observation must have one row per agent, as `FlatAgents`.
        params: its parameters.

    Raises:
        ValueError: the observation does not have one row per agent.
    """

    name = LakeEnvironment.name

    def __init__(self, environment: LakeEnvironment, params: EnvParams) -> None:
        self.environment = environment
        self.params = params
        self.num_agents = int(params.instances.agent_mask.shape[-1])
        self.agents = [f"agent_{k}" for k in range(self.num_agents)]
        space = environment.observation_space(params)
        if not isinstance(space, Box) or space.shape[:1] != (self.num_agents,):
            raise ValueError(
                f"the space of observation must be a Box of shape ({self.num_agents}, ...), as for "
                f"FlatAgents(), got {environment.observation}"
            )
        agent_space = Box(space.low, space.high, space.shape[1:], space.dtype)
        self.observation_spaces: dict[str, Any] = dict.fromkeys(self.agents, agent_space)
        self.action_spaces: dict[str, Any] = dict.fromkeys(self.agents, Discrete(NUM_ACTIONS))

    @property
    def agent_classes(self) -> dict[str, list[str]]:
        """The agents by class; there is a single class."""
        return {"agents": list(self.agents)}

    def reset(self, key: jax.Array) -> tuple[ByAgent, EnvState]:
        """Start an episode and return (observations, state)."""
        observation, state = self.environment.reset(to_typed_key(key), self.params)
        return self._split_observation(observation), state

    def step(
        self, key: jax.Array, state: EnvState, actions: ByAgent, reset_state: EnvState | None = None
    ) -> tuple[ByAgent, EnvState, ByAgent, ByAgent, Info]:
        """Make one step, and reset the episode if it ends.

        Args:
            key: typed PRNG key.
            state: the current state.
            actions: one action per agent, int () or (1,).
            reset_state: the state to reset to; a new start if None.

        Returns:
            (observations, state, rewards, dones, info), with `info` from `LakeEnvironment.step`.
        """
        observation, next_state, reward, terminated, truncated, info = self.environment.step(
            to_typed_key(key), state, self._stack_actions(actions), self.params
        )
        is_done = terminated | truncated
        if reset_state is not None:
            next_state = jax.tree.map(
                lambda start, leaf: jnp.where(is_done, start, leaf), reset_state, next_state
            )
            observation = self.environment.observe(next_state, self.params)
        return self._split_by_agent(observation, next_state, reward, is_done, info)

    def step_env(
        self, key: jax.Array, state: EnvState, actions: ByAgent
    ) -> tuple[ByAgent, EnvState, ByAgent, ByAgent, Info]:
        """Make one step without resetting; see `LakeEnvironment.step_env`.

        `info` also holds `terminated` and `truncated`, bool ().
        """
        observation, state, reward, terminated, info = self.environment.step_env(
            key, state, self._stack_actions(actions), self.params
        )
        info = {**info, "terminated": terminated, "truncated": state.truncated}
        return self._split_by_agent(observation, state, reward, terminated | state.truncated, info)

    def get_obs(self, state: EnvState) -> ByAgent:
        """Return the observations of a state, by agent."""
        return self._split_observation(self.environment.observe(state, self.params))

    def get_avail_actions(self, state: EnvState) -> ByAgent:
        """Return each agent's mask of actions that stay on the board and avoid holes, bool (5,)."""
        return self._key_by_agent(self.environment.action_mask(state, self.params))

    def observation_space(self, agent: str) -> Space:
        """Return the space of an agent's observations."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Space:
        """Return the space of an agent's actions."""
        return self.action_spaces[agent]

    def _split_observation(self, observation: jax.Array) -> ByAgent:
        return self._key_by_agent(observation)

    def _convert_info(self, info: Info) -> Info:
        return info

    def _stack_actions(self, actions: ByAgent) -> jax.Array:
        if not isinstance(actions, Mapping) or not actions.keys() >= set(self.agents):
            names = ", ".join(self.agents)
            raise ValueError(f"actions must be a dictionary with {names}, got {actions!r:.100}")
        return jnp.stack([_to_scalar(agent, actions[agent]) for agent in self.agents])

    def _key_by_agent(self, rows: jax.Array) -> ByAgent:
        return {agent: rows[k] for k, agent in enumerate(self.agents)}

    def _split_by_agent(
        self,
        observation: jax.Array,
        state: EnvState,
        reward: jax.Array,
        is_done: jax.Array,
        info: Info,
    ) -> tuple[ByAgent, EnvState, ByAgent, ByAgent, Info]:
        rewards = self._key_by_agent(jnp.broadcast_to(reward, (self.num_agents,)))
        dones = {**dict.fromkeys(self.agents, is_done), "__all__": is_done}
        return self._split_observation(observation), state, rewards, dones, self._convert_info(info)


def _to_scalar(agent: str, action: Any) -> jax.Array:
    action = jnp.asarray(action)
    if action.size != 1:
        raise ValueError(f"actions[{agent!r}] must have shape () or (1,), got {action.shape}")
    return action.reshape(())
