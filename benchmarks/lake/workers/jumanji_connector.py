"""Jumanji's Connector-v3 (JAX): ten agents on a 10x10 grid, its default."""

from importlib.metadata import version
from typing import Any

import jax
import jumanji
from jumanji.wrappers import AutoResetWrapper

from benchmarks.lake.protocol import serve
from benchmarks.lake.workers.environment_steps import SteppingContestant, random_start_times


class _Connector(SteppingContestant):
    """The environment under `vmap`, with its own auto-reset wrapper or without any reset."""

    def prepare(self, auto_reset: bool, **batch: Any) -> dict[str, Any]:
        """Make and compile it."""
        environment = jumanji.make("Connector-v3")
        limit, agents = environment.unwrapped.time_limit, environment.unwrapped.num_agents
        if auto_reset:
            environment = AutoResetWrapper(environment)

        def reset(keys: jax.Array) -> Any:
            states, _ = jax.vmap(environment.reset)(keys)
            return states.replace(step_count=random_start_times(keys, limit))

        def step(
            keys: jax.Array, states: Any, actions: jax.Array, params: None
        ) -> tuple[Any, Any, jax.Array]:
            states, timestep = jax.vmap(environment.step)(states, actions)
            return states, timestep, timestep.last()

        made = self.build(reset, step, params=None, num_actions=5, action_shape=(agents,), **batch)
        return {"version": version("jumanji"), **made}


if __name__ == "__main__":
    serve(_Connector())
