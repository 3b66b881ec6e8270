"""Steps of a batch of environments in one compiled program, the same for every side.

Actions and keys are drawn beforehand. Everything that a step returns is carried on, so that each
step's observations, rewards and flags are written to memory as they would be for a policy. Episodes
start at different times, as they do after a while in training: if they all ended at once, resets
would cost nothing on most steps.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.lake.workers.jax_program import (
    BATCH,
    EVERYWHERE,
    ProgramContestant,
    build,
    bytes_moved,
)

Step = Callable[[jax.Array, Any, jax.Array, Any], tuple[Any, Any, jax.Array]]
"""(keys (B,), states, actions (B, ...), params) to (states, all else that is returned, ended (B,)).
"""


def gymnax_step(environment: Any, action_dtype: Any = jnp.int32) -> Step:
    """Step environments of gymnax's interface: `step(key, state, action, params)`."""

    def step(
        keys: jax.Array, states: Any, actions: jax.Array, params: Any
    ) -> tuple[Any, Any, jax.Array]:
        observations, states, *rest = jax.vmap(environment.step, (0, 0, 0, None))(
            keys, states, actions.astype(action_dtype), params
        )
        return states, (observations, *rest), rest[1] | rest[2]

    return step


def random_start_times(keys: jax.Array, episode_steps: Any) -> jax.Array:
    """Draw a time within the episode for each environment, int32 (B,)."""
    return jax.random.randint(jax.random.key(2), keys.shape, 0, episode_steps, jnp.int32)


class SteppingContestant(ProgramContestant):
    """Steps environments; a unit is one step of one environment. `prepare` calls `build`."""

    def build(
        self,
        reset: Callable[[jax.Array], Any],
        step: Step,
        *,
        params: Any,
        num_actions: int,
        action_shape: tuple[int, ...],
        environments: int,
        steps: int,
        devices: int | None,
    ) -> dict[str, Any]:
        """Compile the program that steps `environments` environments `steps` times per call.

        Args:
            reset: from keys (B,) to states, somewhere within their episodes.
            step: see `Step`; it resets environments that have ended, if they are reset at all.
            params: what the environments share, an argument of the compiled program.
            num_actions: actions are 0 to num_actions - 1, uniform.
            action_shape: of one environment's action: () or (agents,).
            environments: B.
            steps: of each environment, in one call.
            devices: how many, None for all.

        Returns:
            What was made. `episodes_per_step` is 1 / mean length where environments are reset.
        """
        shape = (environments, steps, *action_shape)
        actions = np.random.default_rng(0).integers(0, num_actions, shape, dtype=np.int32)
        keys = jax.random.split(jax.random.key(0), (environments, steps))
        states = jax.jit(reset)(jax.random.split(jax.random.key(1), environments))

        def run(
            states: Any, keys: jax.Array, actions: jax.Array, params: Any
        ) -> tuple[Any, Any, jax.Array]:
            returned = jax.eval_shape(step, keys[:, 0], states, actions[:, 0], params)[1]
            blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), returned)

            def advance(carry: Any, given: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
                states, _, episodes = carry
                states, returned, ended = step(given[0], states, given[1], params)
                return (states, returned, episodes + ended.astype(jnp.int32)), None

            start = (states, blank, jnp.zeros(keys.shape[:1], jnp.int32))
            by_step = (jnp.moveaxis(keys, 1, 0), jnp.moveaxis(actions, 1, 0))
            return jax.lax.scan(advance, start, by_step)[0]

        self.program = build(
            run, (states, keys, actions, params), (BATCH, BATCH, BATCH, EVERYWHERE), devices
        )
        one_step = jax.jit(step).lower(keys[:, 0], states, jnp.asarray(actions[:, 0]), params)
        self.units = math.prod(shape[:2])
        return {
            "compile_seconds": self.program.compile_seconds,
            "episodes_per_step": float(jnp.sum(self.program()[2])) / self.units,
            "bytes_per_unit": bytes_moved(one_step.compile()) / environments,
        }
