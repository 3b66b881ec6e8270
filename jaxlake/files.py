"""Atomic file writes and readers for JSON and JSON lines."""

import errno
import io
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from jaxlake.errors import UserError
from jaxlake.remote_files import AnyPath, RemotePath

_TEMPORARY_NAME = re.compile(r"\..+\.[0-9]+\.tmp")


@contextmanager
def open_atomic(path: AnyPath, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file for atomic writing.

    The content goes to `.NAME.PID.tmp` in the same folder, which is renamed to `path` if the block
    ends without an error. A killed process leaves the temporary file behind. Symbolic links are
    followed. Pipes and devices are written to directly. The content of a URL is kept in memory
    until the block ends.

    Args:
        path: the target file or URL.
        mode: "w" for UTF-8 text or "wb" for bytes.

    Raises:
        IsADirectoryError: `path` is a folder.
        FileNotFoundError: the folder of `path` does not exist.
        OSError: the file can't be written.
    """
    if isinstance(path, RemotePath):
        content = io.BytesIO()
        text = None if "b" in mode else io.TextIOWrapper(content, "utf-8", write_through=True)
        yield text or content
        path.write_bytes(content.getvalue())
        return
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    encoding = None if "b" in mode else "utf-8"
    if path.exists() and not path.is_file():
        with path.open(mode, encoding=encoding) as file:
            yield file
        return
    path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))
    temporary_path = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary_path.open(mode, encoding=encoding) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary_path, path)
    except OSError as error:
        if error.filename is None and error.errno is not None:  # for example, from fsync
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        temporary_path.unlink(missing_ok=True)


def write_bytes_atomic(path: AnyPath, content: bytes) -> None:
    """Write bytes atomically; see `open_atomic`."""
    with open_atomic(path, "wb") as file:
        file.write(content)


def write_text_atomic(path: AnyPath, text: str) -> None:
    """Write UTF-8 text atomically; see `open_atomic`."""
    with open_atomic(path) as file:
        file.write(text)


def write_text_if_absent(path: AnyPath, text: str) -> bool:
    """Write UTF-8 text atomically if the file does not exist, and return whether it was written.

    If several processes call this at once, exactly one of them writes the file. File systems
    without hard links and object stores without conditional writes keep the last file instead.
    """
    if isinstance(path, RemotePath):
        try:
            path.write_bytes(text.encode(), replace=False)
        except FileExistsError:
            return False
        return True
    temporary_path = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with temporary_path.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary_path, path)
        except FileExistsError:
            return False
        except OSError:
            os.replace(temporary_path, path)
        return True
    finally:
        temporary_path.unlink(missing_ok=True)


def find_temporary_files(path: AnyPath) -> list[Path]:
    """Return the temporary files left behind by killed writers of `path`, sorted by name."""
    if isinstance(path, RemotePath) or not path.parent.is_dir():
        return []
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[0-9]+\.tmp")
    matches = (file for file in path.parent.iterdir() if pattern.fullmatch(file.name))
    return sorted(file for file in matches if file.is_file())


def remove_temporary_files_below(folder: Path) -> None:
    """Remove the temporary files of killed writers from a folder and its subfolders.

    Links are not followed. No other process may write to the folder at the same time.
    """
    for parent, _, names in os.walk(folder):
        for name in filter(_TEMPORARY_NAME.fullmatch, names):
            Path(parent, name).unlink(missing_ok=True)


def require_inside(path: Path, root: Path) -> None:
    """Raise a `UserError` if `path` resolves to a location outside `root`."""
    target = Path(os.path.realpath(path))
    if not target.is_relative_to(os.path.realpath(root)):
        raise UserError(
            f"{path}: is a link to {target}, outside of {root}; remove the link, or move the "
            "complete directory"
        )


def require_plain_files(root: Path) -> None:
    """Raise a `UserError` if `root` contains a pipe, a device or a link to a location outside it.

    The folder `wandb` is skipped because Weights & Biases creates links in it.
    """
    for parent, folders, files in os.walk(root):
        if Path(parent) == root and "wandb" in folders:
            folders.remove("wandb")
        for name in (*folders, *files):
            path = Path(parent, name)
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:  # another process has renamed its temporary file
                continue
            if stat.S_ISLNK(mode):
                require_inside(path, root)
            elif stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                raise UserError(f"{path}: is a pipe or a device, not a file; remove it")


def is_in_unused_folder(path: AnyPath) -> bool:
    """Return whether the folder of `path` holds nothing but temporary files of killed writers."""
    if isinstance(path, RemotePath):
        return not any(path.parent.iterdir())
    folder = path.parent
    return not folder.exists() or sorted(folder.iterdir()) == find_temporary_files(path)


def remove_temporary_files(path: AnyPath) -> None:
    """Remove the temporary files left behind by killed writers of `path`."""
    for file in find_temporary_files(path):
        file.unlink(missing_ok=True)


def clear_unused_folder(path: AnyPath) -> bool:
    """Remove temporary files if `path` is in an unused folder; return whether it is."""
    if not is_in_unused_folder(path):
        return False
    remove_temporary_files(path)
    return True


def decode_text(content: bytes) -> str:
    """Decode UTF-8 with or without a byte order mark.

    Raises:
        ValueError: the bytes are not UTF-8; the message names UTF-16 if they look like it.
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in content:
        raise ValueError("text must be UTF-8, got UTF-16 or zero bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = content[error.start]
        raise ValueError(f"not UTF-8: byte 0x{byte:02x} at {error.start}") from None


class RepeatedKeyError(ValueError):
    """A JSON object repeats a key; JSON readers disagree on which value counts."""


MAX_DEPTH = 100
"""Maximum nesting depth of JSON values; deeper ones overflow recursive readers."""

# A bracket, or a string that may be unterminated.
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


def check_nesting(text: str) -> None:
    """Raise `ValueError` if brackets in a JSON text are nested more than `MAX_DEPTH` deep."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(text):
        if token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth -= 1
        if depth > MAX_DEPTH:
            raise ValueError(f"brackets are nested more than {MAX_DEPTH} deep")


def load_json(text: str) -> Any:
    """Parse a JSON value, rejecting repeated keys.

    Raises:
        RepeatedKeyError: an object repeats a key; the message names the key.
        ValueError: the text is not JSON, or nested too deeply.
    """
    try:
        check_nesting(text)
        return json.loads(text, object_pairs_hook=_parse_object)
    except RepeatedKeyError:
        raise
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None


def _parse_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        repeated_name = next(name for name in names if names.count(name) > 1)
        raise RepeatedKeyError(f"the key {repeated_name[:100]!r} is repeated")
    return fields


def read_json_lines(
    path: Path, damaged: dict[int, ValueError] | None = None
) -> Iterator[tuple[int, Any]]:
    """Yield (line number, value) for each line of a UTF-8 file with one JSON value per line.

    Lines are numbered from 1 and end at line feeds only. A byte order mark and blank lines are
    skipped.

    Args:
        path: the file.
        damaged: errors of invalid lines by line number; the function adds to them. If None, the
            first invalid line raises its error.

    Raises:
        OSError: the file can't be read.
        ValueError: a line is not UTF-8 or not JSON, or repeats a key; the message names the file
            and the line.
    """
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                text = _decode_json_line(line)
                if not text.strip():
                    continue
                value = load_json(text)
            except ValueError as error:
                located_error = type(error)(f"{path}:{number}: {error}")
                if damaged is None:
                    raise located_error from None
                damaged[number] = located_error
                continue
            yield number, value


def _decode_json_line(line: bytes) -> str:
    try:
        return decode_text(line)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
