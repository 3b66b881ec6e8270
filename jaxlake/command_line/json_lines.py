"""Read records and write results as JSON lines."""

import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

from jaxlake.errors import UserError, escape_controls
from jaxlake.files import check_nesting, decode_text, open_atomic

LINES_HELP = """\
Results have the order of the lines and are written in batches of a few hundred. The result of an
invalid line is {"id": ..., "error": "..."}. The error also goes to stderr, and processing continues
with the next line.

exit status: 0 all lines were valid, 1 some lines were invalid, 2 the file can't be read"""

Record = dict[str, Any]
Results = Iterator[tuple[int, Record]]
"""(line number from 1, result) for each line that is not blank."""
Item = TypeVar("Item")

_STDIN = "-"
_MAX_LINE_BYTES = 1 << 24
"""Longer lines are cut and therefore rejected as invalid JSON."""
_SECONDS_BETWEEN_REPORTS = 0.5
CLEAR_LINE = "\r\x1b[K"
"""Terminal control characters that clear the current line."""


class RecordError(ValueError):
    """A line is not a valid record; the message names the field, the value and the problem."""

    id: Any = None  # the id of the record, set by `read_records`

    @property
    def result(self) -> Record:
        """The result to write for the line."""
        return {"id": self.id, "error": str(self)}


def process_file(
    file: str,
    output: str | None,
    process: Callable[[Iterable[bytes]], Results],
    *,
    noun: str,
) -> int:
    """Process every line of a file (`-`: standard input) and write the results as JSON lines.

    `noun` is the plural noun for the progress on stderr, such as "boards".

    Returns:
        The exit status, 1 if a line was invalid (its result has the field `error`), else 0.
    """
    require_readable(file)
    status = 0
    with open_output(output) as out:
        for number, result in report_progress(process(read_lines(file)), noun):
            out.write(json.dumps(result) + "\n")
            if "error" in result:
                status = 1
                message = f"jaxlake: {display_name(file)}:{number}: {result['error']}"
                print(escape_controls(message), file=sys.stderr)
    return status


def require_readable(file: str) -> None:
    """Raise `UserError` if a file is unreadable; standard input (`-`) is always accepted."""
    try:
        # Opening and closing a pipe would break it for its writer.
        if file != _STDIN and stat.S_IFMT(os.stat(file).st_mode) in (stat.S_IFREG, stat.S_IFDIR):
            open(file, "rb").close()
    except OSError as error:
        raise UserError(f"{file}: can't be read: {error.strerror or error}") from None


def read_lines(file: str) -> Iterator[bytes]:
    """Yield the lines of a file (`-`: standard input); raise `UserError` if it is unreadable."""
    if file.endswith((".map", ".scen")):
        raise UserError(
            f"{file}: must be JSON lines; convert MovingAI files with `jaxlake dataset convert`"
        )
    try:
        with open(0 if file == _STDIN else file, "rb", closefd=file != _STDIN) as lines:
            while line := lines.readline(_MAX_LINE_BYTES):
                yield line
                while len(line) == _MAX_LINE_BYTES and not line.endswith(b"\n"):
                    line = lines.readline(_MAX_LINE_BYTES)
    except OSError as error:
        raise UserError(f"{display_name(file)}: can't be read: {error.strerror or error}") from None


def display_name(file: str) -> str:
    """Return the name of a file in messages (`-`: standard input)."""
    return "<stdin>" if file == _STDIN else file


def read_records(
    lines: Iterable[bytes], parse: Callable[[Record], Item]
) -> Iterator[tuple[int, Item | RecordError]]:
    """Yield (line number, result of `parse` or error) for each line with a JSON object.

    Lines are UTF-8 and counted from 1; blank lines are skipped. `parse` may raise `RecordError`.
    """
    for number, line in enumerate(lines, start=1):
        record: Record | None = None
        try:
            if (record := _load(line)) is not None:
                yield number, parse(record)
        except RecordError as error:
            error.id = None if record is None else record.get("id")
            yield number, error


def _load(line: bytes) -> Record | None:
    try:
        text = decode_text(line)
        if not text.strip():
            return None
        check_nesting(text)
        record = json.loads(text, parse_constant=_reject_constant)
        if isinstance(record, dict):
            json.dumps({"id": record.get("id")}, allow_nan=False)  # the result must be JSON too
            return record
    except (ValueError, RecursionError) as error:
        raise RecordError(f"not JSON: {error}") from None
    raise RecordError(f"a line must be a JSON object, got {clip_json(record)}")


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def clip_json(value: Any) -> str:
    """Format a JSON value for a message, cut to 60 characters."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:60] + "..."


@contextmanager
def open_output(path: str | None) -> Iterator[IO[str]]:
    """Open standard output (None), or a file for atomic writing."""
    if path is None:
        yield sys.stdout
        return
    try:
        with open_atomic(Path(path)) as out:
            yield out
    except OSError as error:
        raise UserError(f"{path}: can't be written: {error.strerror or error}") from None


def report_progress(
    items: Iterable[Item], noun: str = "boards", total: int | None = None
) -> Iterator[Item]:
    """Yield the items, and report their number and rate on stderr if it is a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    suffix = noun if total is None else f"of {total:,} {noun}"
    start = last_report = time.monotonic()
    for count, item in enumerate(items, start=1):
        if (now := time.monotonic()) - last_report >= _SECONDS_BETWEEN_REPORTS:
            line = f"{CLEAR_LINE}{count:,} {suffix}, {count / (now - start):,.0f}/s"
            print(line, end="", file=sys.stderr, flush=True)
            last_report = now
        yield item
    print(CLEAR_LINE, end="", file=sys.stderr, flush=True)
