"""Estimates of the time, memory and disk space of a sweep, from one chunk."""

import resource
import time
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from jaxlake.sweeps.chunk_files import encode_rows, encode_tables, import_pyarrow, make_row_columns
from jaxlake.sweeps.driver import ChunkRunner, local_chunks
from jaxlake.sweeps.knobs import KNOBS
from jaxlake.sweeps.spec import SweepSpec


class Estimate(NamedTuple):
    """Size of a sweep, and cost of the chunks of one part."""

    configurations: int
    rows: int
    boards: int
    missing_share: float  # share of the measured chunk's boards that the generator did not make
    chunks: int  # chunks of the part
    chunk_bytes: int  # size on disk
    host_bytes: int  # peak resident memory of this process
    device_bytes: int | None  # peak memory of the first device; None if it is not reported
    compile_seconds: float  # includes the first run of the chunk
    chunk_seconds: float

    @property
    def disk_bytes(self) -> int:
        """Total size of the part's files in bytes."""
        return self.chunks * self.chunk_bytes

    @property
    def seconds(self) -> float:
        """Run time of the part in seconds, without compilation."""
        return self.chunks * self.chunk_seconds


def estimate(
    spec: SweepSpec, *, part: tuple[int, int] = (0, 1), devices: Sequence[jax.Device] | None = None
) -> Estimate:
    """Return the estimated cost of a sweep, measured on one chunk.

    The chunk holds configurations from the whole sweep. It runs twice; the second run is timed.

    Args:
        spec: The sweep.
        part: (i, n), the part to estimate; see `run`.
        devices: Devices of this process to use. Defaults to all.

    Returns:
        Times in seconds and sizes in bytes.

    Raises:
        SweepError: `part` is invalid, or pyarrow is not installed.
    """
    import_pyarrow()
    num_chunks = len(local_chunks(spec, part))
    indices = np.linspace(0, spec.configurations - 1, spec.chunk_size).astype(np.int64)
    configurations = [spec.columns(index, index + 1) for index in indices.tolist()]
    knobs = {
        name: np.concatenate([configuration[name] for configuration in configurations])
        for name in KNOBS
    }
    runner, seconds = ChunkRunner(spec, devices), []
    for _ in range(2):
        start = time.perf_counter()
        result = jax.device_get(runner(indices, knobs))
        seconds.append(time.perf_counter() - start)
    rows = make_row_columns(spec, indices, knobs, result)
    chunk_bytes = len(encode_rows(rows, spec.digest))
    if result.tables is not None:
        chunk_bytes += len(encode_tables(spec, indices, result.tables, spec.digest))
    memory_stats = runner.devices[0].memory_stats() or {}
    chunk_plans = spec.chunk_size * spec.boards * len(spec.joint_policies)
    return Estimate(
        configurations=spec.configurations,
        rows=spec.configurations * len(spec.joint_policies),
        boards=spec.configurations * spec.boards,
        missing_share=float(rows["missing"].sum()) / chunk_plans,
        chunks=num_chunks,
        chunk_bytes=chunk_bytes,
        host_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,  # in kB on Linux
        device_bytes=memory_stats.get("peak_bytes_in_use"),
        compile_seconds=seconds[0],
        chunk_seconds=seconds[1],
    )
