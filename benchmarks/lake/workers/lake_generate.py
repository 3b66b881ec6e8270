"""Worker that runs `jaxlake.generate` with a new key at each call."""

import time
from typing import Any

import jax
import numpy as np

from benchmarks.lake.protocol import repeat, serve
from jaxlake.generator import Generated, LakeParams, generate_sharded, lake_params


class _Generator:
    """The compiled generator."""

    def prepare(
        self,
        size: int,
        num_agents: int,
        hole_ratio: float,
        wait_ratio: float,
        count: int,
        devices: int,
    ) -> dict[str, Any]:
        """Compile the generator, make one set and check its shares.

        Raises:
            RuntimeError: Boards are missing, or the wait ratio differs from the request.
        """
        selected_devices = tuple(jax.devices()[:devices])

        def make(seed: jax.Array, params: LakeParams) -> Generated:
            return generate_sharded(
                jax.random.key(seed),
                params,
                count,
                devices=selected_devices,
                max_size=size,
                max_agents=num_agents,
            )

        self._params = lake_params(size, hole_ratio, wait_ratio, num_agents)
        start = time.perf_counter()
        self._compiled = jax.jit(make).lower(np.uint32(0), self._params).compile()
        compile_seconds = time.perf_counter() - start
        self._seed = 0
        lakes = jax.tree.map(np.asarray, self._make())
        num_filled, num_waits = int(lakes.filled.sum()), int(lakes.solutions.needs_wait.sum())
        if num_filled != count or num_waits != int(lakes.requested_wait.sum()):
            raise RuntimeError(f"{num_filled} of {count} boards were made, {num_waits} need a wait")
        return {"compile_seconds": compile_seconds}

    def measure(self, seconds: float) -> dict[str, Any]:
        """Make sets for `seconds`; a unit is one board of a set."""
        return repeat(lambda: float(np.sum(self._make().filled)), seconds)

    def _make(self) -> Generated:
        self._seed += 1
        lakes: Generated = jax.block_until_ready(
            self._compiled(np.uint32(self._seed), self._params)
        )
        return lakes


if __name__ == "__main__":
    serve(_Generator())
