"""JaxMARL adapter, with JaxMARL's base class and spaces."""

import math

import jax
import jax.numpy as jnp
from jaxmarl.environments import spaces
from jaxmarl.environments.multi_agent_env import MultiAgentEnv

from jaxlake.environment.agent_dictionary import AgentDictionaryLake, ByAgent
from jaxlake.environment.lake_environment import Info, LakeEnvironment
from jaxlake.environment.params import EnvParams, EnvState
from jaxlake.environment.spaces import convert_spaces


class JaxMarlLake(AgentDictionaryLake, MultiAgentEnv):  # type: ignore[misc]
    """An `AgentDictionaryLake` that works with JaxMARL's wrappers and algorithms.

    JaxMARL's algorithms expect one number per agent in every entry of `info`, so entries are
    broadcast to (K,) and `final_observation` is left out. Observations also hold `world_state`,
    the concatenated observations of all agents, for centralised critics as in JaxMARL's SMAX.
    """

    def __init__(self, environment: LakeEnvironment, params: EnvParams) -> None:
        super().__init__(environment, params)
        self.observation_spaces = convert_spaces(self.observation_spaces, spaces)
        self.action_spaces = convert_spaces(self.action_spaces, spaces)

    @property
    def world_state_size(self) -> int:
        """The length of the world state."""
        return sum(math.prod(space.shape) for space in self.observation_spaces.values())

    def get_world_state(self, state: EnvState) -> jax.Array:
        """Return the concatenated observations of all agents, (world_state_size,)."""
        return self.get_obs(state)["world_state"]

    def _split_observation(self, observation: jax.Array) -> ByAgent:
        return {**self._key_by_agent(observation), "world_state": observation.reshape(-1)}

    def _convert_info(self, info: Info) -> Info:
        return {
            name: jnp.broadcast_to(value, (self.num_agents,))
            for name, value in info.items()
            if name != "final_observation"
        }
