"""The lake as an environment for reinforcement learning, under the contract of gymnax 1.0.

env, params = make("MAPF-FrozenLake-10x10-4ag-v0")
observation, state = env.reset(key, params)
observation, state, reward, terminated, truncated, info = env.step(key, state, actions, params)
"""

from jaxlake.environment.action_masks import action_mask
from jaxlake.environment.conflict_policies import ConflictPolicy, ResolvedAction, resolve
from jaxlake.environment.lake_environment import LakeEnvironment
from jaxlake.environment.observations import (
    AgentCentred,
    AgentView,
    BoardView,
    Compact,
    CompactView,
    Observation,
    Planes,
    Symbols,
    unpack_rows,
)
from jaxlake.environment.params import EnvParams, env_params
from jaxlake.environment.registry import LakeSpec, make, register, registered
from jaxlake.environment.spaces import Box, Space, Tree
from jaxlake.environment.state import EnvState
from jaxlake.environment.step_rewards import (
    RewardFunction,
    Transition,
    agent_reward,
    sparse_reward,
    team_reward,
)

__all__ = [
    "AgentCentred",
    "AgentView",
    "BoardView",
    "Box",
    "Compact",
    "CompactView",
    "ConflictPolicy",
    "EnvParams",
    "EnvState",
    "LakeEnvironment",
    "LakeSpec",
    "Observation",
    "Planes",
    "ResolvedAction",
    "RewardFunction",
    "Space",
    "Symbols",
    "Transition",
    "Tree",
    "action_mask",
    "agent_reward",
    "env_params",
    "make",
    "register",
    "registered",
    "resolve",
    "sparse_reward",
    "team_reward",
    "unpack_rows",
]
