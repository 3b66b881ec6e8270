"""PettingZoo adapter, for the parallel interface."""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from pettingzoo import ParallelEnv

from jaxlake.environment.agent_dictionary import AgentDictionaryLake, ByAgent
from jaxlake.environment.lake_environment import LakeEnvironment
from jaxlake.environment.observations import NUM_ACTIONS
from jaxlake.environment.params import EnvParams, EnvState
from jaxlake.environment.spaces import convert_spaces
from jaxlake.render import board_text

_COMPILED = ("_reset", "_step", "_masks")


class ParallelLake(ParallelEnv):
    """A `ParallelEnv` with NumPy observations that plays one episode at a time.

    All agents leave `agents` when the episode ends. The `info` of each agent holds `action_mask`,
    int8 (5,), 1 for actions that stay on the board and avoid holes. After a step it also holds
    `failure`, the `jaxlake.Failure` of the step, `agent`, the lowest agent involved or -1, and
    `at_goal`. With render_mode "ansi", `render` returns the board as text.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "name": "mapf_frozenlake_v0",
        "render_modes": ["ansi"],
        "is_parallelizable": True,
        "render_fps": 2,
    }

    def __init__(
        self, environment: LakeEnvironment, params: EnvParams, render_mode: str | None = None
    ) -> None:
        if render_mode not in (None, "ansi"):
            raise ValueError(f"render_mode must be None or 'ansi', got {render_mode!r}")
        self.lake = AgentDictionaryLake(environment, params)
        self.render_mode = render_mode
        self.possible_agents = list(self.lake.agents)
        self.agents: list[str] = []
        self._observation_spaces = convert_spaces(self.lake.observation_spaces, spaces)
        self._action_spaces = convert_spaces(self.lake.action_spaces, spaces)
        self._random, _ = seeding.np_random(None)
        self._state: EnvState | None = None
        self._compile()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the compiled functions, which can't be pickled."""
        return {name: value for name, value in vars(self).items() if name not in _COMPILED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._compile()

    def _compile(self) -> None:
        self._reset = jax.jit(self.lake.reset)
        self._step = jax.jit(self.lake.step_env)
        self._masks = jax.jit(self.lake.get_avail_actions)

    def observation_space(self, agent: str) -> Any:
        """Return an agent's space of observations."""
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        """Return an agent's space of actions."""
        return self._action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ByAgent, ByAgent]:
        """Start an episode on a board drawn from the pool, and return (observations, infos)."""
        if seed is not None:
            self._random, _ = seeding.np_random(seed)
        key = jax.random.key(int(self._random.integers(1 << 32)))
        observations, self._state = self._reset(key)
        self.agents = list(self.possible_agents)
        masks = self._get_action_masks()
        return _to_numpy(observations), {
            agent: {"action_mask": masks[agent]} for agent in self.agents
        }

    def step(self, actions: ByAgent) -> tuple[ByAgent, ByAgent, ByAgent, ByAgent, ByAgent]:
        """Make one step and return (observations, rewards, terminations, truncations, infos).

        After the end of the episode all five dictionaries are empty.

        Raises:
            TypeError: `actions` is not a dictionary.
            ValueError: an agent's action is missing or invalid.
            ResetNeeded: `reset` has not been called.
        """
        if self._state is None:
            raise ResetNeeded("reset() must be called before step()")
        if not self.agents:
            return {}, {}, {}, {}, {}
        if not isinstance(actions, Mapping):
            raise TypeError(f"actions must be a dictionary by agent, got {actions!r:.100}")
        checked_actions = {
            agent: self._check_action(agent, actions.get(agent)) for agent in self.agents
        }
        observations, self._state, rewards, _, info = self._step(
            jax.random.key(0), self._state, checked_actions
        )
        rewards, info = jax.device_get((rewards, info))
        masks = self._get_action_masks()
        terminated, truncated = bool(info["terminated"]), bool(info["truncated"])
        infos = {
            agent: {
                "failure": int(info["failure"]),
                "agent": int(info["agent"]),
                "at_goal": bool(info["at_goal"][k]),
                "action_mask": masks[agent],
            }
            for k, agent in enumerate(self.possible_agents)
        }
        terminations = dict.fromkeys(self.agents, terminated)
        truncations = dict.fromkeys(self.agents, truncated)
        rewards = {agent: float(reward) for agent, reward in rewards.items()}
        if terminated or truncated:
            self.agents = []
        return _to_numpy(observations), rewards, terminations, truncations, infos

    def render(self) -> str | None:
        """Return the board as text if `render_mode` is "ansi" and an episode has begun."""
        if self.render_mode is None or self._state is None:
            return None
        board = self.lake.environment.board(self._state, self.lake.params)
        return board_text(board, self._state.positions)

    def _check_action(self, agent: str, action: Any) -> np.int8:
        if not self.lake.action_space(agent).contains(action):
            raise ValueError(
                f"actions[{agent!r}] must be an integer from 0 to {NUM_ACTIONS - 1}, got {action!r}"
            )
        return np.int8(action)

    def _get_action_masks(self) -> ByAgent:
        masks = jax.device_get(self._masks(self._state))
        return {agent: mask.astype(np.int8) for agent, mask in masks.items()}


def _to_numpy(observations: ByAgent) -> ByAgent:
    """Copy observations into writable NumPy arrays."""
    return {agent: np.array(row) for agent, row in jax.device_get(observations).items()}
