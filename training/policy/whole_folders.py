"""Folders that appear whole: written beside their place, and renamed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """Give an empty folder to write to, which takes this one's place when the block ends.

    An older folder of that name is kept until then, and stays if the block fails. If the process
    dies between the two renames, `restore` brings the older one back.
    """
    new, old = _sibling(folder, "partial"), _sibling(folder, "old")
    restore(folder)
    for leftover in (new, old):
        shutil.rmtree(leftover, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        yield new
        if folder.exists():
            os.replace(folder, old)
        os.replace(new, folder)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        restore(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def restore(folder: Path) -> None:
    """Undo the first rename of a `replaced` that was killed before its second."""
    old = _sibling(folder, "old")
    if old.is_dir() and not folder.exists():
        os.replace(old, folder)


def _sibling(folder: Path, suffix: str) -> Path:
    folder = folder.absolute()
    return folder.with_name(f".{folder.name}.{suffix}")
