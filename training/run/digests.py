"""Digests of all files of a folder, in the form that `sha256sum --check` reads."""

from __future__ import annotations

import hashlib
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
    """
    try:
        lines = (folder / HASHES).read_text(encoding="utf-8", errors="replace").splitlines()
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
    except OSError as error:
        return f"{error.filename} can't be read: {error.strerror}"
    return None


def _names(folder: Path) -> set[str]:
    files = (file for file in folder.rglob("*") if file.is_file() and file != folder / HASHES)
    return {file.relative_to(folder).as_posix() for file in files}


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
