"""Charts, drawn by matplotlib and returned as SVG text; equal input gives equal text.

Charts of a page (`line_chart`, `rate_chart`, `bar_chart`, `difference_chart`, `tile_chart`) are
`<svg>` elements, or None where there is nothing to draw. They take colours and type from the
page's style sheet, so they follow its dark mode. Those of a file (`rate_panels`,
`difference_panels`, `table_panels`) are SVG documents on white paper. A title is what screen
readers say; lengths are pixels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from jaxlake.render.palette import INK
from training.analysis.pages.chart_drawing import (
    COLOURS,
    END_HEIGHT,
    INTERVALS,
    MARGIN,
    PAGE_STYLE,
    PAGE_TYPE,
    SOFT,
    STYLE,
    TOOLTIP,
    Canvas,
    Curve,
    Range,
    Series,
    draw_series,
    label_ends,
    line_stops,
    mark_style,
    number_text,
    round_ticks,
    running_mean,
    set_rows,
    set_y_ticks,
    short_number,
    width_of,
    write,
)
from training.analysis.pages.tiles import PAGE_TILES, TileStyle, TileTable, draw_tables

# Charts of a page.

_HEIGHT, _WIDE, _NARROW = 240, 360, 280
_LEFT, _RIGHT, _BOTTOM = 46, 104, 40


def _page_width(texts: Iterable[str]) -> float:
    """About how wide the longest of some texts is on a page, pixels; pages write larger."""
    return PAGE_TYPE * max(map(width_of, texts))


def _value_text(value: float, percent: bool) -> str:
    """Write the last value of a curve beside it."""
    return f"{100 * value:.0f}%" if percent else short_number(value)


@matplotlib.rc_context(PAGE_STYLE)
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
    if log:
        first = math.floor(math.log10(low))
        last = max(math.ceil(math.log10(high)), first + 1)
        powers = range(first, last + 1, math.ceil((last - first) / 5))
        ticks, names = [10.0**power for power in powers], [f"1e{power}" for power in powers]
    else:
        ticks = round_ticks(min(low, 0.0) if zero else low, max(high, 0.0) if zero else high)
        names = [number_text(tick, percent) for tick in ticks]
    means = [running_mean(y) for _, _, y in drawn]
    lasts = [float(mean[np.isfinite(mean)][-1]) for mean in means]
    ends = [
        f"{one.name} {_value_text(last, percent)}".strip()
        for (one, _, _), last in zip(drawn, lasts, strict=True)
    ]
    canvas = Canvas(_WIDE, _HEIGHT)
    top, left = (42 if boundaries else 26), max(_LEFT, 10 + _page_width(names))
    right = max(_RIGHT, 22 + _page_width(ends))
    axes = canvas.axes(left, top, _WIDE - right - left, _HEIGHT - _BOTTOM - top)
    canvas.text(4, 10, y_label, color=SOFT)
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_minor_locator(NullLocator())
    set_y_ticks(axes, ticks, names)
    axes.set_xlim(least - 0.5 * (least == most), most + 0.5 * (least == most))
    axes.set_xticks([x for x in round_ticks(least, most, 4) if least <= x <= most])
    axes.set_xlabel(x_label)
    for start, name in boundaries:
        axes.axvline(start, color=SOFT, linewidth=1, linestyle=(0, (2, 3)))
        write(axes, name, (start, 1), (3, 5), axes.get_xaxis_transform(), color=SOFT)
    if limit is not None:
        axes.axhline(limit[0], color=COLOURS[3], linewidth=1.25, linestyle=(0, (5, 3)))
        write(axes, limit[1], (0, limit[0]), (4, -14), axes.get_yaxis_transform(), color=SOFT)
    marks: list[dict[str, Any]] = [
        {"color": COLOURS[one.colour], "marker": "o"} for one, _, _ in drawn
    ]
    for (_, x, y), mean, mark in zip(drawn, means, marks, strict=True):
        if mean is not y:
            axes.plot(x, y, color=mark["color"], linewidth=1, alpha=0.35, clip_on=False)
        dots = mark if np.isfinite(y).sum() == 1 else mark | {"marker": None}
        axes.plot(x, mean, linewidth=2.25, clip_on=False, **dots)
    label_ends(axes, zip(lasts, ends, marks, strict=True))
    stops = line_stops(axes, [(one.name, x, y) for one, x, y in drawn], boundaries, percent)
    return canvas.element(title, stops)


@matplotlib.rc_context(PAGE_STYLE)
def rate_chart(
    title: str,
    series: Sequence[Series],
    categories: Sequence[str],
    *,
    x_label: str,
    y_label: str,
    span: tuple[float, float] = (0.0, 1.0),
    tooltips: str = INTERVALS,  # how they tell a value and its range
) -> str | None:
    """Draw shares with whiskers, one column per category, on an axis that covers `span`.

    Charts that are compared have one span. A chart is narrow and says the last values beside the
    curves, if there is room for all; the page explains the colours.
    """
    series = [one for one in series if any(value is not None for value in one.values)]
    if not series:
        return None
    canvas, tall = Canvas(_NARROW, _HEIGHT), _HEIGHT - _BOTTOM - 26
    ends = len(series) * END_HEIGHT <= tall
    axes = canvas.axes(_LEFT, 26, _NARROW - (58 if ends else 14) - _LEFT, tall)
    canvas.text(4, 10, y_label, color=SOFT)
    ticks = [tick for tick in round_ticks(*span, 4) if -1e-9 < tick < 1 + 1e-9]
    set_y_ticks(axes, ticks, [number_text(tick, True) for tick in ticks])
    axes.set_xlabel(x_label)
    draw_series(axes, series, categories, ends=ends, tooltips=tooltips)
    return canvas.element(title)


@matplotlib.rc_context(PAGE_STYLE)
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
    canvas = Canvas(width, 26 + 34 * rows + _BOTTOM)
    left = max(76, 10 + _page_width(name for name, _, _ in bars))
    right = max(78, 14 + _page_width(end for _, _, end in bars))
    axes = canvas.axes(left, 20, width - left - right, 34 * rows + 6)
    ticks = round_ticks(0.0, max(percent, *(sum(parts.values()) for _, parts, _ in bars)) or 1.0, 3)
    set_rows(axes, [name for name, _, _ in bars], ticks, x_label)
    axes.set_xticks(ticks, [number_text(tick, percent) for tick in ticks])
    for row, (name, parts, end) in enumerate(bars):
        done = 0.0
        for kind, colour in kinds.items():
            if (length := parts.get(kind, 0.0)) > 0:
                said = kind.replace("_", " ")
                value = number_text(length, percent) if percent else f"{length:.3g} {x_label}"
                about = f"{TOOLTIP}{name}: {said} {value}"
                axes.barh(row, length, 0.6, done, color=COLOURS[colour], gid=about)
                done += length
        write(axes, end, (done, row), (6, -4))
    return canvas.element(title)


@matplotlib.rc_context(PAGE_STYLE)
def difference_chart(
    title: str, rows: Mapping[str, tuple[Range, int]], *, x_label: str
) -> str | None:
    """Draw intervals, with the numbers of their colours, by row about a line at 0."""
    if not rows:
        return None
    left, height = 10 + _page_width(rows), 26 * len(rows)
    canvas = Canvas(_WIDE, height + 10 + _BOTTOM)
    _draw_differences(canvas.axes(left, 8, _WIDE - left - 14, height), rows, x_label, 4)
    return canvas.element(title)


@matplotlib.rc_context(PAGE_STYLE)
def key_mark(name: str, number: int) -> str:
    """Draw the line and the marker of a series, to stand beside its name in a key."""
    canvas = Canvas(34, 16)
    axes = canvas.axes(0, 0, 34, 16)
    axes.axis("off")
    axes.set(xlim=(0, 34), ylim=(0, 16))
    axes.plot([4, 17, 30], [8, 8, 8], markevery=[1], linewidth=1.6, **mark_style(number))
    return canvas.mark(f"key of {name}")


@matplotlib.rc_context(PAGE_STYLE)
def tile_chart(
    title: str, tables: Sequence[TileTable], *, across: int, style: TileStyle = PAGE_TILES
) -> str | None:
    """Draw tables of tiles, `across` in each row; their tiles keep their colours in dark mode."""
    if not tables:
        return None
    return draw_tables(tables, across, 0, 0, 0, style).element(title)


def _draw_differences(
    axes: Axes, rows: Mapping[str, tuple[Range, int]], x_label: str, steps: int = 5
) -> None:
    """Draw intervals by row about a line at 0; each has a tooltip."""
    reach = [end for interval, _ in rows.values() for end in interval]
    ticks = round_ticks(min(0.0, *reach), max(0.0, *reach), steps)
    set_rows(axes, list(rows), ticks, x_label)
    axes.set_xticks(ticks, [f"{tick:+.3g}" if tick else "0" for tick in ticks])
    axes.axvline(0, color=INK, linewidth=1)
    for row, (name, ((value, low, high), colour)) in enumerate(rows.items()):
        mark = mark_style(colour) | {"linestyle": "-", "linewidth": 2.2, "markersize": 8}
        [drawn] = axes.plot([low, value, high], [row] * 3, markevery=[1], **mark)
        drawn.set_gid(f"{TOOLTIP}{name}: {value:+.1f} [{low:+.1f}, {high:+.1f}] {x_label}")


# Charts of a file.


@matplotlib.rc_context(STYLE)
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
    whole = MARGIN + max(map(len, panels)) * (width + MARGIN)
    columns = max(1, int(whole // (sum(map(width_of, names)) / len(names) + 48)))
    key_height = 18 * math.ceil(len(names) / columns) + 18
    canvas = Canvas(whole, key_height + len(panels) * (height + 8) + 8)
    canvas.figure.legend(
        [Line2D([], [], **mark_style(one.colour)) for one in next(iter(panels[0].values()))],
        names,
        loc="upper left",
        ncols=columns,
        frameon=False,
        borderaxespad=1.2,
    )
    for row, by_title in enumerate(panels):
        values = [v for series in by_title.values() for one in series for v in one.values if v]
        low = 0.0 if zero else min(low for _, low, _ in values)
        ticks = round_ticks(low, max(high for _, _, high in values))
        for column, (name, series) in enumerate(by_title.items()):
            x, y = MARGIN + column * (width + MARGIN), key_height + row * (height + 8)
            canvas.text(x, y + 12, name, weight="bold")
            axes = canvas.axes(x + 38, y + 26, width - (48 if zero else 92), height - 48)
            set_y_ticks(axes, ticks, [number_text(tick, True) for tick in ticks])
            draw_series(axes, series, categories, ends=not zero)
    return canvas.document(title)


@matplotlib.rc_context(STYLE)
def difference_panels(
    title: str, panels: Mapping[str, Mapping[str, tuple[Range, int]]], *, x_label: str
) -> str:
    """Draw intervals, with the numbers of their colours, by panel and by row about a line at 0."""
    width, height = 320, 26 * max(map(len, panels.values()))
    canvas = Canvas(MARGIN + len(panels) * (width + MARGIN), height + 84)
    for number, (name, rows) in enumerate(panels.items()):
        x = MARGIN + number * (width + MARGIN)
        canvas.text(x, MARGIN + 12, name, weight="bold")
        left = max(map(width_of, rows)) + 10
        axes = canvas.axes(x + left, MARGIN + 24, width - left - 12, height)
        _draw_differences(axes, rows, x_label)
    return canvas.document(title)


@matplotlib.rc_context(STYLE)
def table_panels(title: str, tables: Sequence[TileTable], *, across: int) -> str:
    """Draw tables of tiles, `across` in each row."""
    return draw_tables(tables, across, MARGIN, 0, 0).document(title)
