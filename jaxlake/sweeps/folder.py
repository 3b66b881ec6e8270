"""Files of a sweep: the manifest, and rows and optionally tables per chunk of configurations."""

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
    decode_rows,
    decode_tables_id,
    encode_rows,
    encode_tables,
    make_row_columns,
)
from jaxlake.sweeps.knobs import SweepError
from jaxlake.sweeps.program import ChunkResult
from jaxlake.sweeps.spec import SweepSpec, spec_digest

MANIFEST = "manifest.json"
ROWS_FOLDER = "rows"
TABLES_FOLDER = "tables"

_FORMAT = "jaxlake-sweep-1"
_MAX_ATTEMPTS = 5
T = TypeVar("T")


@dataclass(frozen=True)
class SweepFolder:
    """Files of one sweep."""

    path: AnyPath
    spec: SweepSpec

    def rows_path(self, chunk: int) -> AnyPath:
        """Return the path of the Parquet file of a chunk's rows."""
        return self.path / ROWS_FOLDER / f"rows-{chunk:06d}.parquet"

    def tables_path(self, chunk: int) -> AnyPath:
        """Return the path of a chunk's NPZ file, which exists if `spec.tables`."""
        return self.path / TABLES_FOLDER / f"tables-{chunk:06d}.npz"

    def create_or_verify(self) -> None:
        """Write the manifest of an empty folder, or check that the folder belongs to this sweep.

        Raises:
            SweepError: The folder contains other files or another sweep.
        """
        path, manifest = self.path / MANIFEST, self._make_manifest({})
        # Other processes may start concurrently; their files appear only after the manifest.
        names = [file.name for file in self.path.iterdir()] if self.path.exists() else []
        foreign_names = [name for name in names if not name.startswith(f".{MANIFEST}.")]
        if foreign_names and not path.exists():
            raise SweepError(
                f"{self.path}: has {min(foreign_names)!r} but no {MANIFEST}; use an empty folder"
            )
        is_new = _retry_write(lambda: write_text_if_absent(path, _format_json(manifest)))
        if not is_new and (
            differences := _describe_differences(read_manifest(self.path), manifest)
        ):
            raise SweepError(f"{path}: belongs to another sweep: {'; '.join(differences)}")
        for folder in (ROWS_FOLDER, TABLES_FOLDER) if self.spec.tables else (ROWS_FOLDER,):
            if isinstance(self.path, Path):  # object stores have no folders
                (self.path / folder).mkdir(exist_ok=True)

    def has_chunk(self, chunk: int) -> bool:
        """Return whether the files of a chunk exist, are intact, and agree with the manifest.

        Raises:
            SweepError: A file belongs to another sweep.
        """
        return all(
            digest is not None and self._manifest_digests.get(name, digest) == digest
            for name, digest in self._hash_chunk(chunk).items()
        )

    def write(self, chunk: int, result: ChunkResult) -> None:
        """Write the files of a chunk, each of them atomically.

        Args:
            chunk: The index of the chunk.
            result: Leaves (C, P, ...) of C configurations and P policies. Padding is left out.
        """
        spec, chunk_id = self.spec, self._make_chunk_id(chunk)
        chunk_range = spec.chunk_range(chunk)
        indices = np.array(chunk_range)
        if result.tables is not None:
            tables = encode_tables(spec, indices, result.tables, chunk_id)
            _replace_file(self.tables_path(chunk), tables)
        knobs = spec.columns(chunk_range.start, chunk_range.stop)
        columns = make_row_columns(spec, indices, knobs, result)
        _replace_file(self.rows_path(chunk), encode_rows(columns, chunk_id))

    def finalize(self) -> bool:
        """Write the digests of all files into the manifest; return False if a file is missing."""
        digests: dict[str, str] = {}
        for chunk in range(self.spec.chunks):
            for name, digest in self._hash_chunk(chunk).items():
                if digest is None:
                    return False
                digests[name] = digest
        path, text = self.path / MANIFEST, _format_json(self._make_manifest(digests))
        if path.read_text(encoding="utf-8") != text:
            _retry_write(lambda: write_text_atomic(path, text))
        remove_temporary_files(path)
        return True

    def _make_manifest(self, files: Mapping[str, str]) -> dict[str, Any]:
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

    def _make_chunk_id(self, chunk: int) -> str:
        return f"{self.spec.digest} {chunk}"

    def _hash_chunk(self, chunk: int) -> dict[str, str | None]:
        """Return the SHA-256 of each file of a chunk; None for a missing or damaged file."""
        readers: dict[AnyPath, Callable[[bytes], str]] = {
            self.rows_path(chunk): lambda content: decode_rows(content)[1]
        }
        if self.spec.tables:
            readers[self.tables_path(chunk)] = decode_tables_id
        chunk_id = self._make_chunk_id(chunk)
        return {
            f"{path.parent.name}/{path.name}": _hash_file(path, read_chunk_id, chunk_id)
            for path, read_chunk_id in readers.items()
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
        manifest = load_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SweepError(f"{path}: can't be read: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise SweepError(f"{path}: format must be {_FORMAT!r}")
    for name in ("spec", "files"):
        if not isinstance(manifest.get(name), dict):
            raise SweepError(f"{path}: {name} must be a mapping, got {shorten(manifest.get(name))}")
    if manifest.get("digest") != spec_digest(manifest["spec"]):
        raise SweepError(f"{path}: digest must be the SHA-256 of spec; the file was changed")
    return manifest


def _replace_file(path: AnyPath, content: bytes) -> None:
    remove_temporary_files(path)
    write_bytes_atomic(path, content)


def _hash_file(path: AnyPath, read_chunk_id: Callable[[bytes], str], chunk_id: str) -> str | None:
    try:
        content = path.read_bytes()
        stored_id = read_chunk_id(content)
    except Exception:  # zipfile, NumPy and pyarrow raise many types
        return None
    if stored_id != chunk_id:
        raise SweepError(f"{path}: does not belong to the sweep in {MANIFEST}; remove this file")
    return hashlib.sha256(content).hexdigest()


def _describe_differences(stored: Mapping[str, Any], requested: Mapping[str, Any]) -> list[str]:
    """Return one text per value that differs between two manifests, except the files."""
    names = ("jaxlake", "spec")
    stored_values, requested_values = (
        dict(_flatten("", {name: manifest[name] for name in names if name in manifest}))
        for manifest in (stored, requested)
    )
    return [
        f"{name.removeprefix('spec.')}: the folder has {shorten(stored_values.get(name))}, "
        f"this sweep has {shorten(requested_values.get(name))}"
        for name in sorted({*stored_values, *requested_values})
        if stored_values.get(name) != requested_values.get(name)
    ]


def _flatten(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the dotted names and values of nested mappings."""
    if not isinstance(value, Mapping):
        yield prefix, value
        return
    for name, item in value.items():
        yield from _flatten(f"{prefix}.{name}" if prefix else name, item)


def _format_json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=1) + "\n"


def _retry_write(write: Callable[[], T]) -> T:
    """Write the manifest; retry if another process removes the temporary file as a leftover."""
    for _ in range(_MAX_ATTEMPTS - 1):
        with suppress(FileNotFoundError):
            return write()
    return write()
