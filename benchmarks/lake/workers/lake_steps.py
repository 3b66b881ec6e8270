"""Worker that steps a batch of lakes with auto-reset in one compiled program.

Actions and keys are drawn beforehand. The scan carries all results of a step, so that observations,
rewards and flags are written to memory as for a policy. Episodes start at different times; if all
ended together, most steps would need no reset.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxlake
from benchmarks.lake.protocol import serve
from benchmarks.lake.workers.jax_program import BATCH, REPLICATED, ProgramBenchmark, compile_program
from benchmarks.lake.workers.lake_solve import read_boards
from jaxlake.environment.conflict_policies import ConflictPolicy
from jaxlake.environment.lake_environment import LakeEnvironment
from jaxlake.environment.observations import AgentCentred, Compact, Observation
from jaxlake.environment.params import env_params

_OBSERVATIONS: dict[str, Observation] = {
    "compact": Compact(),
    "agent_centred": AgentCentred(radius=5),  # POGEMA's default radius
}


class _Lake(ProgramBenchmark):
    """The compiled environment; a unit is one step of one environment."""

    def prepare(
        self,
        path: str,
        observation: str,
        episode_steps: int,
        environments: int,
        steps: int,
        devices: int,
    ) -> dict[str, Any]:
        """Compile a program of `steps` steps of `environments` environments on boards of a file."""
        environment = LakeEnvironment(
            conflict=ConflictPolicy.BLOCK_BOTH, observation=_OBSERVATIONS[observation]
        )
        instances = read_boards(path)
        params = env_params(instances, max_steps=episode_steps)
        shape = (environments, steps, instances.agent_mask.shape[1])
        actions = np.random.default_rng(0).integers(0, len(jaxlake.Action), shape, dtype=np.int32)
        keys = jax.random.split(jax.random.key(0), shape[:2])
        _, states = jax.jit(jax.vmap(environment.reset, (0, None)))(
            jax.random.split(jax.random.key(1), environments), params
        )
        times = jax.random.randint(jax.random.key(2), (environments,), 0, episode_steps, jnp.int32)
        states = replace(states, time=times)

        def step(keys: Any, states: Any, actions: Any, params: Any) -> tuple[Any, Any]:
            observations, states, *outputs = jax.vmap(environment.step, (0, 0, 0, None))(
                keys, states, actions.astype(jnp.int8), params
            )
            return states, (observations, *outputs)

        def run(states: Any, keys: Any, actions: Any, params: Any) -> tuple[Any, Any]:
            outputs = jax.eval_shape(step, keys[:, 0], states, actions[:, 0], params)[1]
            empty_outputs = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), outputs)

            def advance(carry: Any, inputs: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
                return step(inputs[0], carry[0], inputs[1], params), None

            inputs_by_step = (jnp.moveaxis(keys, 1, 0), jnp.moveaxis(actions, 1, 0))
            return jax.lax.scan(advance, (states, empty_outputs), inputs_by_step)[0]

        specs = (BATCH, BATCH, BATCH, REPLICATED)
        self.program = compile_program(run, (states, keys, actions, params), specs, devices)
        self.units = environments * steps
        self.program()
        return {"compile_seconds": self.program.compile_seconds}


if __name__ == "__main__":
    serve(_Lake())
