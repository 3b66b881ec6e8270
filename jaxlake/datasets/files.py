"""Files that appear whole or not at all."""

import os
from pathlib import Path


class DatasetError(ValueError):
    """A data set on disk, or a row of one, that is not what it should be; names file and place."""


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader, and a restart after a kill, sees all of it or the old one.

    The temporary name is the same each time, so that what a killed writer left is written over.

    Raises:
        OSError: the folder is missing, or the file can't be written.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def read_text(path: Path) -> str:
    """A UTF-8 text, with a byte order mark or without.

    Raises:
        DatasetError: the file can't be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DatasetError(f"{path}: can't be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"{path}: not UTF-8: byte 0x{error.object[error.start]:02x} at {error.start}"
        ) from None
