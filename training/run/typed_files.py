"""Typed files: a path with the data model of its content.

Files are written atomically, except logs, which grow line by line. All errors are `UserError`s
that name the file.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from jaxlake.files import (
    RepeatedKeyError,
    load_json,
    read_json_lines,
    require_inside,
    write_text_atomic,
)
from training.errors import UserError, format_validation_errors
from training.run.digest_list import DigestList

T = TypeVar("T")


@dataclass(frozen=True)
class File:
    """A file that may not exist."""

    path: Path
    digests: DigestList | None = field(default=None, kw_only=True, compare=False, repr=False)
    """Digests of the run's files; every read compares the file with its digest."""

    grows: ClassVar[bool] = False  # whether lines are appended; such files need no digest

    def exists(self) -> bool:
        """Return whether the file exists; raise a `UserError` if it is listed but missing."""
        if self.path.exists():
            return True
        if self.digests is not None:
            self.digests.require_unlisted(self.path)
        return False

    def remove(self) -> None:
        """Remove the file if it exists."""
        if self.digests is not None:
            self.digests.prepare_removal(self.path)
        self.path.unlink(missing_ok=True)

    def _read_bytes(self) -> bytes:
        """Return the file's bytes after comparing them with its digest."""
        with self._convert_errors("read"):
            if self.digests is not None:
                require_inside(self.path, self.digests.root)
            content = self.path.read_bytes()
        if self.digests is not None:
            self.digests.check(self.path, content, optional=self.grows)
        return content

    def _write(self, text: str) -> None:
        if self.digests is not None:
            require_inside(self.path, self.digests.root)
            if not self.grows:
                digest = hashlib.sha256(text.encode()).hexdigest()
                recorded_digest = (self.digests.entries() or {}).get(self.digests.name(self.path))
                if recorded_digest not in (None, digest):
                    self.remove()
                self.digests.record(self.path, digest)
        with self._convert_errors("written"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_text_atomic(self.path, text)

    @contextmanager
    def _convert_errors(self, operation: str) -> Iterator[None]:
        """Convert errors of the block to a `UserError` that names the file.

        `operation` is the participle in the message: "read" or "written".
        """
        try:
            yield
        except FileNotFoundError as error:
            if operation == "read":
                raise UserError(f"{self.path}: is missing") from error
            raise UserError(f"{self.path}: can't be {operation}: {error.strerror}") from error
        except OSError as error:
            raise UserError(f"{self.path}: can't be {operation}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UserError(f"{self.path}: is not UTF-8 text: {error}") from error


@dataclass(frozen=True)
class TextFile(File):
    """A file of UTF-8 text."""

    def read(self) -> str:
        """Return the text with its original line endings."""
        content = self._read_bytes()
        with self._convert_errors("read"):
            return content.decode("utf-8")

    def write(self, text: str) -> None:
        """Write the text atomically, and create missing folders."""
        self._write(text)


@dataclass(frozen=True)
class JsonFile(File, Generic[T]):
    """A file with one JSON value of type `type`."""

    type: TypeAdapter[T]

    def read(self) -> T:
        """Return the value."""
        text = TextFile(self.path, digests=self.digests).read()
        try:
            return self.type.validate_python(load_json(text))
        except ValidationError as error:
            raise UserError(f"{self.path}: {'; '.join(format_validation_errors(error))}") from error
        except ValueError as error:
            raise UserError(f"{self.path}: {error}") from error

    def write(self, value: T) -> None:
        """Write the value atomically, as indented JSON."""
        content = self.type.dump_python(value, mode="json")
        self._write(json.dumps(content, indent=2, allow_nan=False) + "\n")


@dataclass(frozen=True)
class JsonLinesFile(File, Generic[T]):
    """A file of JSON lines with values of type `type`."""

    type: TypeAdapter[T]
    may_be_cut: ClassVar[bool] = False  # whether incomplete lines (after a kill) are skipped

    def read(self) -> list[T]:
        """Return all values in the order of the lines."""
        problems: list[str] = []
        values = self.read_valid(problems)
        if problems:
            raise UserError(problems[0])
        return values

    def read_valid(self, problems: list[str]) -> list[T]:
        """Return the valid values, and append one message per invalid line to `problems`."""
        self._read_bytes()
        errors: dict[int, ValueError] = {}
        with self._convert_errors("read"):
            lines = list(read_json_lines(self.path, errors))
        messages: dict[int, str] = {}
        for number, problem in errors.items():
            if isinstance(problem, RepeatedKeyError):  # never the result of a cut line
                messages[number] = str(problem)
            elif not self.may_be_cut:
                messages[number] = f"{self.path}:{number}: not JSON"
        values = []
        for number, value in lines:
            try:
                values.append(self.type.validate_python(value))
            except ValidationError as error:
                messages[number] = (
                    f"{self.path}:{number}: {'; '.join(format_validation_errors(error))}"
                )
        problems += [messages[number] for number in sorted(messages)]
        return values

    def write(self, values: Iterable[T]) -> None:
        """Write all values atomically."""
        self._write("".join(map(self.format_line, values)))

    def format_line(self, value: T) -> str:
        """Return one value as a JSON line, including the line ending."""
        return json.dumps(self.type.dump_python(value, mode="json"), allow_nan=False) + "\n"


@dataclass(frozen=True)
class JsonLog(JsonLinesFile[T]):
    """A growing file of JSON lines; lines cut by a kill are skipped."""

    may_be_cut: ClassVar[bool] = True
    grows: ClassVar[bool] = True

    def read(self) -> list[T]:
        """Return the values of all complete lines, or an empty list if the file doesn't exist."""
        return super().read() if self.exists() else []

    def append(self, value: T) -> None:
        """Append one line, on a new line if the last one was cut."""
        line = self.format_line(value).encode()
        if self.digests is not None:
            self.digests.require_present()
            require_inside(self.path, self.digests.root)
        with self._convert_errors("written"), self.path.open("a+b") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read() != b"\n":
                    line = b"\n" + line
            file.write(line)

    def sync(self) -> None:
        """Flush all lines to the disk, so that they survive a power failure."""
        if self.exists():
            with self._convert_errors("written"), self.path.open("rb") as file:
                os.fsync(file.fileno())
