"""The lake as an environment of JaxMARL: its base class and its spaces."""

import numpy as np
from jaxmarl.environments import spaces
from jaxmarl.environments.multi_agent_env import MultiAgentEnv

from jaxlake.environment.agent_dictionary import AgentDictionaryLake
from jaxlake.environment.lake_environment import LakeEnvironment
from jaxlake.environment.params import EnvParams


class JaxMarlLake(AgentDictionaryLake, MultiAgentEnv):  # type: ignore[misc]
    """An `AgentDictionaryLake` that JaxMARL's wrappers take for one of its own."""

    def __init__(self, environment: LakeEnvironment, params: EnvParams) -> None:
        super().__init__(environment, params)
        self.observation_spaces = {
            agent: spaces.Box(space.low, space.high, space.shape, np.dtype(space.dtype))
            for agent, space in self.observation_spaces.items()
        }
        self.action_spaces = {
            agent: spaces.Discrete(space.n) for agent, space in self.action_spaces.items()
        }
