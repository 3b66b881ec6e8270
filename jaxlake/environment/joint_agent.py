"""Single-agent interface with default parameters: one discrete action moves all agents."""

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
from jaxlake.runtime.random_keys import to_typed_key

MAX_JOINT_AGENTS = 5
"""Largest number of agents; five agents have 5**5 = 3,125 joint actions."""


class JointAgentLake:
    """A `LakeEnvironment` with one discrete action and the gymnax 1.0 interface.

    In joint action a, agent k takes action a // 5**k % 5; see `joint_action`.

    Args:
        environment: the environment.
        params: the default parameters; every method accepts others.

    Raises:
        ValueError: there are more agents than `MAX_JOINT_AGENTS`.
    """

    name = LakeEnvironment.name

    def __init__(self, environment: LakeEnvironment, params: EnvParams) -> None:
        self.environment = environment
        self._default_params = params
        if self.num_agents > MAX_JOINT_AGENTS:
            raise ValueError(
                f"params must have at most {MAX_JOINT_AGENTS} agents, got {self.num_agents}"
            )

    @property
    def default_params(self) -> EnvParams:
        """The parameters of calls that pass none."""
        return self._default_params

    @property
    def num_agents(self) -> int:
        """The number of agents, K."""
        return int(self.default_params.instances.agent_mask.shape[-1])

    @property
    def num_actions(self) -> int:
        """The number of joint actions, 5**K."""
        return NUM_ACTIONS**self.num_agents

    def reset(self, key: jax.Array, params: EnvParams | None = None) -> tuple[Any, EnvState]:
        """Start an episode; see `LakeEnvironment.reset`."""
        return self.environment.reset(to_typed_key(key), self._params_or_default(params))

    reset_env = reset

    def step(
        self, key: jax.Array, state: EnvState, action: Any, params: EnvParams | None = None
    ) -> tuple[Any, ...]:
        """Make one step with a joint action, int (); rewards are summed over agents.

        See `LakeEnvironment.step`.
        """
        return _step_jointly(
            self.environment, "step", key, state, action, self._params_or_default(params)
        )

    def step_env(
        self, key: jax.Array, state: EnvState, action: Any, params: EnvParams | None = None
    ) -> tuple[Any, ...]:
        """Make one step without resetting; see `step` and `LakeEnvironment.step_env`."""
        return _step_jointly(
            self.environment, "step_env", key, state, action, self._params_or_default(params)
        )

    def observe(
        self, key: jax.Array, state: EnvState, action: Any, params: EnvParams | None = None
    ) -> Any:
        """Return the observation of a state; the key and the action are ignored."""
        return self.environment.observe(state, self._params_or_default(params))

    def is_terminated(self, state: EnvState, params: EnvParams | None = None) -> jax.Array:
        """Return whether a state of `step_env` has ended by the rules: bool ()."""
        return state.terminated

    def is_truncated(self, state: EnvState, params: EnvParams | None = None) -> jax.Array:
        """Return whether a state of `step_env` has reached the time limit: bool ()."""
        return state.truncated

    def action_mask(self, state: EnvState, params: EnvParams | None = None) -> jax.Array:
        """Return the mask of joint actions with only safe moves, bool (5**K,)."""
        agent_masks = self.environment.action_mask(state, self._params_or_default(params))
        actions = split_joint_action(np.arange(self.num_actions), self.num_agents)
        return jnp.all(agent_masks[np.arange(self.num_agents), actions], axis=-1)

    def action_space(self, params: EnvParams | None = None) -> Space:
        """Return the space of joint actions, int32 ()."""
        return Discrete(self.num_actions)

    def observation_space(self, params: EnvParams | None = None) -> Space:
        """Return the space of observations."""
        return self.environment.observation_space(self._params_or_default(params))

    def _params_or_default(self, params: EnvParams | None) -> EnvParams:
        return self._default_params if params is None else params


def split_joint_action(action: Any, num_agents: int) -> jax.Array:
    """Split joint actions into the actions of the agents.

    Args:
        action: int (...), joint actions from 0 to 5**K - 1.
        num_agents: K.

    Returns:
        int8 (..., K). For a joint action out of range, all agents get the invalid action 5, which
        leads off the board.

    Raises:
        ValueError: the actions are not integers.
    """
    action = as_actions(action)
    if not jnp.issubdtype(action.dtype, jnp.integer):
        raise ValueError(f"action must have an integer dtype, got {action.dtype}")
    powers = NUM_ACTIONS ** np.arange(num_agents, dtype=np.int32)
    digits = action.astype(jnp.int32)[..., None] // powers % NUM_ACTIONS
    is_valid = (action >= 0) & (action < NUM_ACTIONS**num_agents)
    return jnp.where(is_valid[..., None], digits, NUM_ACTIONS).astype(jnp.int8)


def joint_action(actions: Any) -> jax.Array:
    """Combine the agents' actions, int (..., K), into joint actions, int32 (...)."""
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
    if not isinstance(state, EnvState):
        raise TypeError("state must be an EnvState, as reset and step return")
    actions = split_joint_action(action, state.positions.shape[-2])
    observation, state, reward, *rest = getattr(environment, method)(
        to_typed_key(key), state, actions, params
    )
    return observation, state, jnp.sum(reward), *rest
