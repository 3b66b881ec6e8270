"""Gymnax adapter, with gymnax's base class and spaces."""

from typing import Any

import jax
from gymnax.environments import spaces
from gymnax.environments.environment import Environment

from jaxlake.environment.joint_agent import JointAgentLake
from jaxlake.environment.lake_environment import LakeEnvironment
from jaxlake.environment.params import EnvParams, EnvState
from jaxlake.environment.spaces import convert_space


class GymnaxLake(JointAgentLake, Environment):
    """A `JointAgentLake` that works with gymnax's wrappers and rejax.

    Raises:
        ValueError: the observation is not a single array, or as for `JointAgentLake`.
    """

    def __init__(self, environment: LakeEnvironment, params: EnvParams) -> None:
        super().__init__(environment, params)
        self.observation_space()

    def action_space(self, params: EnvParams | None = None) -> Any:
        """Return gymnax's space of joint actions."""
        return convert_space(super().action_space(params), spaces)

    def observation_space(self, params: EnvParams | None = None) -> Any:
        """Return gymnax's space of observations."""
        return convert_space(super().observation_space(params), spaces)


class FiveValueGymnaxLake(GymnaxLake):
    """A `GymnaxLake` whose `step` returns five values, for rejax 0.1 and gymnax below 1.0."""

    def step(
        self, key: jax.Array, state: EnvState, action: Any, params: EnvParams | None = None
    ) -> tuple[Any, ...]:
        """Make one step and return (observation, state, reward, done, info)."""
        observation, state, reward, terminated, truncated, info = super().step(
            key, state, action, params
        )
        return observation, state, reward, terminated | truncated, info
