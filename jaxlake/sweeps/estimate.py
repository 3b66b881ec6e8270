"""Estimates the time, memory and disk space of a sweep from one chunk."""

import resource
import time
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from jaxlake.sweeps.chunk_files import import_pyarrow, row_columns, rows_bytes, tables_bytes
from jaxlake.sweeps.driver import ChunkRunner, own_chunks
from jaxlake.sweeps.spec import SweepSpec


class Estimate(NamedTuple):
    """The size of a sweep, and the cost of the chunks of one part."""

    configurations: int
    rows: int
    boards: int
    missing: float  # share of the boards of the measured chunk
    chunks: int  # of the part
    chunk_bytes: int  # on disk
    host_bytes: int  # peak resident memory of this process
    device_bytes: int | None  # peak of the first device; None where it doesn't say
    compile_seconds: float  # and the first run of the chunk
    chunk_seconds: float

    @property
    def disk_bytes(self) -> int:
        """The size of the files of the part."""
        return self.chunks * self.chunk_bytes

    @property
    def seconds(self) -> float:
        """The time of the part, after compilation."""
        return self.chunks * self.chunk_seconds


def estimate(
    spec: SweepSpec, *, part: tuple[int, int] = (0, 1), devices: Sequence[jax.Device] | None = None
) -> Estimate:
    """Run one chunk of configurations from all over a sweep twice, and measure the second run.

    Args:
        spec: The sweep.
        part: (i, n), the part whose time and size to estimate; see `run`.
        devices: Those of this process to use; all of them by default.

    Raises:
        SweepError: `part` is invalid, or pyarrow isn't installed.
    """
    import_pyarrow()
    chunks = len(own_chunks(spec, part))
    spread = np.linspace(0, spec.configurations - 1, spec.chunk_size).astype(np.int64)
    singles = [spec.columns(number, number + 1) for number in spread.tolist()]
    knobs = {name: np.concatenate([single[name] for single in singles]) for name in singles[0]}
    runner, seconds = ChunkRunner(spec, devices), []
    for _ in range(2):
        start = time.perf_counter()
        result = jax.device_get(runner(spread, knobs))
        seconds.append(time.perf_counter() - start)
    columns = row_columns(spec, spread, knobs, result)
    size = len(rows_bytes(columns, spec.digest))
    if result.tables is not None:
        size += len(tables_bytes(spec, spread, result.tables, spec.digest))
    memory = runner.devices[0].memory_stats() or {}
    asked = spec.chunk_size * spec.boards * len(spec.joint_policies)
    return Estimate(
        configurations=spec.configurations,
        rows=spec.configurations * len(spec.joint_policies),
        boards=spec.configurations * spec.boards,
        missing=float(columns["missing"].sum()) / asked,
        chunks=chunks,
        chunk_bytes=size,
        host_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,  # Linux has kilobytes
        device_bytes=memory.get("peak_bytes_in_use"),
        compile_seconds=seconds[0],
        chunk_seconds=seconds[1],
    )
