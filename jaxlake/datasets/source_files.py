"""Read the files of data sets; errors name the file and the line."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxlake.files import decode_text, read_json_lines
from jaxlake.remote_files import AnyPath


class DatasetError(ValueError):
    """A data set or one of its rows is invalid; the message names the file and the line."""


def read_text(path: AnyPath) -> str:
    """Read a UTF-8 text file; raise `DatasetError` if it is unreadable or not UTF-8."""
    try:
        return decode_text(path.read_bytes())
    except OSError as error:
        raise DatasetError(f"{path}: can't be read: {error.strerror or error}") from None
    except ValueError as error:
        raise DatasetError(f"{path}: {error}") from None


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield ("PATH:LINE", row) for each line; raise `DatasetError` if a line is invalid."""
    try:
        for number, row in read_json_lines(path):
            location = f"{path}:{number}"
            if not isinstance(row, dict):
                kind = type(row).__name__
                raise DatasetError(f"{location}: a line must be a JSON object, got {kind}")
            yield location, row
    except OSError as error:
        raise DatasetError(f"{path}: can't be read: {error.strerror or error}") from None
    except ValueError as error:
        raise DatasetError(str(error)) from None
