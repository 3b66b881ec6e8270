"""Commands that answer JSON lines: one record per line in, one answer per line out.

A line that is no record of the command is answered by `{"id": ..., "error": "..."}`, and the other
lines are answered all the same.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

from training.errors import UserError

LINES_HELP = """\
Lines are read, answered in order and written in batches of a few hundred. A line that is no such
record is answered by {"id": ..., "error": "..."} and named on stderr; the others go on.

exit status: 0 all lines were answered, 1 some lines were invalid, 2 the file can't be read"""

Record = dict[str, Any]
Answers = Iterator[tuple[int, Record]]
"""(line number from 1, answer) pairs."""
Task = TypeVar("Task")

_STDIN = "-"
_SECONDS_ON_TERMINAL = 0.5
_SECONDS_IN_LOG = 30.0


class RecordError(ValueError):
    """A line is no record of the command; the message names the field, the value and its fault.

    Attributes:
        id: the record's own; None where it has none.
    """

    def __init__(self, message: str, id: Any = None) -> None:
        super().__init__(message)
        self.id = id

    @property
    def answer(self) -> Record:
        """What is written for the line."""
        return {"id": self.id, "error": str(self)}


def answer_file(
    file: str, output: str | None, answer: Callable[[Iterable[bytes]], Answers], *, what: str
) -> int:
    """Answer every line of a file and write the answers as JSON lines.

    Args:
        file: a path, or `-` for standard input.
        output: a path, where the file appears when all is done; None for standard output.
        answer: from lines to answers; one with the field `error` is about an invalid line.
        what: what a record is about, for the progress on stderr.

    Returns:
        1 if some lines were invalid, else 0.

    Raises:
        UserError: The file can't be read, or the output can't be written.
    """
    name = "<stdin>" if file == _STDIN else file
    invalid = 0
    with open_output(output) as out:
        for number, record in report_progress(answer(_read_lines(file, name)), what):
            out.write(json.dumps(record) + "\n")
            if "error" in record:
                invalid += 1
                print(f"jaxlake: {name}:{number}: {record['error']}", file=sys.stderr)
    return 1 if invalid else 0


def _read_lines(file: str, name: str) -> Iterator[bytes]:
    """Yield the lines of a file or of standard input as they come."""
    try:
        with open(0 if file == _STDIN else file, "rb", closefd=file != _STDIN) as lines:
            yield from lines
    except OSError as error:
        raise UserError(f"{name}: can't be read: {error.strerror or error}") from None


def read_records(
    lines: Iterable[bytes], read: Callable[[Record], Task]
) -> Iterator[tuple[int, Task | RecordError]]:
    """Read JSON lines as a command's tasks.

    Args:
        lines: UTF-8; blank lines are skipped.
        read: from the JSON object of a line to the task. It may raise `RecordError`.

    Yields:
        (line number from 1, the task) or, for an invalid line, (line number, the error).
    """
    for number, line in enumerate(lines, start=1):
        try:
            if (record := _load(line)) is not None:
                yield number, read(record)
        except RecordError as error:
            yield number, error


def _load(line: bytes) -> Record | None:
    """Load the JSON object of a line; None for a blank line."""
    try:
        text = line.decode("utf-8-sig")
        if not text.strip():
            return None
        record = json.loads(text, parse_constant=_refuse_constant)
        if isinstance(record, dict):
            json.dumps({"id": record.get("id")}, allow_nan=False)  # the answer must be JSON too
            return record
    except (ValueError, RecursionError) as error:
        raise RecordError(f"not JSON: {error}") from None
    raise RecordError(f"got {clipped_json(record)}, a JSON object is needed")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def clipped_json(value: Any) -> str:
    """Write a JSON value for a message; a long one is cut."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:60] + "..."


@contextmanager
def open_output(path: str | None) -> Iterator[IO[str]]:
    """Open standard output (None), or a file that appears whole or not at all.

    Raises:
        UserError: The file can't be written.
    """
    if path is None:
        yield sys.stdout
        return
    from jaxlake.files import open_whole

    try:
        with open_whole(Path(path)) as out:
            yield out
    except OSError as error:
        raise UserError(f"{path}: can't be written: {error.strerror or error}") from None


def report_progress(answers: Answers, what: str = "boards") -> Answers:
    """Pass answers on and report their number on stderr: often on a terminal, rarely in a log."""
    terminal = sys.stderr.isatty()
    pause = _SECONDS_ON_TERMINAL if terminal else _SECONDS_IN_LOG
    start = last = time.monotonic()
    for count, answer in enumerate(answers, start=1):
        now = time.monotonic()
        if now - last >= pause:
            last = now
            before, after = ("\r\x1b[K", "") if terminal else ("", "\n")
            text = f"{before}{count:,} {what}, {count / (now - start):,.0f}/s"
            print(text, end=after, file=sys.stderr, flush=True)
        yield answer
    if terminal:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
