"""JSON lines from a file or a pipe, and to one."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from training.errors import UserError

PIPE = "-"

LINES_HELP = """\
Lines are read, answered in order and written in batches of a few hundred. A line that is no such
record is answered by {"id": ..., "error": "..."} and named on stderr; the others go on.

exit status: 0 all lines were answered, 1 some lines were in error, 2 the file can't be read"""

Records = Iterator[tuple[int, dict[str, Any]]]

_SECONDS_ON_TERMINAL = 0.5
_SECONDS_IN_LOG = 30.0


def answer_file(
    file: str,
    output: str | None,
    answer: Callable[[Iterable[str]], Records],
    *,
    what: str = "boards",
    errors: str = "strict",
) -> int:
    """Answer every line of a file and write the answers as JSON lines.

    Args:
        file: a path, or `-` for the standard input.
        output: a path, written whole once all is done; None for the standard output.
        answer: from lines to (line number, record) pairs; a record with `error` is a bad line.
        what: what a record is about, for the progress on stderr.
        errors: how bytes that are no UTF-8 are decoded, as `bytes.decode` names it.

    Returns:
        1 if some lines were in error, else 0.

    Raises:
        UserError: the file can't be read or isn't UTF-8, or the output can't be written.
    """
    name = "<stdin>" if file == PIPE else file
    bad = 0
    with open_output(output) as out:
        for number, record in report_progress(answer(read_lines(file, errors)), what):
            out.write(json.dumps(record) + "\n")
            if "error" in record:
                bad += 1
                print(f"jaxlake: {name}:{number}: {record['error']}", file=sys.stderr)
    return 1 if bad else 0


def read_lines(file: str, errors: str = "strict") -> Iterator[str]:
    """The lines of a UTF-8 file (`-`: the standard input), as they come.

    Raises:
        UserError: it can't be read, or isn't UTF-8.
    """
    name = "<stdin>" if file == PIPE else file
    try:
        with open(0 if file == PIPE else file, "rb", closefd=file != PIPE) as stream:
            for number, line in enumerate(stream, start=1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8", errors)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name}:{number}: not UTF-8: byte 0x{error.object[error.start]:02x} "
            f"at position {error.start} of the line"
        ) from None
    except OSError as error:
        raise UserError(f"{name}: can't be read: {error.strerror or error}") from None


@contextmanager
def open_output(path: str | None) -> Iterator[TextIO]:
    """The standard output (None), or a file that appears whole or not at all.

    Raises:
        UserError: the file can't be written.
    """
    if path is None:
        yield sys.stdout
        return
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if target.is_dir():
            raise IsADirectoryError(None, "Is a directory")
        with temporary.open("w", encoding="utf-8") as out:
            yield out
        os.replace(temporary, target)
    except OSError as error:
        raise UserError(f"{path}: can't be written: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def report_progress(records: Records, what: str = "boards") -> Records:
    """Say on stderr how many records are done: often on a terminal, rarely in a log."""
    terminal = sys.stderr.isatty()
    pause = _SECONDS_ON_TERMINAL if terminal else _SECONDS_IN_LOG
    start = last = time.monotonic()
    for count, record in enumerate(records, start=1):
        now = time.monotonic()
        if now - last >= pause:
            last = now
            before, after = ("\r\x1b[K", "") if terminal else ("", "\n")
            text = f"{before}{count:,} {what}, {count / (now - start):,.0f}/s"
            print(text, end=after, file=sys.stderr, flush=True)
        yield record
    if terminal:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
