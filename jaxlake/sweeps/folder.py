"""Folder of a sweep: `manifest.json`, and per chunk a file of rows and optionally of tables."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from jaxlake import __version__
from jaxlake.errors import shorten
from jaxlake.files import (
    load_json,
    remove_temporary_files,
    require_plain_files,
    write_bytes_atomic,
    write_text_atomic,
    write_text_if_absent,
)
from jaxlake.remote_files import AnyPath, as_path
from jaxlake.sweeps.chunk_files import (
    read_rows,
    row_columns,
    rows_bytes,
    tables_bytes,
    tables_owner,
)
from jaxlake.sweeps.knobs import SweepError
from jaxlake.sweeps.program import ChunkResult
from jaxlake.sweeps.spec import SweepSpec, spec_digest

MANIFEST = "manifest.json"

ROWS, TABLES = "rows", "tables"

_FORMAT = "jaxlake-sweep-1"
_MAX_ATTEMPTS = 5
T = TypeVar("T")


@dataclass(frozen=True)
class SweepFolder:
    """Files of one sweep."""

    path: AnyPath
    spec: SweepSpec

    def rows_path(self, chunk: int) -> AnyPath:
        """Return the path of a chunk's rows."""
        return self.path / ROWS / f"rows-{chunk:06d}.parquet"

    def tables_path(self, chunk: int) -> AnyPath:
        """Return the path of a chunk's tables."""
        return self.path / TABLES / f"tables-{chunk:06d}.npz"

    def create_or_verify(self) -> None:
        """Write the manifest of an empty folder, or check that the folder belongs to this sweep.

        Raises:
            SweepError: The folder contains other files or another sweep.
        """
        path, manifest = self.path / MANIFEST, self._manifest({})
        # Other processes may start concurrently; their files appear only after the manifest.
        names = [file.name for file in self.path.iterdir()] if self.path.exists() else []
        foreign_names = [name for name in names if not name.startswith(f".{MANIFEST}.")]
        if foreign_names and not path.exists():
            problem = f"has {min(foreign_names)!r} but no {MANIFEST}; use an empty folder"
            raise SweepError(f"{self.path}: {problem}")
        is_new = _retry(lambda: write_text_if_absent(path, _json_text(manifest)))
        if not is_new and (differences := _differences(read_manifest(self.path), manifest)):
            raise SweepError(f"{path}: belongs to another sweep: {'; '.join(differences)}")
        for folder in (ROWS, TABLES) if self.spec.tables else (ROWS,):
            if isinstance(self.path, Path):  # object stores have no folders
                (self.path / folder).mkdir(exist_ok=True)

    def has_chunk(self, chunk: int) -> bool:
        """Return whether the files of a chunk exist, are intact, and agree with the manifest.

        Raises:
            SweepError: A file belongs to another sweep.
        """
        digests = self._digests(chunk).items()
        return all(
            digest is not None and self._manifest_digests.get(name, digest) == digest
            for name, digest in digests
        )

    def write(self, chunk: int, result: ChunkResult) -> None:
        """Write the files of a chunk, each of them atomically.

        Args:
            chunk: The number of the chunk.
            result: Leaves (C, P, ...). Configurations beyond the end of the chunk are left out.
        """
        spec, owner, numbers = self.spec, self._chunk_id(chunk), self.spec.chunk_numbers(chunk)
        if result.tables is not None:
            tables = tables_bytes(spec, np.array(numbers), result.tables, owner)
            _write(self.tables_path(chunk), tables)
        knobs = spec.columns(numbers.start, numbers.stop)
        columns = row_columns(spec, np.array(numbers), knobs, result)
        _write(self.rows_path(chunk), rows_bytes(columns, owner))

    def finalize(self) -> bool:
        """Write the digests of all files into the manifest; return False if a file is missing."""
        digests: dict[str, str] = {}
        for chunk in range(self.spec.chunks):
            for name, digest in self._digests(chunk).items():
                if digest is None:
                    return False
                digests[name] = digest
        path, text = self.path / MANIFEST, _json_text(self._manifest(digests))
        if path.read_text(encoding="utf-8") != text:
            _retry(lambda: write_text_atomic(path, text))
        remove_temporary_files(path)
        return True

    def _manifest(self, files: Mapping[str, str]) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "jaxlake": __version__,
            "spec": self.spec.record,
            "digest": self.spec.digest,
            "configurations": self.spec.configurations,
            "rows": self.spec.configurations * len(self.spec.joint_policies),
            "files": files,  # SHA-256 by name once all files exist
        }

    @cached_property
    def _manifest_digests(self) -> Mapping[str, str]:
        """The digests in the manifest, as first read."""
        files: Mapping[str, str] = read_manifest(self.path)["files"]
        return files

    def _chunk_id(self, chunk: int) -> str:
        return f"{self.spec.digest} {chunk}"

    def _digests(self, chunk: int) -> dict[str, str | None]:
        """Return the SHA-256 of each file of a chunk; None for a missing or damaged file."""
        files: list[tuple[AnyPath, Callable[[bytes], str]]] = [
            (self.rows_path(chunk), lambda content: read_rows(content)[1])
        ]
        if self.spec.tables:
            files.append((self.tables_path(chunk), tables_owner))
        return {
            f"{path.parent.name}/{path.name}": _digest(path, read_owner, self._chunk_id(chunk))
            for path, read_owner in files
        }


def read_manifest(directory: str | AnyPath) -> dict[str, Any]:
    """Return the manifest of a sweep.

    Raises:
        SweepError: The manifest is missing, damaged or not from a sweep.
        UserError: A file in the folder is a pipe, a device, or a link that points outside.
    """
    path = as_path(directory) / MANIFEST
    if isinstance(path, Path):
        require_plain_files(path.parent)
    if not path.exists():
        raise SweepError(f"{path}: is missing, so the folder does not belong to a sweep")
    try:
        value = load_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SweepError(f"{path}: can't be read: {error}") from None
    if not isinstance(value, dict) or value.get("format") != _FORMAT:
        raise SweepError(f"{path}: format must be {_FORMAT!r}")
    for name in ("spec", "files"):
        if not isinstance(value.get(name), dict):
            raise SweepError(f"{path}: {name} must be a mapping, got {shorten(value.get(name))}")
    if value.get("digest") != spec_digest(value["spec"]):
        raise SweepError(f"{path}: digest must be the SHA-256 of spec; the file was changed")
    return value


def _write(path: AnyPath, content: bytes) -> None:
    remove_temporary_files(path)
    write_bytes_atomic(path, content)


def _digest(path: AnyPath, read_owner: Callable[[bytes], str], owner: str) -> str | None:
    try:
        content = path.read_bytes()
        actual = read_owner(content)
    except Exception:  # zipfile, NumPy and pyarrow raise many types
        return None
    if actual != owner:
        raise SweepError(f"{path}: belongs to another sweep than {MANIFEST}; remove it")
    return hashlib.sha256(content).hexdigest()


def _differences(stored: Mapping[str, Any], requested: Mapping[str, Any]) -> list[str]:
    """Return descriptions of the values that differ between two manifests, except the files."""
    names = ("jaxlake", "spec")
    stored_values, requested_values = (
        dict(_flatten("", {name: manifest[name] for name in names if name in manifest}))
        for manifest in (stored, requested)
    )
    return [
        f"{name.removeprefix('spec.')}: it has {shorten(stored_values.get(name))}, got "
        f"{shorten(requested_values.get(name))}"
        for name in sorted({*stored_values, *requested_values})
        if stored_values.get(name) != requested_values.get(name)
    ]


def _flatten(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings by dotted names."""
    if not isinstance(value, Mapping):
        yield prefix, value
        return
    for name, inner in value.items():
        yield from _flatten(f"{prefix}.{name}" if prefix else name, inner)


def _json_text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=1) + "\n"


def _retry(write: Callable[[], T]) -> T:
    """Write the manifest; retry if another process removes the temporary file as a leftover."""
    for _ in range(_MAX_ATTEMPTS - 1):
        with suppress(FileNotFoundError):
            return write()
    return write()
