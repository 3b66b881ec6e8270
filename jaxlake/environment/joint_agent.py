"""The lake for one agent that moves all agents: one action number, default parameters."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.dynamics import as_actions
from jaxlake.environment.lake_environment import LakeEnvironment
from jaxlake.environment.observations import NUM_ACTIONS
from jaxlake.environment.params import EnvParams, EnvState
from jaxlake.environment.spaces import Discrete, Space

MOST_JOINT_AGENTS = 5
"""Agents up to which a joint action is one number: 5**5 = 3,125 of them."""


class JointAgentLake:
    """A `LakeEnvironment` with one discrete action, under the whole contract of gymnax 1.0.

    Joint action a lets agent k take action a // 5**k % 5: see `joint_action`. The parameters that
    are bound here are `default_params`, and every method takes others instead.

    Raises:
        ValueError: more agents than `MOST_JOINT_AGENTS`.
    """

    name = LakeEnvironment.name

    def __init__(self, environment: LakeEnvironment, params: EnvParams) -> None:
        self.environment = environment
        self._default_params = params
        if self.num_agents > MOST_JOINT_AGENTS:
            raise ValueError(
                f"params: got {self.num_agents} agents, a joint action as one number takes "
                f"1 to {MOST_JOINT_AGENTS}"
            )

    @property
    def default_params(self) -> EnvParams:
        """The parameters that apply where none are given."""
        return self._default_params

    @property
    def num_agents(self) -> int:
        """K, how many agents one action moves."""
        return int(self.default_params.instances.agent_mask.shape[-1])

    @property
    def num_actions(self) -> int:
        """How many joint actions there are: 5**K."""
        return NUM_ACTIONS**self.num_agents

    def reset(self, key: jax.Array, params: EnvParams | None = None) -> tuple[Any, EnvState]:
        """Do what `LakeEnvironment.reset` does."""
        return self.environment.reset(key, self._given(params))

    reset_env = reset

    def step(
        self, key: jax.Array, state: EnvState, action: Any, params: EnvParams | None = None
    ) -> tuple[Any, ...]:
        """Do what `LakeEnvironment.step` does, with an int32 () action and the sum of rewards."""
        return _step_jointly(self.environment, "step", key, state, action, self._given(params))

    def step_env(
        self, key: jax.Array, state: EnvState, action: Any, params: EnvParams | None = None
    ) -> tuple[Any, ...]:
        """Do what `LakeEnvironment.step_env` does, likewise."""
        return _step_jointly(self.environment, "step_env", key, state, action, self._given(params))

    def observe(
        self, key: jax.Array, state: EnvState, action: Any, params: EnvParams | None = None
    ) -> Any:
        """Give the observation of a state; neither the key nor the action matters."""
        return self.environment.observe(state, self._given(params))

    def is_terminated(self, state: EnvState, params: EnvParams | None = None) -> jax.Array:
        """Say whether a state of `step_env` has ended by the rules: bool ()."""
        return state.terminated

    def is_truncated(self, state: EnvState, params: EnvParams | None = None) -> jax.Array:
        """Say whether a state of `step_env` has reached the time limit: bool ()."""
        return state.truncated

    def action_mask(self, state: EnvState, params: EnvParams | None = None) -> jax.Array:
        """Say which joint actions lead no agent off the board or onto a hole: bool (5**K,)."""
        alone = self.environment.action_mask(state, self._given(params))
        actions = split_joint_action(np.arange(self.num_actions), self.num_agents)
        return jnp.all(alone[np.arange(self.num_agents), actions], axis=-1)

    def action_space(self, params: EnvParams | None = None) -> Space:
        """Give the space of joint actions, int32 ()."""
        return Discrete(self.num_actions)

    def observation_space(self, params: EnvParams | None = None) -> Space:
        """Give the space of observations."""
        return self.environment.observation_space(self._given(params))

    def _given(self, params: EnvParams | None) -> EnvParams:
        return self._default_params if params is None else params


def split_joint_action(action: Any, num_agents: int) -> jax.Array:
    """Give the agents' actions, int8 (..., K), of joint actions in 0 to 5**K - 1, int (...).

    Any other number lets all agents take 5, which is no action: it leads off the board.

    Raises:
        ValueError: the actions are no whole numbers.
    """
    action = as_actions(action)
    if not jnp.issubdtype(action.dtype, jnp.integer):
        raise ValueError(f"action: got {action.dtype}, a whole number is needed")
    powers = NUM_ACTIONS ** np.arange(num_agents, dtype=np.int32)
    digits = action.astype(jnp.int32)[..., None] // powers % NUM_ACTIONS
    known = (action >= 0) & (action < NUM_ACTIONS**num_agents)
    return jnp.where(known[..., None], digits, NUM_ACTIONS).astype(jnp.int8)


def joint_action(actions: Any) -> jax.Array:
    """Give the joint action, int32 (...), of the agents' actions, int (..., K)."""
    actions = jnp.asarray(actions, jnp.int32)
    return jnp.sum(actions * NUM_ACTIONS ** np.arange(actions.shape[-1]), axis=-1, dtype=jnp.int32)


@partial(jax.jit, static_argnums=(0, 1))
def _step_jointly(
    environment: LakeEnvironment,
    method: str,
    key: jax.Array,
    state: EnvState,
    action: Any,
    params: EnvParams,
) -> tuple[Any, ...]:
    actions = split_joint_action(action, state.positions.shape[-2])
    seen, state, reward, *rest = getattr(environment, method)(key, state, actions, params)
    return seen, state, jnp.sum(reward), *rest
