"""The lake's environment under `vmap`, with auto-reset."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

import jaxlake
from benchmarks.lake.protocol import serve
from benchmarks.lake.workers.environment_steps import SteppingContestant, random_start_times
from benchmarks.lake.workers.lake_solve import read_boards
from jaxlake.environment.conflict_policies import ConflictPolicy
from jaxlake.environment.lake_environment import LakeEnvironment
from jaxlake.environment.observations import AgentCentred, Compact, Observation, Symbols
from jaxlake.environment.params import EnvParams, env_params

_OBSERVATIONS: dict[str, Observation] = {
    "compact": Compact(),
    "symbols": Symbols(),
    "agent_centred": AgentCentred(radius=5),  # as far as POGEMA's agents see by default
}


class _Lake(SteppingContestant):
    """The compiled environment; episodes start on boards drawn from those of a file."""

    def prepare(
        self,
        boards: str,
        conflict: str,
        observation: str,
        environments: int,
        steps: int,
        episode_steps: int,
        devices: int | None,
    ) -> dict[str, Any]:
        """Make and compile it."""
        environment = LakeEnvironment(
            conflict=ConflictPolicy(conflict), observation=_OBSERVATIONS[observation]
        )
        instances = read_boards(boards)
        params = env_params(instances, max_steps=episode_steps)

        def reset(keys: jax.Array) -> Any:
            _, states = jax.vmap(environment.reset, (0, None))(keys, params)
            return replace(states, time=random_start_times(keys, episode_steps))

        def step(
            keys: jax.Array, states: Any, actions: jax.Array, params: EnvParams
        ) -> tuple[Any, Any, jax.Array]:
            observations, states, *rest = jax.vmap(environment.step, (0, 0, 0, None))(
                keys, states, actions.astype(jnp.int8), params
            )
            return states, (observations, *rest), rest[1] | rest[2]

        return self.build(
            reset,
            step,
            params=params,
            num_actions=len(jaxlake.Action),
            action_shape=instances.agent_mask.shape[1:],
            environments=environments,
            steps=steps,
            devices=devices,
        )


if __name__ == "__main__":
    serve(_Lake())
