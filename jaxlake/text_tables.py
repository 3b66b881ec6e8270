"""Plain-text tables with aligned columns, and durations for people."""

from collections.abc import Sequence


def format_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 0) -> str:
    """Format a table; the first `left` columns are left-aligned, the others right-aligned."""
    table = [tuple(heads), *map(tuple, rows)]
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
    """Format seconds for people: 41 s, 3 min 12 s, 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
