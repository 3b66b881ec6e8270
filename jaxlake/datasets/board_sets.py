"""Large sets of boards on disk, made in parts by any number of processes.

`jaxlake.generator.board_parts` divides all boards into P parts. Part i of the set contains only
boards of the i-th of them, generated with the key `fold_in(fold_in(key, i), 0)`. Parts are
therefore disjoint, and can be made in any order.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import jax
import numpy as np

from jaxlake.board.limits import MAX_AGENTS, MAX_SIZE, validate_lake_params
from jaxlake.datasets.board_files import (
    COUNTS,
    check_leaves,
    concatenate,
    open_boards,
    read_boards,
    write_boards,
)
from jaxlake.datasets.source_files import DatasetError, read_text
from jaxlake.errors import shorten
from jaxlake.files import (
    clear_unused_folder,
    load_json,
    remove_temporary_files,
    require_plain_files,
    write_text_if_absent,
)
from jaxlake.generator import Generated, LakeParams
from jaxlake.generator.board_parts import MAX_PARTS, part_of
from jaxlake.generator.generation import generate_quietly
from jaxlake.remote_files import AnyPath, as_path
from jaxlake.runtime.random_keys import check_key
from jaxlake.solver import DEFAULT_HORIZON
from jaxlake.solver.entry_points import MAX_HORIZON

MANIFEST = "manifest.json"
MAX_PART_SIZE = 1 << 20

_FORMAT = "jaxlake-boards-1"
_REQUEST = "request"  # name of the array with the manifest's text in each part


@dataclass(frozen=True)
class Manifest:
    """The arguments that determine the boards of a set, as JSON values."""

    key_impl: str
    key_data: list[int]
    count: int
    part_size: int
    max_size: int
    max_agents: int
    horizon: int  # steps
    max_candidates: int | None  # per kind and part
    params: dict[str, list[float]]  # the leaves of LakeParams, (S,)
    jaxlake: str  # the version that made the set
    format: str = _FORMAT

    @property
    def num_parts(self) -> int:
        """The number of parts of the set."""
        return -(-self.count // self.part_size)

    def part_count(self, part: int) -> int:
        """Return the requested number of boards of a part."""
        return min(self.part_size, self.count - part * self.part_size)

    @property
    def text(self) -> str:
        """The manifest as JSON."""
        return json.dumps(asdict(self), indent=1, allow_nan=False) + "\n"


def part_path(directory: str | AnyPath, part: int) -> AnyPath:
    """Return the file path of a part of a set."""
    return as_path(directory) / f"part-{part:05d}.npz"


def make_set(
    directory: str | AnyPath,
    key: jax.Array,
    params: LakeParams,
    count: int,
    *,
    part_size: int = 1 << 16,
    worker: tuple[int, int] = (0, 1),
    max_size: int = 10,
    max_agents: int = 2,
    horizon: int = DEFAULT_HORIZON,
    max_candidates: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Manifest:
    """Make a set of distinct, solved boards on disk, or the missing parts of one.

    The set only depends on the arguments. Files are written atomically, and you can interrupt the
    call at any time; the same call resumes it.

    Args:
        directory: a new or empty folder, a folder with an unfinished set of the same arguments, or
            the URL of one in an object store, such as gs://bucket/folder
            (`pip install 'jaxlake[cloud]'`).
        key: one typed PRNG key, of a kind that `generate` supports.
        params: the mixture, leaves (S,); see `lake_params`. Each part is a sample of it.
        count: number of boards in the set, at least 1.
        part_size: number of boards per part, at most 2**20; the last part may have fewer. At most
            65,536 parts are allowed.
        worker: (i, W), make every W-th part, starting with part i. All W workers pass the same
            other arguments. With `jax.distributed`, use
            `(jax.process_index(), jax.process_count())`.
        max_size: N, the padded size of the boards.
        max_agents: K, the padded number of agents.
        horizon: see `solve`.
        max_candidates: see `generate`; applies to each part.
        progress: called with the number of this worker's parts on disk and its total number of
            parts, at the start and after each part.

    Returns:
        The manifest of the set.

    Raises:
        TypeError: `key` is not a typed key.
        ValueError: an argument is out of range.
        DatasetError: the folder holds other files, or a set with other arguments.
        OSError: a file can't be written.
    """
    _check_arguments(key, params, count, part_size, worker)
    manifest = Manifest(
        key_impl=str(jax.random.key_impl(key)),
        key_data=np.asarray(jax.random.key_data(key)).tolist(),
        count=count,
        part_size=part_size,
        max_size=max_size,
        max_agents=max_agents,
        horizon=horizon,
        max_candidates=max_candidates,
        params={name: np.asarray(leaf).tolist() for name, leaf in vars(params).items()},
        jaxlake=version("jaxlake"),
    )
    directory = as_path(directory)
    _write_manifest(directory, manifest)
    parts = range(worker[0], manifest.num_parts, worker[1])
    remaining_parts = [part for part in parts if not _has_part(directory, part, manifest)]
    report = progress or (lambda *_: None)
    num_finished = len(parts) - len(remaining_parts)
    report(num_finished, len(parts))
    for part in remaining_parts:
        path = part_path(directory, part)
        remove_temporary_files(path)
        boards = _make_part(key, params, part, manifest)
        write_boards(path, boards, **{_REQUEST: manifest.text})
        num_finished += 1
        report(num_finished, len(parts))
    return manifest


def read_manifest(directory: str | AnyPath) -> Manifest:
    """Read the manifest of a set.

    Raises:
        DatasetError: The manifest is missing or invalid.
        UserError: A file in the folder is a pipe, a device, or a link that points outside.
    """
    path = as_path(directory) / MANIFEST
    if isinstance(path, Path):
        require_plain_files(path.parent)
    if not path.exists():
        raise DatasetError(f"{path.parent}: must be the folder of a set, but {MANIFEST} is missing")
    try:
        fields = load_json(read_text(path))
    except ValueError as error:
        raise DatasetError(f"{path}: {error}") from None
    if not isinstance(fields, dict) or fields.get("format") != _FORMAT:
        raise DatasetError(f"{path}: format must be {_FORMAT!r}")
    try:
        manifest = Manifest(**fields)
        _check_manifest(manifest)
    except TypeError as error:
        raise DatasetError(f"{path}: a field is missing or unknown: {error!s:.200}") from None
    except ValueError as error:
        raise DatasetError(f"{path}: {error!s:.300}") from None
    return manifest


def _check_manifest(manifest: Manifest) -> None:
    """Raise `ValueError` or `TypeError` unless a set can have this manifest."""
    limits = {"max_size": MAX_SIZE, "max_agents": MAX_AGENTS, "horizon": MAX_HORIZON}
    for name in ("count", "part_size", *limits):
        number = getattr(manifest, name)
        if type(number) is not int or not 1 <= number <= limits.get(name, number):
            allowed = f"from 1 to {limits[name]}" if name in limits else "of at least 1"
            raise ValueError(f"{name} must be a whole number {allowed}, got {shorten(number)}")
    _check_counts(manifest.count, manifest.part_size)
    fields = validate_lake_params(**manifest.params)
    if {field.shape for field in fields.values()} != {fields["size"].shape[:1]}:
        raise ValueError("params must be lists of equal lengths, got different lengths")
    _ = manifest.text  # raises for infinite numbers


def missing_parts(directory: str | AnyPath) -> list[int]:
    """Return the numbers of the parts of a set that are not on disk."""
    parts = range(read_manifest(directory).num_parts)
    names = {file.name for file in as_path(directory).iterdir()}
    return [part for part in parts if part_path(directory, part).name not in names]


def read_counts(directory: str | AnyPath) -> dict[str, np.ndarray]:
    """Return the counts of `Generated`, summed over the parts on disk: int64 (S,) by name."""
    manifest = read_manifest(directory)
    totals = {name: np.zeros(len(manifest.params["size"]), np.int64) for name in COUNTS}
    for part in range(manifest.num_parts):
        if _has_part(as_path(directory), part, manifest):
            with open_boards(part_path(directory, part)) as arrays:
                for name, total in totals.items():
                    total += arrays[name]
    return totals


def read_parts(directory: str | AnyPath) -> Iterator[Generated]:
    """Yield the parts of a complete set as `generate` returns them: NumPy leaves, all filled.

    Raises:
        DatasetError: a part is missing, damaged, or does not match the manifest; the message names
            the file. Parts before a damaged one are yielded first.
    """
    manifest = read_manifest(directory)
    if indices := missing_parts(directory):
        raise DatasetError(
            f"{directory}: {len(indices)} of {manifest.num_parts} parts are missing, the first is "
            f"{part_path(directory, indices[0]).name}; make the set again with the same arguments"
        )
    for part in range(manifest.num_parts):
        path = part_path(directory, part)
        _has_part(as_path(directory), part, manifest)
        boards = read_boards(path)
        try:
            check_leaves(boards, manifest.max_size, manifest.max_agents, manifest.horizon)
            if np.any(part_of(boards.instances, manifest.num_parts) != part):
                raise ValueError("its boards belong to another part")
        except ValueError as error:
            raise DatasetError(f"{path}: {error}") from None
        yield boards


def load_set(directory: str | AnyPath) -> Generated:
    """Read a complete set as `generate` returns it: sorted by component, all slots filled.

    Args:
        directory: the folder or URL of the set.

    Returns:
        The boards, with NumPy leaves; counts are int64 sums over the parts.

    Raises:
        DatasetError: as for `read_parts`.
    """
    return concatenate(list(read_parts(directory)))


def _check_arguments(
    key: jax.Array, params: LakeParams, count: int, part_size: int, worker: tuple[int, int]
) -> None:
    _check_counts(count, part_size)
    if not 0 <= worker[0] < worker[1]:
        raise ValueError(f"worker must be (i, W) with 0 <= i < W, got {worker}")
    check_key(key)
    for name, leaf in vars(params).items():
        if not np.isfinite(leaf).all():
            raise ValueError(f"params.{name} must be finite numbers, got {np.asarray(leaf)}")


def _check_counts(count: int, part_size: int) -> None:
    if not 1 <= part_size <= MAX_PART_SIZE:
        raise ValueError(f"part_size must be in [1, {MAX_PART_SIZE}], got {part_size}")
    max_count = MAX_PARTS * part_size
    if not 1 <= count <= max_count:
        raise ValueError(
            f"count must be in [1, {max_count}] if part_size is {part_size}, got {count}"
        )


def _write_manifest(directory: AnyPath, manifest: Manifest) -> None:
    """Write the manifest, or raise `DatasetError` if the folder holds anything but this set."""
    path = directory / MANIFEST
    if not path.exists() and not clear_unused_folder(path):
        names = {file.name for file in directory.iterdir()}
        raise DatasetError(
            f"{directory}: has {min(names)!r} but no {MANIFEST}; use an empty folder"
        )
    if write_text_if_absent(path, manifest.text):
        return
    stored_fields = asdict(read_manifest(directory))
    for name, value in asdict(manifest).items():
        if stored_fields[name] != value:
            raise DatasetError(
                f"{path}: belongs to another set: {name}: the folder has {stored_fields[name]}, "
                f"this set has {value}"
            )


def _has_part(directory: AnyPath, part: int, manifest: Manifest) -> bool:
    """Return whether a part is on disk; raise `DatasetError` if it belongs to another set."""
    path = part_path(directory, part)
    if not path.exists():
        return False
    with open_boards(path) as arrays:
        request = str(arrays[_REQUEST])
    if request != manifest.text:
        raise DatasetError(f"{path}: belongs to another set than {MANIFEST}")
    return True


def _make_part(key: jax.Array, params: LakeParams, part: int, manifest: Manifest) -> Generated:
    # The 0 numbers the calls of `generate` for the part; there is only one.
    part_key = jax.random.fold_in(jax.random.fold_in(key, part), 0)
    # Always use JAX's default random bits since 0.5, regardless of the process settings.
    with jax.threefry_partitionable(True):
        boards = generate_quietly(
            part_key,
            params,
            manifest.part_count(part),
            part=(part, manifest.num_parts),
            max_size=manifest.max_size,
            max_agents=manifest.max_agents,
            horizon=manifest.horizon,
            max_candidates=manifest.max_candidates,
        )
        return jax.device_get(boards)
