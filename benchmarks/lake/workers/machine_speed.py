"""What the machine can do at best: copying memory, and starting a program."""

from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.lake.protocol import repeat, serve
from benchmarks.lake.workers.jax_program import (
    BATCH,
    DeviceContestant,
    Program,
    build,
    first_devices,
)

_LARGE, _SMALL = 1 << 28, 1 << 18
_ROUNDS = 1000


class _Machine(DeviceContestant):
    """A few programs that do one thing each."""

    def prepare(self, devices: int | None) -> dict[str, Any]:
        """Compile them and describe the devices."""
        found = first_devices(devices)

        def loop(number: jax.Array) -> jax.Array:
            return jax.lax.fori_loop(0, _ROUNDS, lambda i, x: x * 3 + i, number)

        def negating(count: int) -> Program:
            return build(jnp.negative, (np.zeros(count, np.int8),), (BATCH,), devices)

        self._copy_memory, self._copy_cache = negating(_LARGE), negating(_SMALL)
        self._launch = negating(len(found))
        self._loop = build(loop, (np.zeros(len(found), np.int32),), (BATCH,), devices)
        for program in (self._copy_memory, self._copy_cache, self._launch, self._loop):
            program()
        return {
            "platform": found[0].platform,
            "device_kind": found[0].device_kind,
            "devices": len(found),
            "versions": {name: version(name) for name in ("jaxlake", "jax", "jaxlib", "numpy")},
        }

    def measure(self, seconds: float) -> dict[str, Any]:
        """Measure each; the speeds of copying count bytes read and bytes written."""

        def each(program: Program) -> float:
            def call() -> float:
                program()
                return 1

            took = repeat(call, seconds / 4)
            return took["seconds"] / took["units"]

        return {
            "copy_memory_bytes_per_second": 2 * _LARGE / each(self._copy_memory),
            "copy_cache_bytes_per_second": 2 * _SMALL / each(self._copy_cache),
            "launch_seconds": each(self._launch),
            "loop_round_seconds": each(self._loop) / _ROUNDS,
        }


if __name__ == "__main__":
    serve(_Machine())
