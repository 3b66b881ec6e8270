"""The lake as an environment of JaxMARL: its base class and its spaces."""

import jax.numpy as jnp
from jaxmarl.environments import spaces
from jaxmarl.environments.multi_agent_env import MultiAgentEnv

from jaxlake.environment.agent_dictionary import AgentDictionaryLake
from jaxlake.environment.lake_environment import Info, LakeEnvironment
from jaxlake.environment.params import EnvParams
from jaxlake.environment.spaces import convert_space


class JaxMarlLake(AgentDictionaryLake, MultiAgentEnv):  # type: ignore[misc]
    """An `AgentDictionaryLake` that JaxMARL's wrappers and algorithms take for one of its own.

    In JaxMARL's algorithms every value of `info` has one number per agent. So has it here, (K,):
    what `LakeEnvironment.step` says once for all agents is repeated, and there is no
    `final_observation`.
    """

    def __init__(self, environment: LakeEnvironment, params: EnvParams) -> None:
        super().__init__(environment, params)
        self.observation_spaces = {
            agent: convert_space(space, spaces) for agent, space in self.observation_spaces.items()
        }
        self.action_spaces = {
            agent: convert_space(space, spaces) for agent, space in self.action_spaces.items()
        }

    def _info(self, info: Info) -> Info:
        return {
            name: jnp.broadcast_to(value, (self.num_agents,))
            for name, value in info.items()
            if name != "final_observation"
        }
