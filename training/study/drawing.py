"""Figures as SVG files that stand alone: white paper, one palette, the viewer's own type.

Every text is escaped. Shares are labelled in per cent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias
from xml.sax.saxutils import escape, quoteattr

from jaxlake.render.palette import AGENT_COLOURS, INK, PAPER, QUIET
from training.report.charts import nice_ticks
from training.report.charts import spread as apart

SERIES = (*(disc for disc, _ in AGENT_COLOURS), "#56B4E9", QUIET, INK)
"""Colours of series; those after the last begin anew, with broken lines."""

GRID = "#d9e1e7"
_FULL = "#0072B2"
_NOTHING = "#eef3f6"
_SHAPES = (  # of a series' dots, about their middle, for a radius of 1: colour alone is not enough
    "circle",
    "M-0.9 -0.9H0.9V0.9H-0.9Z",
    "M0 -1.2L1.15 0.85H-1.15Z",
    "M0 -1.3L1.3 0L0 1.3L-1.3 0Z",
    "M0 1.2L1.15 -0.85H-1.15Z",
    "M-0.4 -1.2H0.4V-0.4H1.2V0.4H0.4V1.2H-0.4V0.4H-1.2V-0.4H-0.4Z",
    "M-1.3 -0.6H1.3V0.6H-1.3Z",
)
_CHARACTER = 0.58  # mean width of a character, in sizes of the type

Range: TypeAlias = tuple[float, float, float]
"""(value, low, high)."""


@dataclass(frozen=True)
class Series:
    """A curve: its rank decides the colour, its values come by category, None where there is no
    value."""

    rank: int
    values: Sequence[Range | None]


@dataclass(frozen=True)
class Box:
    """The pixels that a panel may use, titles and labels included."""

    x: float
    y: float
    width: float
    height: float


def page(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    """One SVG file."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label={quoteattr(title)} '
        f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
        'font-family="system-ui, -apple-system, Segoe UI, Roboto, sans-serif">\n'
        f'<rect width="100%" height="100%" fill="{PAPER}"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: float = 11,
    anchor: str = "start",
    colour: str = INK,
    bold: bool = False,
    turned: float = 0,
) -> str:
    """A line of text; `turned` degrees counter-clockwise about its anchor."""
    more = ' font-weight="600"' if bold else ""
    if turned:
        more += f' transform="rotate({-turned:g} {x:.1f} {y:.1f})"'
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}" '
        f'fill="{colour}"{more}>{escape(words)}</text>'
    )


def text_width(words: str, size: float = 11) -> float:
    """About how wide a line of text is."""
    return _CHARACTER * size * len(words)


def legend(names: Sequence[str], x: float, y: float, width: float) -> tuple[list[str], float]:
    """The names of series 0, 1, ... with their lines and dots, in lines of at most `width`.

    Returns:
        The parts, and the height that they take.
    """
    parts, left, top = [], x, y
    for rank, name in enumerate(names):
        needed = 24 + text_width(name) + 16
        if left > x and left + needed > x + width:
            left, top = x, top + 18
        parts.append(_stroke(f"M{left:.1f} {top:.1f}h18", rank, 2.5))
        parts.append(_dot(left + 9, top, rank, 4))
        parts.append(text(left + 24, top + 4, name))
        left += needed
    return parts, top - y + 18


def line_panel(
    box: Box,
    title: str,
    series: Sequence[Series],
    categories: Sequence[str],
    *,
    ends: bool = True,
    span: tuple[float, float] | None = None,
) -> list[str]:
    """Curves of shares with whiskers over categories.

    Args:
        box: where to.
        title: stands above it.
        series: the curves; values are shares.
        categories: names along the x axis.
        ends: write each curve's last value beside it.
        span: what the y axis covers at least; None: the whiskers.
    """
    values = [value for one in series for value in one.values if value is not None]
    lowest, highest = span or (min(low for _, low, _ in values), max(high for *_, high in values))
    ticks = nice_ticks(lowest, highest, count=5)
    left, right = box.x + 38, box.x + box.width - (44 if ends else 10)
    top, bottom = box.y + 24, box.y + box.height - 22
    step = (right - left - 24) / max(len(categories) - 1, 1)

    def across(category: int, rank: int) -> float:
        aside = (rank - (len(series) - 1) / 2) * min(4.0, step / (len(series) + 1))
        return left + 12 + category * step + aside

    def up(value: float) -> float:
        return bottom - (value - ticks[0]) / (ticks[-1] - ticks[0]) * (bottom - top)

    parts = [text(box.x, box.y + 12, title, size=12, bold=True)]
    for tick in ticks:
        parts.append(_rule(f"M{left:.1f} {up(tick):.1f}H{right:.1f}"))
        label = f"{100 * tick:.3g}%"
        parts.append(text(left - 5, up(tick) + 3.5, label, size=10, anchor="end", colour=QUIET))
    for number, name in enumerate(categories):
        x = left + 12 + number * step
        parts.append(text(x, bottom + 15, name, size=10, anchor="middle", colour=QUIET))
    last: list[tuple[float, str, int]] = []
    for place, one in enumerate(series):
        dots = [
            (across(number, place), up(value[0]), up(value[1]), up(value[2]))
            for number, value in enumerate(one.values)
            if value is not None
        ]
        whiskers = "".join(f"M{x:.1f} {a:.1f}V{b:.1f}" for x, _, a, b in dots if a - b > 0.5)
        if whiskers:
            parts.append(_stroke(whiskers, one.rank, 1, broken=False, opacity=0.6))
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y, _, _ in dots)
        parts.append(_stroke(path, one.rank, 1.8))
        parts += [_dot(x, y, one.rank) for x, y, _, _ in dots]
        end = [value for value in one.values if value is not None][-1]
        last.append((dots[-1][1], f"{100 * end[0]:.1f}%", one.rank))
    if ends:
        last.sort()
        heights = apart([y for y, _, _ in last], 11.5, top, bottom)
        for y, (_, words, rank) in zip(heights, last, strict=True):
            parts.append(text(right + 4, y + 3.5, words, size=10, colour=_ink(rank)))
    return parts


def interval_panel(
    box: Box, title: str, rows: Sequence[tuple[int, str, Range]], x_label: str
) -> list[str]:
    """One interval a row about a line at 0, in points.

    Args:
        box: where to.
        title: stands above it.
        rows: rank (for the colour), name and interval, in points.
        x_label: what the x axis is.
    """
    reach = [end for _, _, value in rows for end in value]
    ticks = nice_ticks(min(0.0, *reach), max(0.0, *reach), count=6)
    left = box.x + max(text_width(name) for _, name, _ in rows) + 10
    right, top, bottom = box.x + box.width - 12, box.y + 24, box.y + box.height - 36

    def across(value: float) -> float:
        return left + (value - ticks[0]) / (ticks[-1] - ticks[0]) * (right - left)

    parts = [text(box.x, box.y + 12, title, size=12, bold=True)]
    for tick in ticks:
        parts.append(_rule(f"M{across(tick):.1f} {top:.1f}V{bottom:.1f}"))
        label = f"{tick:+.3g}" if tick else "0"
        x = across(tick)
        parts.append(text(x, bottom + 14, label, size=10, anchor="middle", colour=QUIET))
    parts.append(_rule(f"M{across(0):.1f} {top:.1f}V{bottom:.1f}", INK))
    parts.append(
        text((left + right) / 2, bottom + 30, x_label, size=10, anchor="middle", colour=QUIET)
    )
    height = (bottom - top) / len(rows)
    for number, (rank, name, (value, low, high)) in enumerate(rows):
        y = top + (number + 0.5) * height
        parts.append(text(left - 10, y + 4, name, anchor="end"))
        path = f"M{across(low):.1f} {y:.1f}H{across(high):.1f}"
        parts.append(_stroke(path, rank, 2.2, broken=False))
        parts.append(_dot(across(value), y, rank, 4))
    return parts


CELL_WIDTH, CELL_HEIGHT = 38.0, 20.0


def heat_map_size(rows: Sequence[str], columns: Sequence[str]) -> tuple[float, float]:
    """Width and height of a `heat_map`."""
    left = max(map(text_width, rows)) + 8
    turned = max(text_width(name, 10) for name in columns)
    return left + CELL_WIDTH * len(columns) + 0.8 * turned, 24 + 0.7 * turned + 12 + (
        CELL_HEIGHT * len(rows)
    )


def heat_map(
    x: float,
    y: float,
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[tuple[float, str] | None]],
    limit: float,
) -> list[str]:
    """A table whose cells are the darker the larger they are.

    Args:
        x: left edge.
        y: upper edge.
        title: stands above it.
        rows: their names.
        columns: their names, which are written upwards.
        values: by row and column: the value and what is written; None: empty.
        limit: the value of the darkest cell.
    """
    left = x + max(map(text_width, rows)) + 8
    top = y + 24 + 0.7 * max(text_width(name, 10) for name in columns) + 12
    parts = [text(x, y + 12, title, size=12, bold=True)]
    for number, name in enumerate(columns):
        middle = left + (number + 0.5) * CELL_WIDTH
        parts.append(text(middle, top - 6, name, size=10, colour=QUIET, turned=40))
    for number, (name, row) in enumerate(zip(rows, values, strict=True)):
        upper = top + number * CELL_HEIGHT
        parts.append(text(left - 8, upper + 14, name, anchor="end"))
        for column, value in enumerate(row):
            paper = _NOTHING if value is None else _shade(value[0] / limit if limit else 0.0)
            across = left + column * CELL_WIDTH
            parts.append(
                f'<rect x="{across:.1f}" y="{upper:.1f}" width="{CELL_WIDTH - 1:g}" '
                f'height="{CELL_HEIGHT - 1:g}" fill="{paper}"/>'
            )
            if value is not None:
                middle = across + CELL_WIDTH / 2
                colour = _readable_on(paper)
                parts.append(
                    text(middle, upper + 13.5, value[1], size=10, anchor="middle", colour=colour)
                )
    return parts


def _stroke(
    path: str, rank: int, width: float, *, broken: bool = True, opacity: float = 1.0
) -> str:
    more = ' stroke-dasharray="5 3"' if broken and rank >= len(SERIES) else ""
    if opacity < 1:
        more += f' stroke-opacity="{opacity:g}"'
    return (
        f'<path d="{path}" fill="none" stroke="{SERIES[rank % len(SERIES)]}" '
        f'stroke-width="{width:g}" stroke-linejoin="round"{more}/>'
    )


def _dot(x: float, y: float, rank: int, radius: float = 3.4) -> str:
    """A series' own shape; 7 shapes and 8 colours, so that none comes twice for long."""
    shape = _SHAPES[rank % len(_SHAPES)]
    ink = f'fill="{SERIES[rank % len(SERIES)]}" stroke="{PAPER}"'
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" {ink} stroke-width="0.8"/>'
    place = f"translate({x:.1f} {y:.1f}) scale({radius:g})"
    return f'<path d="{shape}" transform="{place}" {ink} stroke-width="{0.8 / radius:.2g}"/>'


def _rule(path: str, colour: str = GRID) -> str:
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1"/>'


def _ink(rank: int) -> str:
    """A series' colour, darkened until it can be read on paper."""
    colour = SERIES[rank % len(SERIES)]
    while _contrast(colour, PAPER) < 4.5:
        colour = _mix(colour, INK, 0.15)
    return colour


def _shade(share: float) -> str:
    return _mix(PAPER, _FULL, 0.04 + 0.96 * min(max(share, 0.0), 1.0))


def _readable_on(paper: str) -> str:
    return max((INK, PAPER), key=lambda ink: _contrast(ink, paper))


def _channels(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def _mix(first: str, second: str, share: float) -> str:
    pairs = zip(_channels(first), _channels(second), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def _contrast(first: str, second: str) -> float:
    """WCAG 2.1 contrast of two colours, 1 to 21."""
    dark, light = sorted(_luminance(colour) for colour in (first, second))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    linear = [
        c / 12.92 if c <= 0.04045 else math.pow((c + 0.055) / 1.055, 2.4)
        for c in (channel / 255 for channel in _channels(colour))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
