"""The lake's environment under `vmap`, with auto-reset."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

import jaxlake
from benchmarks.lake.protocol import serve
from benchmarks.lake.workers.environment_steps import (
    SteppingContestant,
    gymnax_step,
    random_start_times,
)
from benchmarks.lake.workers.lake_solve import read_boards
from jaxlake.environment.conflict_policies import ConflictPolicy
from jaxlake.environment.lake_environment import LakeEnvironment
from jaxlake.environment.observations import AgentCentred, Compact, Observation, Symbols
from jaxlake.environment.params import env_params

_OBSERVATIONS: dict[str, Observation] = {
    "compact": Compact(),
    "symbols": Symbols(),
    "agent_centred": AgentCentred(radius=5),  # as far as POGEMA's agents see by default
}


class _Lake(SteppingContestant):
    """The compiled environment; episodes start on boards drawn from those of a file."""

    def prepare(
        self, boards: str, conflict: str, observation: str, episode_steps: int, **batch: Any
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

        return self.build(
            reset,
            gymnax_step(environment, jnp.int8),
            params=params,
            num_actions=len(jaxlake.Action),
            action_shape=instances.agent_mask.shape[1:],
            **batch,
        )


if __name__ == "__main__":
    serve(_Lake())
