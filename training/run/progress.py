"""What is said on a terminal and in a log: progress (a bar; a line now and then) and tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

SECONDS_BETWEEN_LINES = 10.0


class _Console(Console):
    """A console that leaves it to the command line what a reader that went away means."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


console = _Console(highlight=False)


@contextmanager
def track(title: str, total: int, *, start: int = 0) -> Iterator[Callable[..., None]]:
    """Show how far a phase of `total` steps is, from `start` on.

    It gives a function of how many are done and, if there is more to say, a note.
    """
    if console.is_terminal:
        columns = (
            TextColumn("{task.description:<24}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Progress(*columns, console=console) as bar:
            task = bar.add_task(title, total=total, completed=start, note="")
            yield lambda done, note="": bar.update(task, completed=done, note=note)
        return

    began = last = time.monotonic()
    newest = (start, "")
    written: tuple[int, str] | None = None

    def line() -> None:
        nonlocal written
        written = done, note = newest
        seconds = time.monotonic() - began
        console.print(f"{title:<24} {done:>5}/{total}  {seconds:5.0f} s  {note}", soft_wrap=True)

    def advance(done: int, note: str = "") -> None:
        nonlocal last, newest
        newest = (done, note)
        if time.monotonic() - last >= SECONDS_BETWEEN_LINES:
            line()
            last = time.monotonic()

    yield advance
    if newest != written:
        line()


def new_table(title: str, first: str, *others: str) -> Table:
    """Make a table with these heads, in which all columns but the first hold numbers."""
    table = Table(title=title, title_justify="left")
    table.add_column(first)
    for head in others:
        table.add_column(head, justify="right")
    return table


def duration(seconds: float) -> str:
    """Write seconds for people: 41 s, 3 min 12 s, 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
