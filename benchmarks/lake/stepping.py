"""Steps of a batch of environments in one compiled program, the same for every side.

Actions and keys are drawn beforehand, and everything that a step returns is carried on, so that
each step's observations, rewards and flags are written to memory as they would be for a policy.
Episodes are made to start at different times, as they do after a while in training: were they all
to end at once, resets would cost nothing on most steps.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.lake.accelerated import BATCH, EVERYWHERE, build, bytes_moved, memory
from benchmarks.lake.protocol import repeat

Step = Callable[[jax.Array, Any, jax.Array, Any], tuple[Any, Any, jax.Array]]
"""(keys (B,), states, actions (B, ...), params) to (states, all else that is returned, ended (B,)).
"""


class SteppingContest:
    """A contest that steps environments; `prepare`, which each of them has, calls `build`."""

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
        """Compile the program that steps `environments` environments `steps` times a call.

        Args:
            reset: keys (B,) to states, somewhere within their episodes.
            step: see `Step`; environments that have ended are reset by it, if they are at all.
            params: what the environments share, an argument of the compiled program.
            num_actions: actions are 0 to num_actions - 1, uniform.
            action_shape: of one environment's action: () or (agents,).
            environments: B.
            steps: of each environment, in one call.
            devices: number of devices, None for all.

        Returns:
            What was made; episodes a step is 1 / mean length where resets happen.
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

            def advance(
                carry: tuple[Any, Any, jax.Array], given: tuple[jax.Array, jax.Array]
            ) -> tuple[tuple[Any, Any, jax.Array], None]:
                states, _, episodes = carry
                states, returned, ended = step(given[0], states, given[1], params)
                return (states, returned, episodes + ended.astype(jnp.int32)), None

            start = (states, blank, jnp.zeros(keys.shape[:1], jnp.int32))
            by_step = (jnp.moveaxis(keys, 1, 0), jnp.moveaxis(actions, 1, 0))
            return jax.lax.scan(advance, start, by_step)[0]

        self._program = build(
            run, (states, keys, actions, params), (BATCH, BATCH, BATCH, EVERYWHERE), devices
        )
        one_step = jax.jit(step).lower(keys[:, 0], states, jnp.asarray(actions[:, 0]), params)
        self._units = math.prod(shape[:2])
        return {
            "compile_seconds": self._program.compile_seconds,
            "episodes_per_step": float(jnp.sum(self._program()[2])) / self._units,
            "bytes_per_unit": bytes_moved(one_step.compile()) / environments,
        }

    def measure(self, seconds: float) -> dict[str, Any]:
        """Step for so long; a unit is one step of one environment."""

        def call() -> float:
            self._program()
            return self._units

        return repeat(call, seconds)

    def finish(self) -> dict[str, Any]:
        """Say the memory."""
        return memory()
