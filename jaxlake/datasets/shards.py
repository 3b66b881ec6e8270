"""Large sets on disk: Parquet shards and a manifest, made one shard at a time.

Shard j is made from the key `fold_in(key, j)` and from what the shards before it hold, which is
all that its content depends on. The set's quotas are shared out so that every shard is a sample of
the whole mixture, and a board that an earlier shard has is drawn again (`fill_quotas`). So no
board comes twice in a set, its quotas are those of `generate` for the whole count, and a run that
was killed at any moment goes on to the same bytes: shards and manifest appear by rename, the
shard first.

A set can be made in P parts, by as many processes as there are, at any time and on any machines.
Part i makes a run of consecutive shards in a folder of its own, of boards that belong to part i of
all boards (`jaxlake.generator.board_parts`). So parts have no board in common though none knows
of the others, and "the shards before it" are those of the same part. `merge_parts` writes the
manifest of the whole set. Its boards depend on P, not on who made which part, or when. What a part
can't make, no other part makes up for: a set that wants nearly all boards of a kind may get a few
less of them in parts than in one piece.

In memory are one shard at a time, and 16 bytes a board on the host (a 128-bit digest, by which
duplicates are told; 48 at the moment when they are merged).
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.instance import Instance
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
from jaxlake.generator.board_parts import ALL_BOARDS, Part, checked_part, part_of
from jaxlake.generator.mixture import board_counts, wait_counts
from jaxlake.generator.quotas import FilledQuotas, SolvedBoards
from jaxlake.runtime.random_keys import check_kind
from jaxlake.solver import DEFAULT_HORIZON, Solution

DEFAULT_SHARD_SIZE = 4096

_MAX_COUNT = (1 << 31) - 1  # quotas are int32 numbers


@dataclass(frozen=True)
class WriteProgress:
    """How far a set is, after each shard."""

    shards: int  # on disk
    num_shards: int
    rows: int  # boards on disk
    handled: int  # boards made or missing so far
    count: int  # boards of the whole set, or of the part that is made


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
    part: Part = ALL_BOARDS,
    progress: Callable[[WriteProgress], None] | None = None,
) -> Manifest:
    """Make a set of distinct, solved boards on disk, or go on with one that was interrupted.

    Args:
        directory: a new or empty folder, or one that this function, with these arguments, was
            interrupted in (or finished: then it is only checked). One part goes to a folder of that
            kind inside it, `part_folder`, beside those of other parts.
        key: one typed PRNG key, of a kind that `generate` takes.
        params: the mixture, leaves (S,); see `lake_params`.
        count: boards of the whole set, 1 to 2**31 - 1, S cells sharing it as `generate` would.
        shard_size: boards a file, the last one's may be fewer; at most 65,536.
        max_size: N, the padding of the boards.
        max_agents: K.
        horizon: see `solve`.
        max_candidates: candidates after which one cell's share of one shard is left incomplete;
            a kind of boards of which so many gave not one new board is not tried again. Drawing
            again what was there already can spend up to twice as many on top.
        batch_size: see `generate`; it changes no board.
        part: (i, P), make part i, counted from 0, of the P parts of the set; the other arguments
            are those of the whole set. With `jax.distributed`, a part for each process is
            `(jax.process_index(), jax.process_count())`. There are as many shards as parts, or
            more.
        progress: called with a `WriteProgress` at the start and after each shard.

    Returns:
        The manifest of the set or of the part, complete; its `cells` say what could not be made.

    Raises:
        ValueError: an argument is out of range.
        DatasetError: the folder holds something else, another request's boards or parts, or
            damaged boards; or another process is writing there.
        ModuleNotFoundError: pyarrow is missing (the extra `hub`).
        OSError: a file can't be written.
    """
    limits: dict[str, Any] = {
        "max_size": max_size,
        "max_agents": max_agents,
        "horizon": horizon,
        "max_candidates": max_candidates,
    }
    request = _request(key, params, count, shard_size, limits, part)
    capacity = min(count, shard_size)
    options = quotas.DrawOptions(capacity, **limits, batch_size=batch_size, part=part)
    import_parquet()
    directory = Path(directory)
    if part != ALL_BOARDS:
        _check_beside(directory, request)
        directory /= part_folder(part)
    directory.mkdir(parents=True, exist_ok=True)
    with _only_writer(directory):
        manifest = _begin(directory, request)
        if not manifest.complete:
            following = _file_name(request.shard_numbers[len(manifest.shards)])
            for path in (directory / FILE_NAME, directory / following):
                for left in unfinished_files(path):
                    left.unlink()
        seen = DigestSet()
        for shard in manifest.shards:
            seen.add(board_digests(_read(directory, shard, request).instances))
        report = progress or (lambda _: None)
        report(_progress(manifest))
        for number in request.shard_numbers[len(manifest.shards) :]:
            asked = np.where(manifest.given_up, 0, request.share(range(number, number + 1)))
            own_key = jax.random.fold_in(key, number)
            filled = quotas.fill_quotas(own_key, params, asked, seen, options, oversample=True)
            shard = _write(directory, number, asked, filled)
            manifest = Manifest(request, (*manifest.shards, shard), manifest.jaxlake)
            write_manifest(directory, manifest)
            report(_progress(manifest))
    return manifest


def part_folder(part: Part) -> str:
    """Name the folder of one part inside that of its set."""
    index, parts = part
    return f"part-{index:05d}-of-{parts:05d}"


def merge_parts(directory: str | Path, *, verify: bool = False) -> Manifest:
    """Write the manifest of a set whose parts lie in a folder; no shard is moved or copied.

    Parts that were made on other disks are copied there first, folder by folder. Merging again
    changes nothing.

    Args:
        directory: the folder given to `write_shards` for each part.
        verify: read every shard, compare the hashes of files and arrays, and see that each board
            belongs to its part. Otherwise it is only seen that the files are there.

    Returns:
        The manifest of the set, complete.

    Raises:
        DatasetError: a part or a shard of it is missing, incomplete, or of another request, or
            the folder holds another set; the message names the folder or file and the difference.
        OSError: the manifest can't be written.
    """
    directory = Path(directory)
    found = _parts_in(directory)
    if not found:
        raise DatasetError(f"{directory}: has no part of a set, such as {part_folder((0, 2))}")
    parts = found[0][1]
    manifests: list[Manifest] = []
    for index in range(parts):
        folder = directory / part_folder((index, parts))
        if (index, parts) not in found:
            raise DatasetError(f"{folder}: is missing; {len(found)} of {parts} parts are there")
        manifests.append(read_manifest(folder))
        first = manifests[0]
        request = replace(first.request, part=index, parts=parts)
        _same_set(folder, manifests[-1], request, first.jaxlake)
        _check_complete(folder, manifests[-1])
    merged = Manifest(replace(request, part=None), (), first.jaxlake)
    with _only_writer(directory):
        if (directory / FILE_NAME).exists():
            _same_set(directory, read_manifest(directory), merged.request, merged.jaxlake)
        for index, manifest in enumerate(manifests):
            folder = Path(part_folder((index, parts)))
            shards = tuple(replace(s, file=(folder / s.file).as_posix()) for s in manifest.shards)
            for shard in shards:
                _check_part(directory, shard, manifest.request, verify=verify)
            merged = replace(merged, shards=(*merged.shards, *shards))
        write_manifest(directory, merged)
    return merged


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
    key: jax.Array,
    params: LakeParams,
    count: int,
    shard_size: int,
    limits: dict[str, int],
    part: Part,
) -> Request:
    for name, value, most in (
        ("count", count, _MAX_COUNT),
        ("shard_size", shard_size, quotas.MAX_CAPACITY),
        ("max_candidates", limits["max_candidates"], 1 << 30),
    ):
        if not 1 <= value <= most:
            raise ValueError(f"{name}: got {value}, 1 to {most} are allowed")
    index, parts = checked_part(part)
    if parts > (shards := -(-count // shard_size)):
        raise ValueError(f"part: got {parts} parts, the set has {shards} shards to share out")
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or key.shape:
        raise ValueError(f"key: got {key.dtype} {key.shape}, one typed key is needed")
    check_kind(key)
    leaves = {name: np.asarray(leaf) for name, leaf in vars(params).items()}
    S = len(leaves["size"])
    if any(leaf.shape != (S,) for leaf in leaves.values()):
        shapes = {name: leaf.shape for name, leaf in leaves.items()}
        raise ValueError(f"params: got the shapes {shapes}, one axis of cells is needed")
    for name, leaf in leaves.items():
        if not np.isfinite(leaf).all():
            raise ValueError(f"params.{name}: got {leaf.tolist()}, finite numbers are needed")
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
        part=None if part == ALL_BOARDS else index,
        parts=parts,
    )


def _begin(directory: Path, request: Request) -> Manifest:
    """The manifest that is there, or a new one of no shards."""
    if (directory / FILE_NAME).exists():
        manifest = read_manifest(directory)
        _same_set(directory, manifest, request, version("jaxlake"))
        return manifest
    if not make_room(directory / FILE_NAME):
        others = set(directory.iterdir()) - set(unfinished_files(directory / FILE_NAME))
        raise DatasetError(
            f"{directory}: has {min(others).name!r} but no {FILE_NAME}; an empty folder is needed"
        )
    manifest = Manifest(request, (), version("jaxlake"))
    write_manifest(directory, manifest)
    return manifest


def _same_set(directory: Path, manifest: Manifest, request: Request, made_by: str) -> None:
    """Raise an error if a manifest is not that of the request, or made by another version."""
    had = asdict(manifest.request) | {"jaxlake": manifest.jaxlake}
    difference = first_difference(had, asdict(request) | {"jaxlake": made_by})
    if difference is not None:
        raise DatasetError(f"{directory / FILE_NAME}: belongs to another set: {difference}")


def _parts_in(directory: Path) -> list[Part]:
    """List the parts whose folders are there, all of one number of parts."""
    pattern = re.compile(r"part-(\d{5,})-of-(\d{5,})")
    names = [path.name for path in directory.iterdir()] if directory.is_dir() else []
    matches = [match for match in map(pattern.fullmatch, names) if match]
    found = sorted((int(match[1]), int(match[2])) for match in matches)
    if len(numbers := sorted({parts for _, parts in found})) > 1:
        raise DatasetError(f"{directory}: has parts of {numbers} parts, one number is allowed")
    return found


def _check_beside(directory: Path, request: Request) -> None:
    """Raise an error if a folder in which a part is to be made has other sets or their parts."""
    own, made_by = (request.part or 0, request.parts), version("jaxlake")
    for part in _parts_in(directory):
        folder = directory / part_folder(part)
        if part[1] != request.parts:
            raise DatasetError(
                f"{folder}: belongs to another set: {request.parts} parts are asked for"
            )
        if part != own and (folder / FILE_NAME).exists():
            wanted = replace(request, part=part[0])
            _same_set(folder, read_manifest(folder), wanted, made_by)
    if (directory / FILE_NAME).exists():
        whole = replace(request, part=None)
        _same_set(directory, read_manifest(directory), whole, made_by)


def _check_part(directory: Path, shard: Shard, request: Request, *, verify: bool) -> None:
    """Raise an error if a part's file is missing or, with `verify`, not what it should be."""
    path = directory / shard.file
    if not path.is_file():
        raise DatasetError(f"{path}: is missing, but the manifest of its part names it")
    if verify:
        boards = _read(directory, shard, request)
        others = int(np.sum(part_of(boards.instances, request.parts) != request.part))
        if others:
            raise DatasetError(f"{path}: {others} of its boards belong to other parts")


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
    _check_complete(Path(directory), manifest)
    return manifest


def _check_complete(directory: Path, manifest: Manifest) -> None:
    if not manifest.complete:
        raise DatasetError(
            f"{directory / FILE_NAME}: {len(manifest.shards)} of {manifest.num_shards} shards are "
            "there; make the set again with the same arguments to go on"
        )


def _progress(manifest: Manifest) -> WriteProgress:
    shards, request = len(manifest.shards), manifest.request
    handled = request.boards(request.shard_numbers[:shards])
    return WriteProgress(shards, manifest.num_shards, manifest.rows, handled, manifest.count)


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
