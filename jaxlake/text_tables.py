"""Plain tables of aligned columns."""

from collections.abc import Sequence


def aligned_text(heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 0) -> str:
    """Return a table as lines; the first `left` columns are aligned to the left, others right."""
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
