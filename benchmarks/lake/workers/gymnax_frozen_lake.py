"""gymnax's FrozenLake (JAX): one agent on a fixed map, auto-reset in every step."""

from importlib.metadata import version
from typing import Any

import gymnax
import jax

from benchmarks.lake.protocol import serve
from benchmarks.lake.workers.environment_steps import SteppingContestant, random_start_times


class _FrozenLake(SteppingContestant):
    """The environment under `vmap`; slippery, as it is by default, or not."""

    def prepare(
        self, slippery: bool, environments: int, steps: int, devices: int | None
    ) -> dict[str, Any]:
        """Make and compile it."""
        environment, params = gymnax.make("FrozenLake-misc", map_name="8x8", is_slippery=slippery)

        def reset(keys: jax.Array) -> Any:
            _, states = jax.vmap(environment.reset, (0, None))(keys, params)
            return states.replace(time=random_start_times(keys, params.max_steps_in_episode))

        def step(
            keys: jax.Array, states: Any, actions: jax.Array, params: Any
        ) -> tuple[Any, Any, jax.Array]:
            observations, states, *rest = jax.vmap(environment.step, (0, 0, 0, None))(
                keys, states, actions, params
            )
            return states, (observations, *rest), rest[1] | rest[2]

        made = self.build(
            reset,
            step,
            params=params,
            num_actions=4,
            action_shape=(),
            environments=environments,
            steps=steps,
            devices=devices,
        )
        return {"version": version("gymnax"), **made}


if __name__ == "__main__":
    serve(_FrozenLake())
