"""Digests of files and folders, in the form that `sha256sum --check` reads, and of records."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jaxlake.files import write_text_whole

HASHES = "SHA256SUMS"


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file; the `filename` of an `OSError` says which can't be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:  # those of reading an open file name none
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_digests(folder: Path, *, left_out: tuple[str, ...] = ()) -> None:
    """Write the SHA-256 of every file below `folder`, but those `left_out`, to its `SHA256SUMS`."""
    write_text_whole(folder / HASHES, _digest_lines(folder, left_out))


def folder_digest(folder: Path) -> str:
    """Return the SHA-256 of the names and digests of all files below a folder."""
    return hashlib.sha256(_digest_lines(folder).encode()).hexdigest()


def lines_digest(values: Iterable[Any]) -> str:
    """Return the SHA-256 of values as lines of JSON, with sorted keys and no blanks."""
    lines = (json.dumps(value, sort_keys=True, separators=(",", ":")) for value in values)
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode("ascii")).hexdigest()


def metrics_digest(metrics: Iterable[Any], stage: int) -> str:
    """Hash those records of `metrics.jsonl` that belong to a stage."""
    return lines_digest(one.model_dump(mode="json") for one in metrics if one.stage == stage)


def damage_of(folder: Path, *, left_out: tuple[str, ...] = ()) -> str | None:
    """Name a file of the folder that is not the one that was hashed, and say why; None if all are.

    Raises:
        OSError: A file can't be read. Its `filename` says which.
    """
    try:
        text = (folder / HASHES).read_bytes().decode("utf-8", "replace")
        pairs = (line.partition("  ") for line in text.splitlines())
        digests = {name: digest for digest, _, name in pairs}
        names = _names(folder) - set(left_out)
        for name in sorted(digests.keys() | names):
            file = folder / name
            if name not in names:
                return f"{file} is missing"
            if name not in digests:
                return f"{file} is not among the files of {HASHES}"
            if file_digest(file) != digests[name]:
                return f"{file} has another SHA-256 than {HASHES} says"
    except FileNotFoundError as error:
        return f"{error.filename} is missing"
    except OSError as error:
        name = error.filename or str(folder / HASHES)
        raise OSError(error.errno, error.strerror, name) from error
    return None


def _digest_lines(folder: Path, left_out: tuple[str, ...] = ()) -> str:
    names = sorted(_names(folder) - set(left_out))
    return "".join(f"{file_digest(folder / name)}  {name}\n" for name in names)


def _names(folder: Path) -> set[str]:
    """List the files in a folder and below; a folder that can't be listed raises `OSError`."""

    def fail(error: OSError) -> None:
        raise error

    files = (
        Path(parent, name) for parent, _, names in os.walk(folder, onerror=fail) for name in names
    )
    return {file.relative_to(folder).as_posix() for file in files if file.is_file()} - {HASHES}
