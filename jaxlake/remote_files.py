"""Access to files in object stores by URLs such as gs://bucket/folder/file, through fsspec."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_BLOCK_SIZE = 1 << 18  # bytes
_EXTRA_SCHEMES = ("gs", "gcs", "s3")  # for other schemes, fsspec's own error names the package
_INSTALL_HINT = "pip install 'jaxlake[cloud]' installs the packages for gs:// and s3://"


@dataclass(frozen=True)
class RemotePath:
    """A file or folder behind a URL, with the subset of `pathlib.Path` that data sets use.

    A write replaces the complete file, so readers see either the old or the new content.
    """

    url: str  # scheme://..., without a trailing slash

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> "RemotePath":
        return RemotePath(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.url.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The file extension, including the dot."""
        return Path(self.name).suffix

    @property
    def parent(self) -> "RemotePath":
        """The parent folder."""
        return RemotePath(self.url.rpartition("/")[0])

    def exists(self) -> bool:
        """Return whether the file or folder exists."""
        with self._filesystem() as (files, path):
            return bool(files.exists(path))

    def iterdir(self) -> Iterator["RemotePath"]:
        """Yield the files and folders in this folder, or nothing if it does not exist."""
        with self._filesystem() as (files, path):
            try:
                entries = files.ls(path, detail=False)
            except FileNotFoundError:
                entries = []
        names = (entry.rstrip("/").rpartition("/")[2] for entry in entries)
        return (self / name for name in sorted(set(names) - {self.name, ""}))

    def open(self, mode: str = "rb") -> IO[bytes]:
        """Open the file for reading; blocks are fetched on demand."""
        if mode != "rb":
            raise ValueError(f"mode must be 'rb', got {mode!r}")
        with self._filesystem() as (files, path):
            file: IO[bytes] = files.open(path, mode, block_size=_BLOCK_SIZE)
            return file

    def read_bytes(self) -> bytes:
        """Read the whole file."""
        with self._filesystem() as (files, path):
            return bytes(files.cat_file(path))

    def read_text(self, encoding: str = "utf-8") -> str:
        """Read the whole file as text."""
        return self.read_bytes().decode(encoding)

    def write_bytes(self, content: bytes, *, replace: bool = True) -> None:
        """Write the whole file.

        Raises:
            FileExistsError: the file exists and `replace` is False.
        """
        with self._filesystem() as (files, path):
            files.pipe_file(path, content, mode="overwrite" if replace else "create")

    @contextmanager
    def _filesystem(self) -> Iterator[tuple[Any, str]]:
        """Yield fsspec's file system and path, and convert errors within the block to `OSError`."""
        import fsspec

        try:
            # Other processes write to the same folders, so listings must not be cached.
            yield fsspec.url_to_fs(self.url, use_listings_cache=False)
        except OSError:
            raise
        except Exception as error:  # each store raises different error types
            raise OSError(f"{self.url}: {type(error).__name__}: {error}") from error


AnyPath: TypeAlias = Path | RemotePath


def is_url(location: str | os.PathLike[str]) -> bool:
    """Return whether a path is a URL, such as gs://bucket/folder, or a `Path` made from one."""
    return _SCHEME.match(os.fspath(location)) is not None


def require_local(location: str) -> str:
    """Return a local path unchanged; raise `ValueError` if it is a URL."""
    if is_url(location):
        raise ValueError(
            f"must be a local path, got the URL {location}; mount the bucket and pass its path "
            "(docs/how_to/object_stores.md)"
        )
    return location


def as_path(location: str | os.PathLike[str] | RemotePath) -> AnyPath:
    """Convert a location to a `Path` (local files) or a `RemotePath` (URLs).

    Args:
        location: a path, file://PATH, or a URL with a scheme that fsspec supports.

    Raises:
        TypeError: the location is neither a string nor a path.
        ValueError: the scheme is unknown, or its package is missing; the message names the extra.
    """
    if isinstance(location, RemotePath):
        return location
    if not isinstance(location, str | os.PathLike):
        raise TypeError(f"path must be a string or a path, got {type(location).__name__}")
    text = os.fspath(location)
    if (match := _SCHEME.match(text)) is None:
        return Path(text)
    if not text.startswith("/", match.end()):  # pathlib collapses the two slashes
        raise ValueError(f"{text}: a URL must be a string with two slashes, not a Path")
    if match[1] == "file":
        return Path(text.removeprefix("file://"))
    try:
        import fsspec

        fsspec.get_filesystem_class(match[1])
    except ModuleNotFoundError:
        raise ValueError(f"{text}: requires fsspec; {_INSTALL_HINT}") from None
    except ImportError as error:
        hint = f"; {_INSTALL_HINT}" if match[1] in _EXTRA_SCHEMES else ""
        raise ValueError(f"{text}: {error}{hint}") from None
    except ValueError:
        raise ValueError(f"{text}: the scheme {match[1]!r} is unknown to fsspec") from None
    return RemotePath(text.rstrip("/"))
