"""The lake as an environment for reinforcement learning, under the contract of gymnax 1.0.

env, params = make("MAPF-FrozenLake-10x10-4ag-v0")
observation, state = env.reset(key, params)
observation, state, reward, terminated, truncated, info = env.step(key, state, actions, params)
"""

from jaxlake.board.dynamics import action_mask as action_mask
from jaxlake.environment.adapters import INTERFACES as INTERFACES
from jaxlake.environment.adapters import adapt as adapt
from jaxlake.environment.adapters import make_for as make_for
from jaxlake.environment.agent_dictionary import AgentDictionaryLake as AgentDictionaryLake
from jaxlake.environment.conflict_policies import ConflictPolicy as ConflictPolicy
from jaxlake.environment.conflict_policies import ResolvedAction as ResolvedAction
from jaxlake.environment.conflict_policies import resolve as resolve
from jaxlake.environment.joint_agent import JointAgentLake as JointAgentLake
from jaxlake.environment.joint_agent import joint_action as joint_action
from jaxlake.environment.joint_agent import split_joint_action as split_joint_action
from jaxlake.environment.lake_environment import LakeEnvironment as LakeEnvironment
from jaxlake.environment.observations import AgentCentred as AgentCentred
from jaxlake.environment.observations import AgentView as AgentView
from jaxlake.environment.observations import BoardView as BoardView
from jaxlake.environment.observations import Compact as Compact
from jaxlake.environment.observations import CompactView as CompactView
from jaxlake.environment.observations import Flat as Flat
from jaxlake.environment.observations import FlatAgents as FlatAgents
from jaxlake.environment.observations import Observation as Observation
from jaxlake.environment.observations import Planes as Planes
from jaxlake.environment.observations import unpack_rows as unpack_rows
from jaxlake.environment.params import EnvParams as EnvParams
from jaxlake.environment.params import EnvState as EnvState
from jaxlake.environment.params import env_params as env_params
from jaxlake.environment.registry import LakeSpec as LakeSpec
from jaxlake.environment.registry import make as make
from jaxlake.environment.registry import register as register
from jaxlake.environment.registry import registered as registered
from jaxlake.environment.registry import spec as spec
from jaxlake.environment.spaces import Box as Box
from jaxlake.environment.spaces import Discrete as Discrete
from jaxlake.environment.spaces import Space as Space
from jaxlake.environment.spaces import Tree as Tree
from jaxlake.environment.step_rewards import RewardFunction as RewardFunction
from jaxlake.environment.step_rewards import Transition as Transition
from jaxlake.environment.step_rewards import agent_reward as agent_reward
from jaxlake.environment.step_rewards import sparse_reward as sparse_reward
from jaxlake.environment.step_rewards import team_reward as team_reward
