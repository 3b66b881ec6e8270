"""Worker that steps one POGEMA environment (NumPy and Python) with random joint actions."""

import random
from importlib.metadata import version
from typing import Any

from pogema import GridConfig, pogema_v0

from benchmarks.lake.protocol import repeat, serve

_STEPS = 200


class _Pogema:
    """The environment, with joint actions drawn before the clock starts."""

    def prepare(
        self, size: int, num_agents: int, hole_ratio: float, episode_steps: int
    ) -> dict[str, Any]:
        """Make the environment; agents that collide stay in their cells (`soft`)."""
        self._environment = pogema_v0(
            GridConfig(
                size=size,
                num_agents=num_agents,
                density=hole_ratio,
                collision_system="soft",
                on_target="nothing",
                max_episode_steps=episode_steps,
            )
        )
        rng = random.Random(0)
        self._actions = [[rng.randrange(5) for _ in range(num_agents)] for _ in range(4096)]
        self._next = 0
        self._environment.reset()
        self.measure(0.1)
        return {"version": version("pogema")}

    def measure(self, seconds: float) -> dict[str, Any]:
        """Step for `seconds`, and reset after each episode."""
        return repeat(self._steps, seconds)

    def _steps(self) -> float:
        for _ in range(_STEPS):
            actions = self._actions[self._next]
            self._next = (self._next + 1) % len(self._actions)
            _, _, terminated, truncated, _ = self._environment.step(list(actions))
            if all(terminated) or all(truncated):
                self._environment.reset()
        return _STEPS


if __name__ == "__main__":
    serve(_Pogema())
