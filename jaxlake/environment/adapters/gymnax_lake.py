"""The lake as an environment of gymnax: its base class and its spaces."""

from typing import Any

import jax
import numpy as np
from gymnax.environments import spaces
from gymnax.environments.environment import Environment

from jaxlake.environment.joint_agent import JointAgentLake
from jaxlake.environment.lake_environment import LakeEnvironment
from jaxlake.environment.params import EnvParams, EnvState
from jaxlake.environment.spaces import Box, Discrete, Space


class GymnaxLake(JointAgentLake, Environment):
    """A `JointAgentLake` that gymnax's wrappers and rejax take for one of gymnax's own.

    Raises:
        ValueError: the observation is no single array, or as for `JointAgentLake`.
    """

    def __init__(self, environment: LakeEnvironment, params: EnvParams) -> None:
        super().__init__(environment, params)
        self.observation_space()

    def action_space(self, params: EnvParams | None = None) -> Any:
        """Give gymnax's space of joint actions."""
        return gymnax_space(super().action_space(params))

    def observation_space(self, params: EnvParams | None = None) -> Any:
        """Give gymnax's space of observations."""
        return gymnax_space(super().observation_space(params))


class FiveValueGymnaxLake(GymnaxLake):
    """A `GymnaxLake` whose `step` returns what gymnax's did before 1.0, as rejax 0.1 expects."""

    def step(
        self, key: jax.Array, state: EnvState, action: Any, params: EnvParams | None = None
    ) -> tuple[Any, ...]:
        """Make one step: (observation, state, reward, done, info)."""
        seen, state, reward, terminated, truncated, info = super().step(key, state, action, params)
        return seen, state, reward, terminated | truncated, info


def gymnax_space(space: Space) -> Any:
    """Convert a space of the lake's into gymnax's.

    Raises:
        ValueError: the space is a `Tree`, which gymnax's wrappers don't take.
    """
    if isinstance(space, Discrete):
        return spaces.Discrete(space.n)
    if isinstance(space, Box):
        return spaces.Box(space.low, space.high, space.shape, np.dtype(space.dtype))
    raise ValueError(f"space: got {space}, Box and Discrete are allowed; Flat() observes a Box")
