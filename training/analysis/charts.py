"""Charts, drawn by matplotlib and returned as SVG text; equal input gives equal text.

Charts of a page (`line_chart`, `rate_chart`, `bar_chart`, `tile_chart`) are `<svg>` elements, or
None where there is nothing to draw. They take colours and type from the page's style sheet, so they
follow its dark mode. Those of a file (`rate_panels`, `difference_panels`, `table_panels`) are SVG
documents on white paper. A title is what screen readers say; lengths are pixels.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias
from xml.sax.saxutils import escape, quoteattr

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, NullLocator

from jaxlake.render.palette import INK, PAPER

COLOURS = (*("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#7b8894"), INK)
"""Colours of series by number, from Okabe and Ito; report.css has them for both modes."""

_MARKERS = "os^DvPX"  # colour alone does not tell series apart for everyone
_SOFT, _LINE, _EMPTY = "#55626e", "#d9e1e7", "#e9eef2"
_PAGE_COLOURS = {colour: f"var(--c{number})" for number, colour in enumerate(COLOURS)} | {
    INK: "var(--ink)",
    PAPER: "var(--card)",
    _SOFT: "var(--soft)",
    _LINE: "var(--line)",
}
_LIGHT_TO_DARK = ["#f5fafd", COLOURS[0]]
_write = partial(Axes.annotate, textcoords="offset points")  # words so many pixels from a place
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],  # measures text; readers see their own type
    "font.size": 11,
    "text.color": INK,
    "axes.facecolor": "none",
    "axes.edgecolor": _SOFT,
    "axes.labelcolor": _SOFT,
    "axes.axisbelow": True,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "xtick.color": _SOFT,
    "ytick.color": _SOFT,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.major.pad": 6,
    "ytick.major.pad": 6,
    "grid.color": _LINE,
    "grid.linewidth": 1,
    "lines.solid_capstyle": "round",
    "lines.markeredgecolor": PAPER,
    "patch.edgecolor": PAPER,
    "patch.force_edgecolor": True,
}
_PAGE_STYLE: Any = _STYLE | {"font.size": 12}

Range: TypeAlias = tuple[float, float, float]
"""(value, low, high)."""


@dataclass(frozen=True)
class Curve:
    """Points in order, and the number of their colour; a y that is None or NaN is a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    colour: int = 0


@dataclass(frozen=True)
class Series:
    """One value per category, None where there is none, and the number of their colour."""

    name: str
    values: Sequence[Range | None]
    colour: int = 0


@dataclass(frozen=True)
class Tile:
    """One entry of a table that is coloured by its values."""

    words: str = ""
    shade: float | None = None  # from 0 (light) to 1 (dark); None: it has no value and is grey
    about: str = ""  # what a browser shows while the pointer rests on it


@dataclass(frozen=True)
class Mark:
    """A mark on a table: its place in tiles from the upper left corner, as floats."""

    x: float
    y: float
    filled: bool = True  # a diamond; otherwise a ring
    about: str = ""  # what a browser shows while the pointer rests on it


@dataclass(frozen=True)
class TileTable:
    """A table of tiles by row and column, with its title and the names of both."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    tiles: Sequence[Sequence[Tile]]
    marks: Sequence[Mark] = ()


# Charts of a page.

_HEIGHT, _WIDE, _NARROW = 240, 360, 280
_LEFT, _BOTTOM = 46, 40


@matplotlib.rc_context(_PAGE_STYLE)
def line_chart(
    title: str,
    curves: Sequence[Curve],
    *,
    x_label: str,
    y_label: str,
    percent: bool = False,  # y values are shares, to be labelled in per cent
    log: bool = False,  # the y axis is logarithmic; values that are not positive are gaps then
    zero: bool = True,  # the y axis shows 0
    boundaries: Sequence[tuple[float, str]] = (),  # x and name of sections; a dotted line at each
    limit: tuple[float, str] | None = None,  # a y that must not be exceeded, and its name
) -> str | None:
    """Draw curves over a common x axis; those of more than 24 points also get a running mean."""
    drawn = [(one, np.array(one.x, float), np.array(one.y, float)) for one in curves]
    if log:
        drawn = [(one, x, np.where(y > 0, y, np.nan)) for one, x, y in drawn]
    drawn = [(one, x, y) for one, x, y in drawn if np.isfinite(y).any()]
    if not drawn:
        return None
    every_x = np.concatenate([x[np.isfinite(y)] for _, x, y in drawn])
    every_y = np.concatenate([y for _, _, y in drawn] + ([] if limit is None else [limit[:1]]))
    least, most = every_x.min(), every_x.max()
    low, high = np.nanmin(every_y), np.nanmax(every_y)
    canvas = _Canvas(_WIDE, _HEIGHT)
    top = 42 if boundaries else 26
    axes = canvas.axes(_LEFT, top, _WIDE - 104 - _LEFT, _HEIGHT - _BOTTOM - top)
    canvas.text(4, 10, y_label, color=_SOFT)
    if log:
        first = math.floor(math.log10(low))
        last = max(math.ceil(math.log10(high)), first + 1)
        powers = range(first, last + 1, math.ceil((last - first) / 5))
        axes.set_yscale("log")
        axes.yaxis.set_minor_locator(NullLocator())
        _set_y_ticks(axes, [10.0**power for power in powers], [f"1e{power}" for power in powers])
    else:
        ticks = _ticks(min(low, 0.0) if zero else low, max(high, 0.0) if zero else high)
        _set_y_ticks(axes, ticks, [_number(tick, percent) for tick in ticks])
    axes.set_xlim(least - 0.5 * (least == most), most + 0.5 * (least == most))
    axes.set_xticks([x for x in _ticks(least, most, 4) if least <= x <= most])
    axes.set_xlabel(x_label)
    for start, name in boundaries:
        axes.axvline(start, color=_SOFT, linewidth=1, linestyle=(0, (2, 3)))
        _write(axes, name, (start, 1), (3, 5), axes.get_xaxis_transform(), color=_SOFT)
    if limit is not None:
        axes.axhline(limit[0], color=COLOURS[3], linewidth=1.25, linestyle=(0, (5, 3)))
        _write(axes, limit[1], (0, limit[0]), (4, -14), axes.get_yaxis_transform(), color=_SOFT)
    ends = []
    for one, x, y in drawn:
        mean, mark = running_mean(y), {"color": COLOURS[one.colour], "marker": "o"}
        if mean is not y:
            axes.plot(x, y, color=COLOURS[one.colour], linewidth=1, alpha=0.35, clip_on=False)
        dots = mark if np.isfinite(y).sum() == 1 else mark | {"marker": None}
        axes.plot(x, mean, linewidth=2.25, clip_on=False, **dots)
        last = mean[np.isfinite(mean)][-1]
        value = f"{100 * last:.0f}%" if percent else f"{last:.3g}"
        ends.append((last, f"{one.name} {value}".strip(), mark))
    _label_ends(axes, ends)
    return canvas.element(title)


@matplotlib.rc_context(_PAGE_STYLE)
def rate_chart(
    title: str,
    series: Sequence[Series],
    categories: Sequence[str],
    *,
    x_label: str,
    y_label: str,
    span: tuple[float, float] = (0.0, 1.0),
) -> str | None:
    """Draw shares with whiskers, one column per category, on an axis that covers `span`.

    Charts that are compared have one span. A chart is narrow and says the last values beside the
    curves; the page explains the colours.
    """
    series = [one for one in series if any(value is not None for value in one.values)]
    if not series:
        return None
    canvas = _Canvas(_NARROW, _HEIGHT)
    axes = canvas.axes(_LEFT, 26, _NARROW - 58 - _LEFT, _HEIGHT - _BOTTOM - 26)
    canvas.text(4, 10, y_label, color=_SOFT)
    ticks = [tick for tick in _ticks(*span, 4) if -1e-9 < tick < 1 + 1e-9]
    _set_y_ticks(axes, ticks, [_number(tick, True) for tick in ticks])
    axes.set_xlabel(x_label)
    _draw_series(axes, series, categories, ends=True, tooltips=True)
    return canvas.element(title)


@matplotlib.rc_context(_PAGE_STYLE)
def bar_chart(
    title: str,
    bars: Sequence[tuple[str, Mapping[str, float], str]],  # name, parts by kind, words at the end
    kinds: Mapping[str, int],  # as they are stacked, with the numbers of their colours
    *,
    x_label: str,
    percent: bool = False,  # lengths are shares, to be labelled in per cent
    wide: bool = False,  # as a line chart, for longer words at the ends of the bars
) -> str | None:
    """Draw horizontal bars, the parts of each side by side."""
    if not bars:
        return None
    width, rows = (_WIDE if wide else _NARROW), len(bars)
    canvas = _Canvas(width, 26 + 34 * rows + _BOTTOM)
    axes = canvas.axes(76, 20, width - 76 - 78, 34 * rows + 6)
    ticks = _ticks(0.0, max(percent, *(sum(parts.values()) for _, parts, _ in bars)) or 1.0, 3)
    _set_rows(axes, [name for name, _, _ in bars], ticks, x_label)
    axes.set_xticks(ticks, [_number(tick, percent) for tick in ticks])
    for row, (name, parts, end) in enumerate(bars):
        left = 0.0
        for kind, colour in kinds.items():
            if (length := parts.get(kind, 0.0)) > 0:
                about = f"{_TOOLTIP}{name}: {kind} {_number(length, percent)}"
                axes.barh(row, length, 0.6, left, color=COLOURS[colour], gid=about)
                left += length
        _write(axes, end, (left, row), (6, -4))
    return canvas.element(title)


@matplotlib.rc_context(_PAGE_STYLE)
def tile_chart(title: str, tables: Sequence[TileTable], *, across: int) -> str | None:
    """Draw tables of tiles, `across` in each row; their tiles keep their colours in dark mode."""
    if not tables:
        return None
    blues = LinearSegmentedColormap.from_list("blues", _LIGHT_TO_DARK)
    return _draw_tables(tables, across, blues, 0, 0, 0, _PAGE_TILES).element(title)


# Charts of a file.

_MARGIN = 16
_TILE_WIDTH, _TILE_HEIGHT = 42, 22


@dataclass(frozen=True)
class _TileStyle:
    """How the tiles of a table look."""

    width: float = _TILE_WIDTH
    height: float = _TILE_HEIGHT
    lift: float = 0.0  # how far words stand above the middle, where there may be a mark
    inks: tuple[str, str] = (INK, PAPER)  # on light tiles and on dark ones


_FILE_TILES = _TileStyle()
# The inks are not those of the page, which change with its mode: tiles don't.
_PAGE_TILES = _TileStyle(62, 42, 12, ("#11161b", "#fefefe"))


@matplotlib.rc_context(_STYLE)
def rate_panels(
    title: str,
    panels: Sequence[Mapping[str, Sequence[Series]]],  # by row and by title, everywhere the same
    categories: Sequence[str],
    *,
    zero: bool = False,  # the y axes, one per row, show 0; if not, the last values are written out
) -> str:
    """Draw panels of shares with whiskers, below a key of the series."""
    width, height = (240, 150) if zero else (320, 220)
    names = [one.name for one in next(iter(panels[0].values()))]
    whole = _MARGIN + max(map(len, panels)) * (width + _MARGIN)
    columns = max(1, int(whole // (sum(map(_width_of, names)) / len(names) + 48)))
    key_height = 18 * math.ceil(len(names) / columns) + 18
    canvas = _Canvas(whole, key_height + len(panels) * (height + 8) + 8)
    canvas.figure.legend(
        [Line2D([], [], **_mark(one.colour)) for one in next(iter(panels[0].values()))],
        names,
        loc="upper left",
        ncols=columns,
        frameon=False,
        borderaxespad=1.2,
    )
    for row, by_title in enumerate(panels):
        values = [v for series in by_title.values() for one in series for v in one.values if v]
        low = 0.0 if zero else min(low for _, low, _ in values)
        ticks = _ticks(low, max(high for _, _, high in values))
        for column, (name, series) in enumerate(by_title.items()):
            x, y = _MARGIN + column * (width + _MARGIN), key_height + row * (height + 8)
            canvas.text(x, y + 12, name, weight="bold")
            axes = canvas.axes(x + 38, y + 26, width - (48 if zero else 92), height - 48)
            _set_y_ticks(axes, ticks, [_number(tick, True) for tick in ticks])
            _draw_series(axes, series, categories, ends=not zero)
    return canvas.document(title)


@matplotlib.rc_context(_STYLE)
def difference_panels(
    title: str, panels: Mapping[str, Mapping[str, tuple[Range, int]]], *, x_label: str
) -> str:
    """Draw intervals, with the numbers of their colours, by panel and by row about a line at 0."""
    width, height = 320, 26 * max(map(len, panels.values()))
    canvas = _Canvas(_MARGIN + len(panels) * (width + _MARGIN), height + 84)
    for number, (name, rows) in enumerate(panels.items()):
        x = _MARGIN + number * (width + _MARGIN)
        canvas.text(x, _MARGIN + 12, name, weight="bold")
        left = max(map(_width_of, rows)) + 10
        axes = canvas.axes(x + left, _MARGIN + 24, width - left - 12, height)
        reach = [end for interval, _ in rows.values() for end in interval]
        ticks = _ticks(min(0.0, *reach), max(0.0, *reach))
        _set_rows(axes, list(rows), ticks, x_label)
        axes.set_xticks(ticks, [f"{tick:+.3g}" if tick else "0" for tick in ticks])
        axes.axvline(0, color=INK, linewidth=1)
        for row, ((value, low, high), colour) in enumerate(rows.values()):
            mark = _mark(colour) | {"linestyle": "-", "linewidth": 2.2, "markersize": 8}
            axes.plot([low, value, high], [row] * 3, markevery=[1], **mark)
    return canvas.document(title)


@matplotlib.rc_context(_STYLE)
def table_panels(title: str, tables: Sequence[TileTable], *, across: int) -> str:
    """Draw tables of tiles, `across` in each row."""
    blues = LinearSegmentedColormap.from_list("blues", _LIGHT_TO_DARK)
    return _draw_tables(tables, across, blues, _MARGIN, 0, 0).document(title)


# What the charts share.


def running_mean(values: np.ndarray) -> np.ndarray:
    """Average each value with its neighbours, a 24th of all values on each side.

    NaN stays NaN in the float (N,) values, which are returned as they are if N is at most 24.
    """
    if len(values) <= 24:
        return values
    there = np.isfinite(values)
    window = np.ones(2 * (max(5, len(values) // 12) // 2) + 1)
    sums = np.convolve(np.where(there, values, 0.0), window, "same")
    return np.where(there, sums / np.maximum(np.convolve(there, window, "same"), 1), np.nan)


def separate(places: Sequence[float], gap: float, high: float) -> list[float]:
    """Move ascending places as little as it takes until they are `gap` apart, none above `high`."""
    steps = gap * np.arange(len(places))
    apart = np.maximum.accumulate(np.subtract(places, steps))
    return list(np.minimum(apart, high - steps[-1]) + steps)


def _draw_series(
    axes: Axes,
    series: Sequence[Series],
    categories: Sequence[str],
    *,
    ends: bool,
    tooltips: bool = False,
) -> None:
    """Draw series over categories beside one another; `ends`: with their last values."""
    axes.set_xlim(-0.4, max(len(categories) - 0.6, 0.6))
    axes.set_xticks(range(len(categories)), categories)
    pixels = axes.bbox.width / np.ptp(axes.get_xlim())  # of a category
    apart = min(8, 0.4 * pixels / len(series)) / pixels
    last = []
    for rank, one in enumerate(series):
        aside = (rank - (len(series) - 1) / 2) * apart
        there = [(x + aside, *value) for x, value in enumerate(one.values) if value is not None]
        x, value, low, high = np.array(there).T
        reach = np.maximum([value - low, high - value], 0)
        axes.errorbar(x, value, reach, **_mark(one.colour), capsize=2.5, linewidth=1.6)
        last.append((value[-1], f"{100 * value[-1]:.1f}%", _mark(one.colour)))
        if tooltips:
            _add_tooltips(axes, one, categories, aside)
    if ends:
        _label_ends(axes, last)


def _add_tooltips(axes: Axes, series: Series, categories: Sequence[str], aside: float) -> None:
    """Lay an invisible spot over each value of a series; its tooltip says value and interval."""
    for x, (category, value) in enumerate(zip(categories, series.values, strict=True)):
        if value is not None:
            share, low, high = (f"{100 * part:.1f}" for part in value)
            look: dict[str, Any] = _mark(series.colour) | {"markersize": 16, "alpha": 0}
            [spot] = axes.plot([x + aside], [value[0]], **look)
            about = f"{series.name} {share}% [{low}, {high}], {axes.get_xlabel()} {category}"
            spot.set_gid(_TOOLTIP + about)


def _label_ends(axes: Axes, ends: Iterable[tuple[float, str, dict[str, Any]]]) -> None:
    """Write words to the right of the axes at the height of their y, moved apart as needed."""
    ordered = sorted(ends, key=lambda end: end[:2])
    to_share = axes.transData + axes.transAxes.inverted()
    heights = [to_share.transform((1, y))[1] for y, _, _ in ordered]
    x, gap = 1 + 10 / axes.bbox.width, 14 / axes.bbox.height
    for y, (_, words, mark) in zip(separate(heights, gap, 1.0), ordered, strict=True):
        style = mark | {"markersize": 6, "clip_on": False}
        axes.plot([x], [y], transform=axes.transAxes, **style)
        _write(axes, words, (x, y), (7, -4), axes.transAxes)


def _mark(number: int) -> dict[str, Any]:
    """Line and marker of a series; those after the eighth have broken lines."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "linestyle": "-" if number < len(COLOURS) else "--",
        "markersize": 7,
        "clip_on": False,
    }


def _draw_tables(
    tables: Sequence[TileTable],
    across: int,
    colours: Any,
    top: float,
    bottom: float,
    least: float,
    style: _TileStyle = _FILE_TILES,
) -> _Canvas:
    """Draw tables on a canvas at least `least` wide, with room above and below them."""
    left = max(_width_of(name) for table in tables for name in table.rows) + 10
    longest = max(_width_of(name) for table in tables for name in table.columns)
    slanted = longest > style.width
    above = 24 + (0.65 * longest if slanted else 14)
    wide = max(len(table.columns) for table in tables) * style.width
    tall = max(len(table.rows) for table in tables) * style.height
    # From table to table, across and down.
    column = left + wide + (0.8 * longest - 20 if slanted else 0) + _MARGIN
    row = above + tall + _MARGIN
    width = max(least, _MARGIN + min(across, len(tables)) * column)
    canvas = _Canvas(width, top + math.ceil(len(tables) / across) * row + bottom)
    for number, table in enumerate(tables):
        x, y = _MARGIN + number % across * column, top + number // across * row
        canvas.text(x, y + 12, table.title, weight="bold")
        wide, tall = len(table.columns) * style.width, len(table.rows) * style.height
        _draw_tiles(canvas.axes(x + left, y + above, wide, tall), table, colours, style)
    return canvas


def _draw_tiles(
    axes: Axes, table: TileTable, colours: Any, style: _TileStyle = _FILE_TILES
) -> None:
    """Fill axes with the tiles of a table; names stand to the left of it and above it."""
    axes.set(xlim=(0, len(table.columns)), ylim=(len(table.rows), 0))
    axes.axis("off")
    slanted = max(map(_width_of, table.columns)) > style.width
    turn = {"rotation": 40, "ha": "left"} if slanted else {"ha": "center"}
    for x, name in enumerate(table.columns):
        _write(axes, name, (x + 0.5, 0), (0, 6), rotation_mode="anchor", **turn)
    for y, row in enumerate(table.tiles):
        _write(axes, table.rows[y], (0, y + 0.5), (-7, -4), ha="right")
        for x, tile in enumerate(row):
            colour = _EMPTY if tile.shade is None else colours(min(max(tile.shade, 0.0), 1.0))
            patch = Rectangle((x, y), 1, 1, facecolor=colour, clip_on=False)
            patch.set_gid(_TOOLTIP + tile.about if tile.about else None)
            axes.add_patch(patch)
            luminance = np.power(to_rgb(colour), 2.2) @ [0.2126, 0.7152, 0.0722]  # as in WCAG 2.1
            ink = style.inks[0 if luminance > 0.19 else 1]  # whichever has more contrast
            place = (0, style.lift - 4)
            _write(axes, tile.words, (x + 0.5, y + 0.5), place, ha="center", color=ink)
    for mark in table.marks:
        look: dict[str, Any] = {"marker": "D", "markersize": 7, "color": COLOURS[3]}
        if not mark.filled:
            look |= {"marker": "o", "markersize": 11, "markerfacecolor": "none"}
            look |= {"markeredgecolor": COLOURS[3], "markeredgewidth": 2}
        [drawn] = axes.plot([mark.x], [mark.y], clip_on=False, **look)
        drawn.set_gid(_TOOLTIP + mark.about if mark.about else None)


def _set_y_ticks(axes: Axes, ticks: Sequence[float], labels: Sequence[str]) -> None:
    axes.set_ylim(ticks[0], ticks[-1])
    axes.set_yticks(ticks, labels)
    axes.yaxis.grid()


def _set_rows(axes: Axes, names: Sequence[str], ticks: Sequence[float], x_label: str) -> None:
    """Give axes one row per name, the first on top, and an x axis that is ruled at its ticks."""
    axes.set(xlim=(ticks[0], ticks[-1]), ylim=(len(names) - 0.5, -0.5), xlabel=x_label)
    axes.set_yticks(range(len(names)), names, color=INK)
    axes.spines["bottom"].set_visible(False)
    axes.xaxis.grid()


def _ticks(low: float, high: float, steps: int = 5) -> list[float]:
    """Round numbers in at most `steps` equal steps that cover `low` to `high`."""
    if not high > low:
        high = low + (abs(low) or 1.0)
    return list(MaxNLocator(steps, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high))


def _number(value: float, percent: bool) -> str:
    return f"{100 * value:.3g}%" if percent else f"{value:.5g}"


def _width_of(words: str) -> float:
    """About how wide words are, pixels."""
    return 6.4 * len(words)


_TOOLTIP = "tooltip:"
"""Begins the id of a patch; the rest of the id is what its tooltip says."""


class _Canvas:
    """A figure that is measured in pixels from its upper left corner."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.figure = Figure(figsize=(width / 72, height / 72), dpi=72)

    def axes(self, x: float, y: float, width: float, height: float) -> Axes:
        """Add axes whose frame is this rectangle."""
        w, h = self.width, self.height
        return self.figure.add_axes((x / w, 1 - (y + height) / h, width / w, height / h))

    def text(self, x: float, y: float, words: str, size: float = 11, **style: Any) -> None:
        """Write words whose baseline begins at a place."""
        self.figure.text(x / self.width, 1 - y / self.height, words, size=size, **style)

    def element(self, title: str) -> str:
        """Return an element of a page, which lends it colours and type."""
        self.figure.patch.set_visible(False)
        text = self._svg(title, 'class="chart"')
        return re.sub(r"#[0-9a-f]{6}", lambda hit: _PAGE_COLOURS.get(hit[0], hit[0]), text)

    def document(self, title: str) -> str:
        """Return a file on white paper in the reader's own type."""
        size = f'width="{self.width:.0f}" height="{self.height:.0f}"'
        return self._svg(title, size, f"<style>text{{font-family:{_FONT}!important}}</style>")

    def _svg(self, title: str, attributes: str, style: str = "") -> str:
        buffer = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        with matplotlib.rc_context({"svg.hashsalt": title}):  # so that no two charts share an id
            self.figure.savefig(buffer, format="svg", metadata=nothing)
        body = buffer.getvalue().partition("<svg")[2].partition(">")[2]
        body = re.sub(rf'<g id="{_TOOLTIP}([^"]*)">', r"<g><title>\1</title>", body)
        body = re.sub(r'<g id="[^"]*">', "<g>", body).replace("xlink:href", "href")
        body = re.sub(r"\s*\n\s*", " ", body)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label={quoteattr(title)} '
            f'viewBox="0 0 {self.width:.0f} {self.height:.0f}" {attributes}>'
            f"<title>{escape(title)}</title>{style}{body}"
        )
