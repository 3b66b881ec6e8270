"""gymnax's FrozenLake (JAX): one agent on a fixed map, auto-reset in every step."""

from importlib.metadata import version
from typing import Any

import gymnax
import jax

from benchmarks.lake.protocol import serve
from benchmarks.lake.workers.environment_steps import (
    SteppingContestant,
    gymnax_step,
    random_start_times,
)


class _FrozenLake(SteppingContestant):
    """The environment under `vmap`; slippery, as it is by default, or not."""

    def prepare(self, slippery: bool, **batch: Any) -> dict[str, Any]:
        """Make and compile it."""
        environment, params = gymnax.make("FrozenLake-misc", map_name="8x8", is_slippery=slippery)

        def reset(keys: jax.Array) -> Any:
            _, states = jax.vmap(environment.reset, (0, None))(keys, params)
            return states.replace(time=random_start_times(keys, params.max_steps_in_episode))

        step = gymnax_step(environment)
        made = self.build(reset, step, params=params, num_actions=4, action_shape=(), **batch)
        return {"version": version("gymnax"), **made}


if __name__ == "__main__":
    serve(_FrozenLake())
