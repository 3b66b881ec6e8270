"""The lake as an environment of gymnasium: one agent that moves all agents."""

from typing import Any

import gymnasium
import jax
import numpy as np

from jaxlake.environment.joint_agent import JointAgentLake, split_joint_action
from jaxlake.environment.lake_environment import LakeEnvironment
from jaxlake.environment.params import EnvParams, EnvState
from jaxlake.environment.spaces import Box, Discrete, Space
from jaxlake.render import board_text


class GymnasiumLake(gymnasium.Env[np.ndarray, np.int64]):
    """One episode at a time, in NumPy; `render` gives the board as text (render_mode "ansi").

    Action a lets agent k take action a // 5**k % 5. `info` holds `action_mask`: int8 (5**K,), 1 for
    what leads no agent off the board or onto a hole, as `Discrete.sample` takes it; after a step
    also what `LakeEnvironment.step_env` says. An episode doesn't start again by itself.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 2}  # noqa: RUF012

    def __init__(
        self, environment: LakeEnvironment, params: EnvParams, render_mode: str | None = None
    ) -> None:
        if render_mode not in (None, "ansi"):
            raise ValueError(f"render_mode: got {render_mode!r}, allowed are None and 'ansi'")
        self.lake = JointAgentLake(environment, params)
        self.render_mode = render_mode
        self.action_space = gymnasium_space(self.lake.action_space())
        self.observation_space = gymnasium_space(self.lake.observation_space())
        self._mask = jax.jit(self.lake.action_mask)
        self._state: EnvState | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode on a board that gymnasium's random numbers draw from the pool."""
        super().reset(seed=seed)
        key = jax.random.key(int(self.np_random.integers(1 << 32)))
        seen, self._state = self.lake.reset(key)
        return np.array(seen), self._with_mask({})

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Make one step.

        Raises:
            gymnasium.error.ResetNeeded: before the first `reset`.
            ValueError: the action is not in `action_space`.
        """
        state = self._playing()
        action = self._checked(action)
        seen, self._state, reward, terminated, info = self.lake.step_env(
            jax.random.key(0), state, action
        )
        ended, truncated = bool(terminated), bool(self._state.truncated)
        info = self._with_mask(jax.device_get(info))
        return np.array(seen), float(reward), ended, truncated, info

    def render(self) -> str | None:
        """Give the board as text where `render_mode` is "ansi"."""
        if self.render_mode is None:
            return None
        state = self._playing()
        return board_text(self.lake.board(state), state.positions)

    def split(self, action: Any) -> np.ndarray:
        """Give the actions of the agents, int8 (K,), that a joint action stands for.

        Raises:
            ValueError: the action is not in `action_space`.
        """
        return np.asarray(split_joint_action(self._checked(action), self.lake.num_agents))

    def _checked(self, action: Any) -> np.ndarray:
        if not self.lake.action_space().contains(action):
            raise ValueError(
                f"action: got {action!r}, a whole number from 0 to {self.lake.num_actions - 1} is "
                "needed"
            )
        return np.asarray(action)

    def _playing(self) -> EnvState:
        if self._state is None:
            raise gymnasium.error.ResetNeeded("reset() has to come before step() and render()")
        return self._state

    def _with_mask(self, info: dict[str, Any]) -> dict[str, Any]:
        return {**info, "action_mask": np.asarray(self._mask(self._playing())).astype(np.int8)}


def gymnasium_space(space: Space) -> Any:
    """Convert a space of the lake's into gymnasium's.

    Raises:
        ValueError: the space is a `Tree`: choose an observation that is one array.
    """
    if isinstance(space, Discrete):
        return gymnasium.spaces.Discrete(space.n)
    if isinstance(space, Box):
        low, high, dtype = space.low, space.high, np.dtype(space.dtype)
        return gymnasium.spaces.Box(low, high, space.shape, dtype.type)
    raise ValueError(f"space: got {space}, Box and Discrete are allowed; Flat() observes a Box")
