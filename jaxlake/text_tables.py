"""Plain-text tables with aligned columns, and readable durations."""

from collections.abc import Sequence


def format_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 0) -> str:
    """Format a table whose first `left` columns are left-aligned, and the others right-aligned."""
    table = [tuple(headers), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        cells = [
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def format_duration(seconds: float) -> str:
    """Format seconds as in 41 s, 3 min 12 s or 2 h 05 min."""
    whole_seconds = round(seconds)
    if whole_seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole_seconds} s"
    if whole_seconds < 3600:
        return f"{whole_seconds // 60} min {whole_seconds % 60:02d} s"
    return f"{whole_seconds // 3600} h {whole_seconds % 3600 // 60:02d} min"
