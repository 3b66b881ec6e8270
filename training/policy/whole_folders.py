"""Folders that appear whole: written beside their place, synced to disk, and renamed."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NO_SYNC = (errno.EINVAL, errno.ENOTSUP)
"""What file systems say that can't sync folders."""


@contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """Give an empty folder to write to, which takes this one's place when the block ends.

    An older folder of that name is kept until then, and stays if the block fails. If the process
    dies between the two renames, `restore` brings the older one back. What has the name is on the
    disk, so that a host that crashes leaves no shortened files there.
    """
    new, old = _sibling(folder, "partial"), _sibling(folder, "old")
    restore(folder)
    for leftover in (new, old):
        shutil.rmtree(leftover, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        yield new
        _sync(new)
        if folder.exists():
            os.replace(folder, old)
        os.replace(new, folder)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        restore(folder)
        raise
    if old.exists():
        _sync_folder(folder.absolute().parent)  # the new name, before the older files are gone
        shutil.rmtree(old, ignore_errors=True)


def restore(folder: Path) -> None:
    """Undo the first rename of a `replaced` that was killed before its second."""
    old = _sibling(folder, "old")
    if old.is_dir() and not folder.exists():
        os.replace(old, folder)


def _sync(folder: Path) -> None:
    """Write all files of a folder to the disk, then the folders that name them."""
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            _sync_file(Path(parent, name))
        _sync_folder(Path(parent))


def _sync_folder(folder: Path) -> None:
    try:
        _sync_file(folder)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


def _sync_file(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:  # it names no file
        raise OSError(error.errno, error.strerror, str(file)) from error
    finally:
        os.close(descriptor)


def _sibling(folder: Path, suffix: str) -> Path:
    folder = folder.absolute()
    return folder.with_name(f".{folder.name}.{suffix}")
