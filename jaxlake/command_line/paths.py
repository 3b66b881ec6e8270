"""Check and name output files and folders before the work starts."""

import os
import re
from pathlib import Path

from jaxlake.errors import UserError


def require_writable(path: str | Path | None, *, make_folders: bool = False) -> None:
    """Raise `UserError` if a file can't be written; None is always accepted.

    With `make_folders`, missing folders are allowed.
    """
    if path is None:
        return
    folder = Path(path).absolute().parent
    while make_folders and not folder.exists():
        folder = folder.parent
    if Path(path).is_dir():
        raise UserError(f"{path}: can't be written: is a folder")
    if not os.access(folder, os.W_OK | os.X_OK) or not folder.is_dir():
        raise UserError(f"{path}: can't be written: {folder} is not a writable folder")


def check_output_folder(option: str, path: Path) -> Path:
    """Return the output folder given by `option`; raise `UserError` if it is not writable."""
    parent = path.absolute()
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        problem = "a file" if parent == path.absolute() else f"in the file {parent}"
        raise UserError(f"{option} must be a new or existing folder, got {path}, {problem}")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UserError(f"{option} must be a writable folder, got {path} in {parent}")
    return path


def make_unique_name(name: str, number: int, used_names: set[str]) -> str:
    """Return a valid file name for a record, and add it to `used_names`.

    `number` makes names unique and replaces names without valid characters.
    """
    file_name = re.sub(r"[^\w.-]+", "_", name).strip(".")[:100] or str(number)
    while file_name in used_names:
        file_name = f"{file_name}_{number}"
    used_names.add(file_name)
    return file_name
