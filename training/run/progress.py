"""Terminal output: results and tables on standard output, progress on standard error."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from rich.console import Console, ConsoleDimensions
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from jaxlake.errors import escape_controls

SECONDS_BETWEEN_LINES = 10.0


class _Console(Console):
    """A console that doesn't wrap lines in a pipe and raises `BrokenPipeError`."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; escape control characters in plain text."""
        printable = [escape_controls(item) if isinstance(item, str) else item for item in objects]
        super().print(*printable, **options)

    @property
    def size(self) -> ConsoleDimensions:
        if self.is_terminal or self._width is not None:
            return super().size
        return ConsoleDimensions(100_000, 25)

    @size.setter
    def size(self, new_size: tuple[int, int]) -> None:
        self._width, self._height = new_size


class _Output(_Console):
    """Standard output; on a terminal, lines are printed above any progress bar."""

    def print(self, *objects: Any, **options: Any) -> None:
        if _active_statuses and self.is_terminal:
            status_console.print(*objects, **options)
        else:
            super().print(*objects, **options)


console = _Output(highlight=False)
status_console = _Console(highlight=False, stderr=True)
"""Standard error, for progress and status messages."""

_active_statuses: list[str] = []
"""The texts of the status lines and progress bars in the terminal."""


@contextmanager
def _reserve_status_line(text: str) -> Iterator[None]:
    """Print standard output above the status line during the block, on a terminal."""
    if not status_console.is_terminal:
        yield
        return
    _active_statuses.append(text)
    try:
        yield
    finally:
        _active_statuses.pop()


@contextmanager
def show_status(text: str) -> Iterator[Callable[[str], None]]:
    """Show a status text on a terminal; yield a function that replaces the text."""
    with _reserve_status_line(text), status_console.status(text) as status:
        yield status.update


@contextmanager
def track(
    title: str, total: int, *, start: int = 0, unit: str = ""
) -> Iterator[Callable[..., None]]:
    """Show the progress of a phase on standard error.

    On a terminal this is a progress bar, otherwise one line every ten seconds.

    Yields:
        A function `(done, note="")` that sets the number of completed units.
    """
    if status_console.is_terminal:
        columns = (
            TextColumn("{task.description:<24}"),
            BarColumn(bar_width=24 if status_console.width > 100 else 6),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        start_time = time.monotonic()
        with _reserve_status_line(title), Progress(*columns, console=status_console) as bar:
            task = bar.add_task(title, total=total, completed=start, note="", rate="")

            def show(done: int, note: str = "") -> None:
                rate = format_speed(done - start, time.monotonic() - start_time, unit)
                bar.update(task, completed=done, note=note, rate=rate)

            yield show
        return

    start_time = last_time = time.monotonic()
    newest = (start, "")
    printed: tuple[int, str] | None = None

    def print_line() -> None:
        nonlocal printed
        printed = done, note = newest
        seconds = time.monotonic() - start_time
        rate = format_speed(done - start, seconds, unit)
        text = f"{title:<24} {done:>5}/{total}  {rate}  {seconds:5.0f} s  {note}"
        status_console.print(text.rstrip(), soft_wrap=True, markup=False)

    def advance(done: int, note: str = "") -> None:
        nonlocal last_time, newest
        newest = (done, note)
        if time.monotonic() - last_time >= SECONDS_BETWEEN_LINES:
            print_line()
            last_time = time.monotonic()

    yield advance
    if newest != printed:
        print_line()


def format_speed(count: int, seconds: float, unit: str = "") -> str:
    """Return a speed as text: units per second, or seconds per unit if one takes over a second."""
    suffix = f" {unit}/s" if unit else "/s"
    if count <= 0 or seconds <= 0:
        return f"0{suffix}"
    duration = seconds / count
    if duration > 1.0:
        return f"{duration:.1f} s each" if duration < 10 else f"{duration:,.0f} s each"
    return (f"{count / seconds:.1f}" if duration > 0.1 else f"{count / seconds:,.0f}") + suffix


def new_table(title: str, *headings: str, left: int = 1) -> Table:
    """Return an empty table; the first `left` columns are left-aligned, the others right."""
    table = Table(title=title, title_justify="left")
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="left" if i < left else "right", overflow="fold")
    return table


def print_table(table: Table) -> None:
    """Print a table whose cells are plain text."""
    console.print(table, markup=False)
