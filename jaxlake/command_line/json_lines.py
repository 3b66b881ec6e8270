"""Read records and write answers as JSON lines."""

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
from jaxlake.files import check_nesting, decode_text

LINES_HELP = """\
Lines are answered in order, in batches of a few hundred. Invalid lines are answered by
{"id": ..., "error": "..."} and reported on stderr; processing continues with the next line.

exit status: 0 all lines were answered, 1 some lines were invalid, 2 the file can't be read"""

Record = dict[str, Any]
Answers = Iterator[tuple[int, Record]]
"""(line number from 1, answer) for each line that is not blank."""
Task = TypeVar("Task")

_STDIN = "-"
_MAX_LINE_BYTES = 1 << 24
"""Longer lines are cut and therefore rejected as invalid JSON."""
_SECONDS_BETWEEN_REPORTS = 0.5
WIPE = "\r\x1b[K"


class RecordError(ValueError):
    """A line is not a valid record; the message names the field, the value and the problem."""

    id: Any = None  # the id of the record, set by `read_records`

    @property
    def answer(self) -> Record:
        """The answer to the line."""
        return {"id": self.id, "error": str(self)}


def answer_file(
    file: str,
    output: str | None,
    answer: Callable[[Iterable[bytes]], Answers],
    *,
    noun: str,  # plural noun for the progress on stderr
) -> int:
    """Answer every line of a file (`-`: standard input) and write the answers as JSON lines.

    Returns:
        The exit status, 1 if some lines were invalid (answers with the field `error`), else 0.
    """
    require_readable(file)
    name = display_name(file)
    invalid = 0
    with open_output(output) as out:
        answers = answer(read_lines(file))
        for number, record in report_progress(answers, noun):
            out.write(json.dumps(record) + "\n")
            if "error" in record:
                invalid += 1
                print(
                    escape_controls(f"jaxlake: {name}:{number}: {record['error']}"),
                    file=sys.stderr,
                )
    return 1 if invalid else 0


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
    lines: Iterable[bytes], parse: Callable[[Record], Task]
) -> Iterator[tuple[int, Task | RecordError]]:
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
        record = json.loads(text, parse_constant=_refuse_constant)
        if isinstance(record, dict):
            json.dumps({"id": record.get("id")}, allow_nan=False)  # the answer must be JSON too
            return record
    except (ValueError, RecursionError) as error:
        raise RecordError(f"not JSON: {error}") from None
    raise RecordError(f"a line must be a JSON object, got {clipped_json(record)}")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def clipped_json(value: Any) -> str:
    """Format a JSON value for a message, cut to 60 characters."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:60] + "..."


@contextmanager
def open_output(path: str | None) -> Iterator[IO[str]]:
    """Open standard output (None), or a file for atomic writing."""
    if path is None:
        yield sys.stdout
        return
    from jaxlake.files import open_atomic

    try:
        with open_atomic(Path(path)) as out:
            yield out
    except OSError as error:
        raise UserError(f"{path}: can't be written: {error.strerror or error}") from None


def report_progress(
    answers: Iterable[Task], noun: str = "boards", total: int | None = None
) -> Iterator[Task]:
    """Yield the answers, and report their number and rate on stderr if it is a terminal."""
    if not sys.stderr.isatty():
        yield from answers
        return
    of = "" if total is None else f" of {total:,}"
    start = last = time.monotonic()
    for count, answer in enumerate(answers, start=1):
        if (now := time.monotonic()) - last >= _SECONDS_BETWEEN_REPORTS:
            rate = count / (now - start)
            print(f"{WIPE}{count:,}{of} {noun}, {rate:,.0f}/s", end="", file=sys.stderr, flush=True)
            last = now
        yield answer
    print(WIPE, end="", file=sys.stderr, flush=True)
