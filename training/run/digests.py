"""SHA-256 digests of records, files and folders, in the format of `sha256sum`."""

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jaxlake.files import write_text_atomic

DIGESTS_FILE = "SHA256SUMS"


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file; an `OSError` has the file's `filename`."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:  # without a filename if reading the open file failed
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_digests(folder: Path, *, excluded: tuple[str, ...] = ()) -> None:
    """Write the SHA-256 of every file below `folder` to its `SHA256SUMS`.

    `excluded` are names of files to omit.
    """
    write_text_atomic(folder / DIGESTS_FILE, _digest_lines(folder, excluded))


def folder_digest(folder: Path) -> str:
    """Return the SHA-256 of the names and digests of all files below a folder."""
    return hashlib.sha256(_digest_lines(folder).encode()).hexdigest()


def lines_digest(values: Iterable[Any]) -> str:
    """Return the SHA-256 of values as JSON lines with sorted keys and without whitespace."""
    lines = (json.dumps(value, sort_keys=True, separators=(",", ":")) for value in values)
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode("ascii")).hexdigest()


def metrics_digest(metrics: Iterable[Any], stage: int) -> str:
    """Return the SHA-256 of the records of `metrics.jsonl` that belong to a stage."""
    return lines_digest(
        record.model_dump(mode="json") for record in metrics if record.stage == stage
    )


def find_damage(folder: Path, *, excluded: tuple[str, ...] = ()) -> str | None:
    """Return a description of the first file that differs from its digest, or None.

    The folder has a `SHA256SUMS`. Files with the names `excluded` need no digest.

    Raises:
        OSError: A file can't be read; its `filename` is set.
    """
    try:
        text = (folder / DIGESTS_FILE).read_bytes().decode("utf-8", "replace")
        pairs = (line.partition("  ") for line in text.splitlines())
        digests = {name: digest for digest, _, name in pairs}
        names = _file_names(folder) - set(excluded)
        for name in sorted(digests.keys() | names):
            file = folder / name
            if name not in names:
                return f"{file} is missing"
            if name not in digests:
                return f"{file} is not listed in {DIGESTS_FILE}"
            if file_digest(file) != digests[name]:
                return f"{file} has a different SHA-256 than in {DIGESTS_FILE}"
    except FileNotFoundError as error:
        return f"{error.filename} is missing"
    except OSError as error:
        name = error.filename or str(folder / DIGESTS_FILE)
        raise OSError(error.errno, error.strerror, name) from error
    return None


def _digest_lines(folder: Path, excluded: tuple[str, ...] = ()) -> str:
    names = sorted(_file_names(folder) - set(excluded))
    return "".join(f"{file_digest(folder / name)}  {name}\n" for name in names)


def _file_names(folder: Path) -> set[str]:
    """Return the names of all files below a folder; raise an `OSError` if one can't be listed."""

    def fail(error: OSError) -> None:
        raise error

    walk = os.walk(folder, onerror=fail)
    files = [Path(parent, name) for parent, _, names in walk for name in names]
    names = {file.relative_to(folder).as_posix() for file in files if file.is_file()}
    return names - {DIGESTS_FILE}
