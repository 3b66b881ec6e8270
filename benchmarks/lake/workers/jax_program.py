"""Shared code of the JAX workers: one program on every device, compiled before it runs.

Both sides of a comparison use it, so they have the same number of devices.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from benchmarks.lake.protocol import repeat

BATCH = PartitionSpec("devices")
EVERYWHERE = PartitionSpec()


@dataclass(frozen=True)
class Program:
    """A compiled function with its arguments in place."""

    compiled: Any
    arguments: tuple[Any, ...]
    compile_seconds: float

    def __call__(self) -> Any:
        """Run to the end and return the result, still on the devices."""
        return jax.block_until_ready(self.compiled(*self.arguments))


class ProgramContestant:
    """A contestant that calls one compiled program; its `prepare` sets the two attributes."""

    program: Program
    units: float
    """What one call of the program does."""

    def measure(self, seconds: float) -> dict[str, Any]:
        """Call the program for so long."""

        def call() -> float:
            self.program()
            return self.units

        return repeat(call, seconds)


def build(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    specs: tuple[PartitionSpec, ...],
    devices: int,
) -> Program:
    """Compile `function` for several devices and put its arguments there.

    Args:
        function: from batches to batches; each device gets an equal part of them.
        arguments: pytrees of arrays; those with the spec BATCH are split along their leading axis.
        specs: one per argument, BATCH or EVERYWHERE.
        devices: how many. With one, nothing is sharded.
    """
    mesh = Mesh(np.array(jax.devices()[:devices]), ("devices",))
    placed = tuple(
        jax.device_put(argument, NamedSharding(mesh, spec))
        for argument, spec in zip(arguments, specs, strict=True)
    )
    if mesh.size > 1:
        function = jax.shard_map(
            function, mesh=mesh, in_specs=specs, out_specs=BATCH, check_vma=False
        )
    start = time.perf_counter()
    compiled = jax.jit(function).lower(*placed).compile()
    return Program(compiled, placed, time.perf_counter() - start)
