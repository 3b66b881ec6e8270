"""Runner of sweeps: it processes a sweep in chunks, on several devices, and can resume it."""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.environment.conflict_policies import parse_conflict_policy
from jaxlake.generator import LakeParams
from jaxlake.generator.generation import bytes_per_board
from jaxlake.remote_files import AnyPath, as_path
from jaxlake.runtime.memory import require_memory
from jaxlake.runtime.random_keys import threefry_key
from jaxlake.sweeps.chunk_files import import_pyarrow
from jaxlake.sweeps.folder import MANIFEST, SweepFolder
from jaxlake.sweeps.knobs import KNOBS, SweepError
from jaxlake.sweeps.program import ChunkOptions, ChunkResult, chunk_program
from jaxlake.sweeps.spec import SweepSpec

_BARRIER_TIMEOUT_MS = 14 * 24 * 3600 * 1000
_barrier_ids = itertools.count()


class Progress(NamedTuple):
    """Progress of this process's share of a sweep."""

    chunks: int  # number of chunks on disk
    total_chunks: int  # number of chunks in the share
    boards_per_second: float | None  # None before the second new chunk
    seconds_left: float | None


def run(
    spec: SweepSpec,
    path: str | AnyPath,
    *,
    part: tuple[int, int] = (0, 1),
    devices: Sequence[jax.Device] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> bool:
    """Run a sweep, or resume an interrupted one, and write its results.

    The results depend on `spec` alone, not on parts, processes, devices or interruptions. After
    `jax.distributed.initialize`, the processes share the chunks, and each returns when all have
    finished; `path` must then be a folder that all of them can access.

    Args:
        spec: The sweep.
        path: A new or empty folder, or the folder of this sweep. It receives `manifest.json` and
            one file of rows per chunk, `rows/rows-000000.parquet` (see `read`); with `spec.tables`
            also `tables/tables-000000.npz`.
        part: (i, n), to run every n-th chunk, starting with chunk i.
        devices: Devices of this process that share the work. Defaults to all.
        progress: Called at the start and after each chunk.

    Returns:
        Whether all chunks of the sweep are on disk. If so, the manifest holds their digests.

    Raises:
        SweepError: The folder contains other files or another sweep, `part` is invalid, pyarrow is
            not installed, or the boards of a chunk do not fit into the free memory.
        OSError: A file cannot be written.
    """
    import_pyarrow()
    if not isinstance(spec, SweepSpec):
        raise SweepError(f"spec must be a SweepSpec, got {type(spec).__name__}")
    chunks = local_chunks(spec, part)
    folder = SweepFolder(as_path(path), spec)
    if not (folder.path / MANIFEST).exists():
        _require_memory(spec)
    folder.create_or_verify()
    remaining_chunks = [chunk for chunk in chunks if not folder.has_chunk(chunk)]
    report = progress or (lambda _: None)
    meter = _ProgressMeter(spec, len(chunks))
    chunks_done = len(chunks) - len(remaining_chunks)
    report(meter.update(chunks_done))
    for chunk, result in _run_chunks(spec, remaining_chunks, devices):
        folder.write(chunk, result)
        chunks_done += 1
        report(meter.update(chunks_done))
    _wait_for_processes()
    return folder.finalize()


def _require_memory(spec: SweepSpec) -> None:
    """Raise `SweepError` if the boards of a chunk do not fit into the free memory."""
    board_bytes = bytes_per_board(spec.max_size, spec.max_agents, spec.horizon)
    try:
        require_memory("a chunk", (), spec.chunk_size * spec.boards, board_bytes)
    except MemoryError as error:
        raise SweepError(f"{error}, or a smaller chunk") from None


def local_chunks(spec: SweepSpec, part: tuple[int, int]) -> range:
    """Return the chunks of a part that belong to this process; raise `SweepError` if invalid."""
    index, num_parts = part
    if not 0 <= index < num_parts:
        raise SweepError(f"part must be (i, n) with 0 <= i < n, got {part}")
    return range(index, spec.chunks, num_parts)[jax.process_index() :: jax.process_count()]


class ChunkRunner:
    """Callable that runs chunks of a sweep on devices of this process."""

    def __init__(self, spec: SweepSpec, devices: Sequence[jax.Device] | None = None) -> None:
        self.devices = tuple(jax.local_devices() if devices is None else devices)
        self._spec = spec
        options = ChunkOptions(
            policies=tuple(spec.joint_policies.values()),
            boards=spec.boards,
            max_size=spec.max_size,
            max_agents=spec.max_agents,
            horizon=spec.horizon,
            max_steps=spec.max_steps,
            conflict=parse_conflict_policy(spec.conflict),
            max_candidates=spec.max_candidates,
            tables=spec.tables,
        )
        self._program = chunk_program(options, self.devices)

    def __call__(self, indices: np.ndarray, knobs: dict[str, np.ndarray]) -> ChunkResult:
        """Run at most `chunk_size` configurations; return leaves (chunk_size, P, ...).

        Shorter inputs are padded with configurations of size 0, which have no boards, so that all
        calls share one compiled program.
        """
        padding = (0, self._spec.chunk_size - len(indices))
        columns = {name: jnp.asarray(np.pad(knobs[name], padding))[:, None] for name in KNOBS}
        ratios = {name: columns[name].astype(jnp.float32) for name in ("hole_ratio", "wait_ratio")}
        data_ratio = jnp.ones_like(ratios["hole_ratio"])
        params = LakeParams(**(columns | ratios), data_ratio=data_ratio)
        # Results must not depend on this setting of the process. True is JAX's default.
        with jax.threefry_partitionable(True):
            key = threefry_key(self._spec.seed)
            padded_indices = jnp.asarray(np.pad(indices, padding), jnp.uint32)
            return self._program(key, params, padded_indices)


def _run_chunks(
    spec: SweepSpec, chunks: Iterable[int], devices: Sequence[jax.Device] | None
) -> Iterator[tuple[int, ChunkResult]]:
    """Yield each chunk and its result; accelerators compute the next chunk meanwhile."""
    if not chunks:
        return
    runner = ChunkRunner(spec, devices)
    max_pending = 0 if runner.devices[0].platform == "cpu" else 1
    pending_results: list[tuple[int, ChunkResult]] = []
    for chunk in chunks:
        chunk_range = spec.chunk_range(chunk)
        knobs = spec.columns(chunk_range.start, chunk_range.stop)
        pending_results.append((chunk, runner(np.array(chunk_range), knobs)))
        if len(pending_results) > max_pending:
            yield jax.device_get(pending_results.pop(0))
    yield from map(jax.device_get, pending_results)


class _ProgressMeter:
    """Progress and rate of a run, without the first chunk, whose time is mostly compilation."""

    def __init__(self, spec: SweepSpec, total_chunks: int) -> None:
        self._chunk_boards = spec.chunk_size * spec.boards
        self._total_chunks = total_chunks
        self._readings: list[tuple[float, int]] = []  # times in seconds, and chunks on disk

    def update(self, chunks_done: int) -> Progress:
        """Record that `chunks_done` chunks of this process are on disk; return the progress."""
        self._readings = [*self._readings[:2], (time.monotonic(), chunks_done)]
        boards_per_second = seconds_left = None
        if len(self._readings) == 3:
            (start_time, chunks_at_start), (end_time, _) = self._readings[1:]
            seconds_per_chunk = max(end_time - start_time, 1e-9) / (chunks_done - chunks_at_start)
            boards_per_second = self._chunk_boards / seconds_per_chunk
            seconds_left = seconds_per_chunk * (self._total_chunks - chunks_done)
        return Progress(chunks_done, self._total_chunks, boards_per_second, seconds_left)


def _wait_for_processes() -> None:
    if jax.process_count() == 1:
        return
    from jax._src import distributed  # JAX has no public name for its coordination service

    client: Any = distributed.global_state.client
    client.wait_at_barrier(f"jaxlake/sweep/{next(_barrier_ids)}", _BARRIER_TIMEOUT_MS)
