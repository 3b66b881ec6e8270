"""Tables as wide as the terminal: columns that it has no room for follow in further tables.

A pipe or a file has no width, so that it gets every table in one piece; COLUMNS sets one.
"""

import os
import sys
import textwrap
from collections.abc import Sequence

_GAP = "  "
_LEAST_WIDTH = 20
_LEAST_WORDS = 12


def output_width() -> int | None:
    """Return the characters that fit on a line of standard output; None: as many as one likes.

    They are those that COLUMNS says, else those of the terminal.
    """
    said = os.environ.get("COLUMNS", "")
    if said.isascii() and said.isdecimal() and int(said):
        return max(int(said), _LEAST_WIDTH)
    try:
        if sys.stdout is not None and sys.stdout.isatty():
            return max(os.get_terminal_size(sys.stdout.fileno()).columns, _LEAST_WIDTH)
    except (OSError, ValueError):
        pass  # a terminal that doesn't say its size
    return None


def column_groups(
    widths: Sequence[int], room: int | None, *, kept: int = 1, gap: int = len(_GAP)
) -> list[list[int]]:
    """Share columns out over tables that fit into `room` characters (None: into one table).

    Args:
        widths: characters of each column.
        room: characters of a line, without what a table's frame takes.
        kept: how many columns, from the first on, say what a row is about: every table has them.
        gap: characters between two columns.

    Returns:
        For each table the numbers of its columns. A table has at least one column beside those that
        are kept, even where that is too wide.
    """
    others = range(kept, len(widths))
    if room is None or not others:
        return [list(range(len(widths)))]
    begun = sum(widths[:kept]) + gap * (kept - 1)
    groups: list[list[int]] = []
    taken = 0
    for column in others:
        if groups and taken + gap + widths[column] <= room:
            groups[-1].append(column)
            taken += gap + widths[column]
        else:
            groups.append([*range(kept), column])
            taken = begun + gap + widths[column]
    return groups


def aligned_text(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    kept: int = 1,
    left: int = 0,
    width: int | None = None,
) -> str:
    """Write a table as aligned plain text, in several parts where a line has no room for all of it.

    Args:
        heads: the head of each column.
        rows: cells, one per head.
        kept: how many columns, from the first on, stand in every part.
        left: how many of the first columns hold words and are aligned to the left.
        width: characters of a line, such as `output_width()`; None: as many as it takes. Words in
            the first column are cut before the table is parted, down to 12 characters.

    Returns:
        The lines, without a newline at the end; an empty line stands between two parts.
    """
    table = [list(heads), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    if width is not None and left:
        widths[0] = _first_width(widths, width, least=max(len(heads[0]), _LEAST_WORDS))
    parts = []
    for group in column_groups(widths, width, kept=kept):
        lines = []
        for row in table:
            cells = (
                clipped(row[i], widths[i]).ljust(widths[i]) if i < left else row[i].rjust(widths[i])
                for i in group
            )
            lines.append(_GAP.join(cells).rstrip())
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _first_width(widths: Sequence[int], width: int, *, least: int) -> int:
    """Return the characters of the first column, so that all fit beside it, or else a third."""
    room = width - sum(widths[1:]) - len(_GAP) * (len(widths) - 1)
    return min(widths[0], max(room if room >= least else width // 3, least))


def clipped(text: str, width: int) -> str:
    """Cut a text that is longer than `width` characters, and mark the cut by three dots."""
    return text if len(text) <= width else text[: max(width - 3, 0)] + "..."[:width]


def wrapped(text: str, width: int | None) -> str:
    """Break a line of prose at blanks, so that it fits into `width` characters (None: leave it)."""
    if width is None or len(text) <= width:
        return text
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
