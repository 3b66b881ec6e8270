"""Large sets on disk: Parquet shards and a manifest, made one shard at a time.

Shard j is made from the key `fold_in(key, j)` and from what the shards before it hold, which is
all that its content depends on. The set's quotas are shared out so that every shard is a sample of
the whole mixture, and a board that an earlier shard has is drawn again (`fill_quotas`). So no
board comes twice in a set, its quotas are those of `generate` for the whole count, and a run that
was killed at any moment goes on to the same bytes: shards and manifest appear by rename, the
shard first.

In memory are one shard at a time, and 16 bytes a board on the host (a 128-bit digest, by which
duplicates are told; 48 at the moment when they are merged).
"""

import hashlib
import heapq
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.datasets import columns
from jaxlake.datasets.manifest import (
    FILE_NAME,
    Manifest,
    Request,
    Shard,
    first_difference,
    read_manifest,
    write_manifest,
)
from jaxlake.datasets.source_files import DatasetError, import_parquet
from jaxlake.files import make_room, unfinished_files, write_bytes_whole
from jaxlake.generator import MAX_CANDIDATES, Generated, LakeParams, quotas
from jaxlake.generator.board_digests import DigestSet, board_digests
from jaxlake.generator.mixture import board_counts, wait_counts
from jaxlake.generator.quotas import FilledQuotas, SolvedBoards
from jaxlake.instance import Instance
from jaxlake.solver import DEFAULT_HORIZON, Solution

DEFAULT_SHARD_SIZE = 4096

_MAX_COUNT = 1 << 31


@dataclass(frozen=True)
class WriteProgress:
    """How far a set is, after each shard."""

    shards: int  # on disk
    num_shards: int
    rows: int  # boards on disk
    handled: int  # boards made or missing so far
    count: int  # boards of the whole set


def write_shards(
    directory: str | Path,
    key: jax.Array,
    params: LakeParams,
    count: int,
    *,
    shard_size: int = DEFAULT_SHARD_SIZE,
    max_size: int = 10,
    max_agents: int = 2,
    horizon: int = DEFAULT_HORIZON,
    max_candidates: int = MAX_CANDIDATES,
    batch_size: int | None = None,
    progress: Callable[[WriteProgress], None] | None = None,
) -> Manifest:
    """Make a set of distinct, solved boards on disk, or go on with one that was interrupted.

    Args:
        directory: a new or empty folder, or one that this function, with these arguments, was
            interrupted in (or finished: then it is only checked).
        key: one typed PRNG key.
        params: the mixture, leaves (S,); see `lake_params`.
        count: boards of the whole set, S cells sharing it as `generate` would.
        shard_size: boards a file, the last one's may be fewer; at most 65,536.
        max_size: N, the padding of the boards.
        max_agents: K.
        horizon: see `solve`.
        max_candidates: candidates after which one cell's share of one shard is left incomplete;
            a kind of boards of which so many gave not one new board is not tried again. Drawing
            again what was there already can spend up to twice as many on top.
        batch_size: see `generate`; it changes no board.
        progress: called with a `WriteProgress` at the start and after each shard.

    Returns:
        The manifest, complete; its `cells` say what could not be made.

    Raises:
        ValueError: an argument is out of range.
        DatasetError: the folder holds something else, another request's boards, or damaged ones;
            or another process is writing there.
        ModuleNotFoundError: pyarrow is missing (the extra `hub`).
        OSError: a file can't be written.
    """
    limits = {
        "max_size": max_size,
        "max_agents": max_agents,
        "horizon": horizon,
        "max_candidates": max_candidates,
    }
    request = _request(key, params, count, shard_size, limits)
    options = quotas.DrawOptions(
        min(count, shard_size), max_size, max_agents, horizon, max_candidates, batch_size
    )
    import_parquet()
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with _only_writer(directory):
        manifest = _begin(directory, request)
        for path in (directory / FILE_NAME, directory / _file_name(len(manifest.shards))):
            for left in unfinished_files(path):
                left.unlink()
        seen = DigestSet()
        for shard in manifest.shards:
            seen.add(board_digests(_read(directory, shard, request).instances))
        report = progress or (lambda _: None)
        report(_progress(manifest))
        while not manifest.complete:
            number = len(manifest.shards)
            asked = np.where(manifest.given_up, 0, _share(request, number))
            own_key = jax.random.fold_in(key, number)
            filled = quotas.fill_quotas(own_key, params, asked, seen, options, oversample=True)
            shard = _write(directory, number, asked, filled)
            manifest = Manifest(request, (*manifest.shards, shard), manifest.jaxlake)
            write_manifest(directory, manifest)
            report(_progress(manifest))
    return manifest


def read_shards(
    directory: str | Path, *, verify: bool = True
) -> Iterator[tuple[Instance, Solution]]:
    """Yield the boards of a complete set, a shard at a time, with NumPy leaves, (B, ...).

    With `verify`, the hashes of files and arrays are compared with the manifest's.

    Raises:
        DatasetError: the set is not complete, or a shard is missing, truncated or damaged; the
            message names the file. Shards before it have been yielded by then.
    """
    manifest = _complete(directory)
    for shard in manifest.shards:
        boards = _read(Path(directory), shard, manifest.request, verify)
        yield boards.instances, boards.solutions


def load_shards(directory: str | Path, *, verify: bool = True) -> Generated:
    """Read a complete set as `generate` gives it: sorted by cell, all slots filled.

    It has NumPy leaves, (B, ...), B being the boards that were made. Its counts are the whole
    set's, saturated at the limits of int32. `verify` and errors are as for `read_shards`.
    """
    manifest = _complete(directory)
    boards = SolvedBoards.concatenate(
        [_read(Path(directory), shard, manifest.request, verify) for shard in manifest.shards]
    )
    boards = boards.take(np.argsort(boards.cell, kind="stable"))
    cells, most = manifest.cells, np.iinfo(np.int32).max
    counts = ("requested_wait", "requested_no_wait", "shortfall_wait", "shortfall_no_wait")
    leaves: dict[str, Any] = {
        name: np.minimum([cell[name] for cell in cells], most).astype(np.int32)
        for name in (*counts, *quotas.COUNTERS)
    }
    return Generated(
        instances=boards.instances,
        solutions=boards.solutions,
        filled=np.ones(len(boards), bool),  # type: ignore[arg-type]
        cell=boards.cell,  # type: ignore[arg-type]
        **leaves,
    )


def _request(
    key: jax.Array, params: LakeParams, count: int, shard_size: int, limits: dict[str, int]
) -> Request:
    for name, value, most in (
        ("count", count, _MAX_COUNT),
        ("shard_size", shard_size, quotas.MAX_CAPACITY),
        ("max_candidates", limits["max_candidates"], 1 << 30),
    ):
        if not 1 <= value <= most:
            raise ValueError(f"{name}: got {value}, 1 to {most} are allowed")
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or key.shape:
        raise ValueError(f"key: got {key.dtype} {key.shape}, one typed key is needed")
    leaves = {name: np.asarray(leaf) for name, leaf in vars(params).items()}
    S = len(leaves["size"])
    if any(leaf.shape != (S,) for leaf in leaves.values()):
        shapes = {name: leaf.shape for name, leaf in leaves.items()}
        raise ValueError(f"params: got the shapes {shapes}, one axis of cells is needed")
    counts = board_counts(params, count)
    waits = wait_counts(params, counts)
    return Request(
        key_impl=str(jax.random.key_impl(key)),
        key_data=np.asarray(jax.random.key_data(key)).tolist(),
        count=count,
        shard_size=shard_size,
        **limits,
        params={name: leaf.tolist() for name, leaf in leaves.items()},
        quotas=np.stack([counts - waits, waits], axis=1).tolist(),
    )


def _begin(directory: Path, request: Request) -> Manifest:
    """The manifest that is there, or a new one of no shards."""
    if (directory / FILE_NAME).exists():
        manifest = read_manifest(directory)
        had = asdict(manifest.request) | {"jaxlake": manifest.jaxlake}
        difference = first_difference(had, asdict(request) | {"jaxlake": version("jaxlake")})
        if difference is not None:
            raise DatasetError(f"{directory / FILE_NAME}: belongs to another set: {difference}")
        return manifest
    if not make_room(directory / FILE_NAME):
        others = set(directory.iterdir()) - set(unfinished_files(directory / FILE_NAME))
        raise DatasetError(
            f"{directory}: has {min(others).name!r} but no {FILE_NAME}; an empty folder is needed"
        )
    manifest = Manifest(request, (), version("jaxlake"))
    write_manifest(directory, manifest)
    return manifest


def _share(request: Request, number: int) -> np.ndarray:
    """int64 (S, 2): the part of the quotas that falls on one shard."""
    weights = np.array(request.quotas).reshape(-1)
    first = min(number * request.shard_size, request.count)
    last = min(first + request.shard_size, request.count)
    return (_webster(weights, last) - _webster(weights, first)).reshape(-1, 2)


def _webster(weights: np.ndarray, seats: int) -> np.ndarray:
    """Whole shares of `seats` in proportion to whole weights, by Webster's method.

    The method is monotone (Balinski and Young, *Fair Representation*, 1982): one more seat never
    costs anyone a seat. So differences of two allotments are allotments too, and for all seats
    everyone has its weight.
    """
    whole = [int(weight) for weight in weights]
    # All thresholds (2 i + 1) / (2 weight) up to `level` are passed, which are at most `seats`.
    level = max(Fraction(0), Fraction(2 * seats - len(whole), 2 * sum(whole)))
    shares = [int(level * weight + Fraction(1, 2)) for weight in whole]

    def threshold(i: int) -> tuple[Fraction, int]:
        return Fraction(2 * shares[i] + 1, 2 * whole[i]), i

    queue = [threshold(i) for i, weight in enumerate(whole) if weight]
    heapq.heapify(queue)
    for _ in range(seats - sum(shares)):
        i = queue[0][1]
        shares[i] += 1
        heapq.heapreplace(queue, threshold(i))
    return np.array(shares, np.int64)


def _write(directory: Path, number: int, asked: np.ndarray, filled: FilledQuotas) -> Shard:
    table, file = columns.to_columns(filled.boards), _file_name(number)
    content = columns.to_parquet(table)
    write_bytes_whole(directory / file, content)
    return Shard(
        file=file,
        rows=len(filled.boards),
        sha256=hashlib.sha256(content).hexdigest(),
        content_sha256=columns.content_sha256(table),
        asked=asked.tolist(),
        made=filled.made.tolist(),
        counters={name: values.tolist() for name, values in filled.counters.items()},
    )


def _file_name(number: int) -> str:
    return f"shard-{number:06d}.parquet"


def _read(directory: Path, shard: Shard, request: Request, verify: bool = True) -> SolvedBoards:
    path = directory / shard.file
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DatasetError(f"{path}: is missing, but the manifest names it") from None
    except OSError as error:
        raise DatasetError(f"{path}: can't be read: {error.strerror or error}") from None
    if verify and hashlib.sha256(content).hexdigest() != shard.sha256:
        raise DatasetError(
            f"{path}: damaged or truncated: SHA-256 of its {len(content):,} bytes is not the "
            "manifest's"
        )
    sizes = {name: getattr(request, name) for name in ("max_size", "max_agents", "horizon")}
    try:
        table = columns.from_parquet(content)
        boards = columns.from_columns(table, **sizes)
    except ValueError as error:
        raise DatasetError(f"{path}: {error}") from None
    if len(boards) != shard.rows:
        raise DatasetError(f"{path}: got {len(boards)} boards, the manifest says {shard.rows}")
    if verify and columns.content_sha256(table) != shard.content_sha256:
        raise DatasetError(f"{path}: SHA-256 of its arrays is not the manifest's")
    return boards


def _complete(directory: str | Path) -> Manifest:
    manifest = read_manifest(directory)
    if not manifest.complete:
        raise DatasetError(
            f"{Path(directory) / FILE_NAME}: {len(manifest.shards)} of {manifest.num_shards} "
            "shards are there; make the set again with the same arguments to go on"
        )
    return manifest


def _progress(manifest: Manifest) -> WriteProgress:
    shards, count = len(manifest.shards), manifest.request.count
    handled = min(shards * manifest.request.shard_size, count)
    return WriteProgress(shards, manifest.num_shards, manifest.rows, handled, count)


@contextmanager
def _only_writer(directory: Path) -> Iterator[None]:
    """Keep other processes from writing to the folder; the system frees it when this one ends."""
    try:
        import fcntl
    except ModuleNotFoundError:
        # Windows has no such locks on folders.
        yield
        return
    folder = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DatasetError(f"{directory}: another process is writing there") from None
        yield
    finally:
        os.close(folder)
