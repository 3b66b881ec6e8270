"""The lake with agents by name: dictionaries of observations, actions, rewards and ends."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxlake.environment.lake_environment import Info, LakeEnvironment
from jaxlake.environment.observations import NUM_ACTIONS
from jaxlake.environment.params import EnvParams, EnvState
from jaxlake.environment.spaces import Box, Discrete, Space

ByAgent = dict[str, Any]
"""One value for each name in `AgentDictionaryLake.agents`."""


class AgentDictionaryLake:
    """A `LakeEnvironment` under the interface of JaxMARL: agents agent_0 to agent_(K-1).

    `step` starts the next episode where one has ended, as in JaxMARL: all agents end together, and
    `dones["__all__"]` says so. A reward of the team is every agent's reward.

    Raises:
        ValueError: the observation has no row per agent, as `FlatAgents` has.
    """

    name = LakeEnvironment.name

    def __init__(self, environment: LakeEnvironment, params: EnvParams) -> None:
        self.environment = environment
        self.params = params
        self.num_agents = int(params.instances.agent_mask.shape[-1])
        self.agents = [f"agent_{k}" for k in range(self.num_agents)]
        seen = environment.observation_space(params)
        if not isinstance(seen, Box) or seen.shape[:1] != (self.num_agents,):
            raise ValueError(
                f"observation: got {environment.observation}, one whose space is a Box of shape "
                f"({self.num_agents}, ...) is needed, such as FlatAgents()"
            )
        row = Box(seen.low, seen.high, seen.shape[1:], seen.dtype)
        self.observation_spaces: dict[str, Any] = dict.fromkeys(self.agents, row)
        self.action_spaces: dict[str, Any] = dict.fromkeys(self.agents, Discrete(NUM_ACTIONS))

    @property
    def agent_classes(self) -> dict[str, list[str]]:
        """All agents are of one kind."""
        return {"agents": list(self.agents)}

    def reset(self, key: jax.Array) -> tuple[ByAgent, EnvState]:
        """Start an episode: (observations, state)."""
        seen, state = self.environment.reset(key, self.params)
        return self._observations(seen), state

    def step(
        self, key: jax.Array, state: EnvState, actions: ByAgent, reset_state: EnvState | None = None
    ) -> tuple[ByAgent, EnvState, ByAgent, ByAgent, Info]:
        """Make one step; where the episode ends, start the next one, at `reset_state` if given.

        Actions are int () or (1,). Returns (observations, state, rewards, dones, info); `info` is
        that of `LakeEnvironment.step`.
        """
        seen, following, reward, terminated, truncated, info = self.environment.step(
            key, state, self._joint(actions), self.params
        )
        done = terminated | truncated
        if reset_state is not None:
            following = jax.tree.map(
                lambda again, on: jnp.where(done, again, on), reset_state, following
            )
            seen = self.environment.observe(following, self.params)
        return self._returned(seen, following, reward, done, info)

    def step_env(
        self, key: jax.Array, state: EnvState, actions: ByAgent
    ) -> tuple[ByAgent, EnvState, ByAgent, ByAgent, Info]:
        """Make one step without a new start: see `LakeEnvironment.step_env`.

        `info` also holds `terminated` and `truncated`, bool ().
        """
        seen, state, reward, terminated, info = self.environment.step_env(
            key, state, self._joint(actions), self.params
        )
        info = {**info, "terminated": terminated, "truncated": state.truncated}
        return self._returned(seen, state, reward, terminated | state.truncated, info)

    def get_obs(self, state: EnvState) -> ByAgent:
        """Give what the agents see of a state."""
        return self._observations(self.environment.observe(state, self.params))

    def get_avail_actions(self, state: EnvState) -> ByAgent:
        """Say which actions lead neither off the board nor onto a hole: bool (5,) each."""
        return self._by_agent(self.environment.action_mask(state, self.params))

    def observation_space(self, agent: str) -> Space:
        """Give the space of an agent's observations."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Space:
        """Give the space of an agent's actions."""
        return self.action_spaces[agent]

    def _observations(self, seen: jax.Array) -> ByAgent:
        return self._by_agent(seen)

    def _info(self, info: Info) -> Info:
        return info

    def _joint(self, actions: ByAgent) -> jax.Array:
        return jnp.stack([_number(agent, actions[agent]) for agent in self.agents])

    def _by_agent(self, rows: jax.Array) -> ByAgent:
        return {agent: rows[k] for k, agent in enumerate(self.agents)}

    def _returned(
        self, seen: jax.Array, state: EnvState, reward: jax.Array, done: jax.Array, info: Info
    ) -> tuple[ByAgent, EnvState, ByAgent, ByAgent, Info]:
        rewards = self._by_agent(jnp.broadcast_to(reward, (self.num_agents,)))
        dones = {**dict.fromkeys(self.agents, done), "__all__": done}
        return self._observations(seen), state, rewards, dones, self._info(info)


def _number(agent: str, action: Any) -> jax.Array:
    action = jnp.asarray(action)
    if action.size != 1:
        raise ValueError(f"actions[{agent!r}]: got shape {action.shape}, () or (1,) is needed")
    return action.reshape(())
