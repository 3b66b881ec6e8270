"""What the contestants written in JAX share: one program on every device, compiled before it runs.

Both sides of a comparison use it, so neither has more devices than the other.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from benchmarks.lake.protocol import peak_memory, repeat

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


class DeviceContestant:
    """A contestant that runs on the devices of JAX."""

    def finish(self) -> dict[str, Any]:
        """Return the peak of memory."""
        return memory()


class ProgramContestant(DeviceContestant):
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


def first_devices(count: int | None) -> list[Any]:
    """Return the first `count` devices, None for all; a `ValueError` if there are fewer."""
    found = jax.devices()
    if count is not None and not 1 <= count <= len(found):
        raise ValueError(f"devices: got {count}, 1 to {len(found)} are there")
    return found[:count]


def build(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    specs: tuple[PartitionSpec, ...],
    count: int | None,
) -> Program:
    """Compile `function` for `count` devices and put its arguments there.

    Args:
        function: from batches to batches; each device gets an equal part of them.
        arguments: pytrees of arrays; those with the spec BATCH are split along their leading axis.
        specs: one per argument, BATCH or EVERYWHERE.
        count: number of devices, None for all. With one, nothing is sharded.
    """
    mesh = Mesh(np.array(first_devices(count)), ("devices",))
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


def bytes_moved(compiled: Any) -> float:
    """Return the bytes that a program's fused operations read and write, as XLA counts them.

    A loop's body is counted once, so this is right for programs without loops only.
    """
    return float(compiled.cost_analysis()["bytes accessed"])


def memory() -> dict[str, int]:
    """Return the peak of memory of this process and, if the device knows it, of the device."""
    statistics = jax.devices()[0].memory_stats() or {}
    peak = {"peak_host_bytes": peak_memory()}
    if "peak_bytes_in_use" in statistics:
        peak["peak_device_bytes"] = int(statistics["peak_bytes_in_use"])
    return peak
