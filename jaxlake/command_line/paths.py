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
        raise UserError(f"{path}: can't be written: {folder} is not a folder that allows it")


def usable_folder(option: str, path: Path) -> Path:
    """Return the output folder given by `option`; raise `UserError` if it is unusable."""
    above = path.absolute()
    while not above.exists():
        above = above.parent
    if not above.is_dir():
        problem = f"{above} is a file" if above != path.absolute() else "a file"
        raise UserError(f"{option} is {path}, {problem}; it must be a folder, or a new one")
    if not os.access(above, os.W_OK | os.X_OK):
        raise UserError(f"{option} is {path}, but nothing can be written in {above}")
    return path


def file_name(name: str, number: int, used_names: set[str]) -> str:
    """Return a valid file name for a record, and add it to `used_names`.

    If the name is taken, or has no valid characters, `number` makes it unique.
    """
    plain = re.sub(r"[^\w.-]+", "_", name).strip(".")[:100] or str(number)
    while plain in used_names:
        plain = f"{plain}_{number}"
    used_names.add(plain)
    return plain
