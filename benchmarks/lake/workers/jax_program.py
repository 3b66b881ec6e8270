"""Shared code of the JAX workers: a program compiled for several devices before it runs."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from benchmarks.lake.protocol import repeat

BATCH = PartitionSpec("devices")
REPLICATED = PartitionSpec()


@dataclass(frozen=True)
class Program:
    """A compiled function with its arguments in place."""

    compiled: Any
    arguments: tuple[Any, ...]
    compile_seconds: float

    def __call__(self) -> Any:
        """Run to the end and return the result, still on the devices."""
        return jax.block_until_ready(self.compiled(*self.arguments))


class ProgramBenchmark:
    """A benchmark that calls one compiled program; its `prepare` sets the two attributes."""

    program: Program
    units: float
    """Units of work per call of the program."""

    def measure(self, seconds: float) -> dict[str, Any]:
        """Call the program repeatedly for `seconds`."""

        def call() -> float:
            self.program()
            return self.units

        return repeat(call, seconds)


def compile_program(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    specs: tuple[PartitionSpec, ...],
    devices: int,
) -> Program:
    """Compile `function` for several devices and put its arguments there.

    Args:
        function: Maps batches to batches; each device gets an equal part.
        arguments: Pytrees of arrays; those with the spec BATCH are split along the leading axis.
        specs: One per argument, BATCH or REPLICATED.
        devices: Number of devices; with one, nothing is sharded.
    """
    mesh = Mesh(np.array(jax.devices()[:devices]), ("devices",))
    placed_arguments = tuple(
        jax.device_put(argument, NamedSharding(mesh, spec))
        for argument, spec in zip(arguments, specs, strict=True)
    )
    if mesh.size > 1:
        function = jax.shard_map(
            function, mesh=mesh, in_specs=specs, out_specs=BATCH, check_vma=False
        )
    start = time.perf_counter()
    compiled = jax.jit(function).lower(*placed_arguments).compile()
    return Program(compiled, placed_arguments, time.perf_counter() - start)
