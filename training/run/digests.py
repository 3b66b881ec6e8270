"""Digests of all files of a folder, in the form that `sha256sum --check` reads."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jaxlake.files import write_text_whole

HASHES = "SHA256SUMS"


def write_digests(folder: Path, *, left_out: tuple[str, ...] = ()) -> None:
    """Write the SHA-256 of every file in `folder` and below to its file `SHA256SUMS`.

    Files of the names `left_out`, directly in the folder, have no digest.
    """
    names = sorted(_names(folder) - set(left_out))
    text = "".join(f"{_digest(folder / name)}  {name}\n" for name in names)
    write_text_whole(folder / HASHES, text)


def damage_of(folder: Path, *, left_out: tuple[str, ...] = ()) -> str | None:
    """Name a file of the folder that is not the one that was hashed, and say why; None if all are.

    Files of the names `left_out`, directly in the folder, are not looked at.

    Raises:
        OSError: A file that is there, or a folder, can't be read, so that nothing is known of it.
            Its `filename` says which.
    """
    try:
        with _named(folder / HASHES):
            text = (folder / HASHES).read_text(encoding="utf-8", errors="replace")
        lines = text.splitlines()
        digests = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
        there = _names(folder) - set(left_out)
        for name in sorted(digests.keys() | there):
            file = folder / name
            if name not in there:
                return f"{file} is missing"
            if name not in digests:
                return f"{file} is not among the files of {HASHES}"
            if _digest(file) != digests[name]:
                return f"{file} has another SHA-256 than {HASHES} says"
    except FileNotFoundError as error:
        return f"{error.filename} is missing"
    return None


def _names(folder: Path) -> set[str]:
    return {
        file.relative_to(folder).as_posix() for file in _files(folder) if file != folder / HASHES
    }


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder and below.

    `Path.rglob` would pass over folders that can't be read, as if they were empty.
    """

    def fail(error: OSError) -> None:
        raise error

    for parent, _, names in os.walk(folder, onerror=fail):
        for name in names:
            file = Path(parent, name)
            try:
                mode = file.stat().st_mode
            except FileNotFoundError:  # a link that leads nowhere
                continue
            if stat.S_ISREG(mode):
                yield file


def _digest(file: Path) -> str:
    with _named(file), file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@contextmanager
def _named(file: Path) -> Iterator[None]:
    """Put the file into errors of the system: those of reading an open file name none."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from error
