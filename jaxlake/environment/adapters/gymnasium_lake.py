"""Gymnasium adapter: a single agent that moves all agents."""

from typing import Any

import gymnasium
import jax
import numpy as np

from jaxlake.environment.joint_agent import JointAgentLake
from jaxlake.environment.lake_environment import LakeEnvironment
from jaxlake.environment.params import EnvParams, EnvState
from jaxlake.environment.spaces import convert_space
from jaxlake.render import board_text


class GymnasiumLake(gymnasium.Env[np.ndarray, np.int64]):
    """A `gymnasium.Env` with NumPy observations that plays one episode at a time.

    In action a, agent k takes action a // 5**k % 5. `info["action_mask"]`, int8 (5**K,), is 1 for
    actions that lead no agent off the board or into a hole, as `Discrete.sample` expects. After a
    step, `info` also holds the entries of `LakeEnvironment.step_env`. Call `reset` after an
    episode ends. With render_mode "ansi", `render` returns the board as text.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 2}  # noqa: RUF012

    def __init__(
        self, environment: LakeEnvironment, params: EnvParams, render_mode: str | None = None
    ) -> None:
        if render_mode not in (None, "ansi"):
            raise ValueError(f"render_mode must be None or 'ansi', got {render_mode!r}")
        self.lake = JointAgentLake(environment, params)
        self.render_mode = render_mode
        self.action_space = convert_space(self.lake.action_space(), gymnasium.spaces)
        self.observation_space = convert_space(self.lake.observation_space(), gymnasium.spaces)
        self._state: EnvState | None = None
        self._compile()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the compiled function, which can't be pickled."""
        return {name: value for name, value in vars(self).items() if name != "_compute_mask"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._compile()

    def _compile(self) -> None:
        self._compute_mask = jax.jit(self.lake.action_mask)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode on a board drawn from the pool with gymnasium's random generator."""
        super().reset(seed=seed)
        key = jax.random.key(int(self.np_random.integers(1 << 32)))
        observation, self._state = self.lake.reset(key)
        return np.array(observation), self._add_mask({})

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Make one step.

        Raises:
            ValueError: the action is not in `action_space`.
            ResetNeeded: `reset` has not been called, or the episode has ended.
        """
        state = self._get_state()
        if state.terminated or state.truncated:
            raise gymnasium.error.ResetNeeded("reset() must be called after the end of an episode")
        if not self.lake.action_space().contains(action):
            last_action = self.lake.num_actions - 1
            raise ValueError(f"action must be an integer from 0 to {last_action}, got {action!r}")
        observation, self._state, reward, terminated, info = self.lake.step_env(
            jax.random.key(0), state, np.asarray(action)
        )
        truncated = bool(self._state.truncated)
        info = self._add_mask(jax.device_get(info))
        return np.array(observation), float(reward), bool(terminated), truncated, info

    def render(self) -> str | None:
        """Return the board as text if `render_mode` is "ansi", else None."""
        if self.render_mode is None:
            return None
        state = self._get_state()
        board = self.lake.environment.board(state, self.lake.default_params)
        return board_text(board, state.positions)

    def _get_state(self) -> EnvState:
        if self._state is None:
            raise gymnasium.error.ResetNeeded("reset() must be called before step() and render()")
        return self._state

    def _add_mask(self, info: dict[str, Any]) -> dict[str, Any]:
        mask = np.asarray(self._compute_mask(self._get_state()))
        return {**info, "action_mask": mask.astype(np.int8)}
