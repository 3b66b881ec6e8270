"""Charts as SVG elements, drawn by matplotlib. Functions return None without data.

Colours are variables of the page's style sheet. `heading` is drawn above a chart. Screen readers
read `aria_label`, which must be unique on a page, because the ids in the SVG derive from it.
"""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from jaxlake.render.palette import INK, PAPER

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#7b8894", INK)
"""Colours of series by index (Okabe and Ito); `page.css` defines light and dark variants."""

_MARKERS = "os^DvPX"
_SOFT_INK, _GRID_LINE = "#55626e", "#d9e1e7"
_PAGE_COLOURS = {colour: f"var(--c{index})" for index, colour in enumerate(COLOURS)} | {
    INK: "var(--ink)",
    PAPER: "var(--card)",
    _SOFT_INK: "var(--soft)",
    _GRID_LINE: "var(--line)",
}
_BLUES = LinearSegmentedColormap.from_list("blues", ["#f5fafd", "#0072b3"])
_TILE_INKS = ("#11161b", "#fefefe")  # on light and on dark tiles, in both modes of the page
_STYLE = matplotlib.rc_params_from_file(Path(__file__).with_name("charts.mplstyle"), False, False)
_WIDTH, _HEIGHT = 360, 250  # pixels
_TILE_HEIGHT = 32
_MAX_UNSMOOTHED = 24  # longest curve without a running mean

Estimate = tuple[float, float, float]
"""A value with the ends of its interval: (value, low, high)."""


@dataclass(frozen=True)
class Curve:
    """Ordered points and the index of their colour. None and NaN are gaps."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    colour: int = 0


@dataclass(frozen=True)
class Series:
    """One estimate per category, None if missing, and the index of their colour."""

    name: str
    values: Sequence[Estimate | None]
    colour: int = 0


@dataclass(frozen=True)
class Tiles:
    """A table of values, NaN if missing; the title and the names of rows and columns are drawn."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float]]


def running_mean(values: np.ndarray) -> np.ndarray:
    """Return the running mean of values, float (N,). Values that are NaN stay NaN.

    A window spans about N / 12 values. Arrays of at most 24 values are returned unchanged.
    """
    if len(values) <= _MAX_UNSMOOTHED:
        return values
    mask = np.isfinite(values)
    window = np.ones(2 * (max(5, len(values) // 12) // 2) + 1)
    sums = np.convolve(np.where(mask, values, 0.0), window, "same")
    return np.where(mask, sums / np.maximum(np.convolve(mask, window, "same"), 1), np.nan)


@matplotlib.rc_context(_STYLE)
def line_chart(
    aria_label: str,
    curves: Sequence[Curve],
    *,
    x_label: str,
    heading: str,
    percent: bool = False,  # y values are shares
    log_scale: bool = False,  # the y axis is logarithmic; values up to 0 are gaps
    show_zero: bool = True,  # the y axis shows 0
    boundaries: Sequence[tuple[float, str]] = (),  # start and name of each section of the x axis
) -> str | None:
    """Draw curves over a common x axis; curves of more than 24 points also get a running mean."""
    lines = [(curve, np.array(curve.x, float), np.array(curve.y, float)) for curve in curves]
    if log_scale:
        lines = [(curve, x, np.log10(np.where(y > 0, y, np.nan))) for curve, x, y in lines]
    lines = [(curve, x, y) for curve, x, y in lines if np.isfinite(y).any()]
    if not lines:
        return None
    figure, axes = _make_figure(_HEIGHT, x_label, heading)
    for curve, x, y in lines:
        smooth_y, colour = running_mean(y), COLOURS[curve.colour]
        if len(y) > _MAX_UNSMOOTHED:
            axes.plot(x, y, color=colour, linewidth=1, alpha=0.35)
        last_y = smooth_y[np.isfinite(smooth_y)][-1]
        label = (
            f"{curve.name} {_format_number(10**last_y if log_scale else last_y, percent)}".strip()
        )
        marker = "o" if np.isfinite(y).sum() == 1 else None
        axes.plot(x, smooth_y, color=colour, linewidth=2.25, marker=marker, label=label)
    for start, name in boundaries:
        axes.axvline(start, color=_SOFT_INK, linewidth=1, linestyle=":")
        style: Any = {"textcoords": "offset points", "color": _SOFT_INK, "size": 12.5}
        axes.annotate(name, (start, 1), (3, -10), axes.get_xaxis_transform(), **style)
    if show_zero and not log_scale:
        axes.update_datalim([(lines[0][1][0], 0.0)])
        axes.autoscale()
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=log_scale))
    formatter = FuncFormatter(lambda y, _: _format_number(10**y if log_scale else y, percent, 4))
    axes.yaxis.set_major_formatter(formatter)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.grid(True)
    num_columns = 3 if sum(len(curve.name) + 8 for curve, _, _ in lines) < 36 else 2
    figure.legend(loc="outside lower left", ncols=num_columns, handlelength=1.2, columnspacing=1.2)
    return _svg_element(figure, aria_label)


@matplotlib.rc_context(_STYLE)
def rate_chart(
    aria_label: str,
    series: Sequence[Series],
    categories: Sequence[str],
    *,
    x_label: str,
    heading: str,
    span: tuple[float, float] = (0.0, 1.0),
    show_legend: bool = True,  # shows the last value of each series
) -> str | None:
    """Draw shares with whiskers, one column per category, on a y axis that covers `span`."""
    series = [row for row in series if any(estimate is not None for estimate in row.values)]
    if not series:
        return None
    figure, axes = _make_figure(_HEIGHT, x_label, heading)
    spacing = min(0.08, 0.5 / len(series))
    for index, row in enumerate(series):
        offset = (index - (len(series) - 1) / 2) * spacing
        points = [(x + offset, *estimate) for x, estimate in enumerate(row.values) if estimate]
        x, values, lows, highs = np.array(points).T
        errors = np.maximum([values - lows, highs - values], 0)
        label = f"{row.name} {100 * values[-1]:.1f}%"
        axes.errorbar(x, values, errors, **_marker_style(row.colour), capsize=2.5, label=label)
    bottom, top = span
    margin = 0.05 * max(top - bottom, 0.05)
    axes.set(xlim=(-0.4, max(len(categories) - 0.6, 0.6)), ylim=(bottom - margin, top + margin))
    axes.set_xticks(range(len(categories)), categories)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.yaxis.grid(True)
    if show_legend:
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", ncols=2, handlelength=1.6)
    return _svg_element(figure, aria_label)


@matplotlib.rc_context(_STYLE)
def bar_chart(
    aria_label: str,
    bars: Sequence[tuple[str, Mapping[str, float], str]],  # name, lengths by kind, text at the end
    kinds: Mapping[str, int],  # indices of the colours, in the order of the segments
    *,
    x_label: str,
    percent: bool = False,  # lengths are shares
) -> str | None:
    """Draw one horizontal stacked bar per row."""
    if not bars:
        return None
    figure, axes = _make_figure(64 + 34 * len(bars), x_label)
    for row, (_, lengths, text) in enumerate(bars):
        left = 0.0
        for kind, colour in kinds.items():
            if (length := lengths.get(kind, 0.0)) > 0:
                axes.barh(row, length, 0.6, left, color=COLOURS[colour])
                left += length
        axes.annotate(text, (left, row), (6, -4), textcoords="offset points")
    max_length = max(sum(lengths.values()) for _, lengths, _ in bars)
    axes.set_xlim(0.0, max(max_length, 1.0) if percent else max_length or 1.0)
    _label_rows(axes, [name for name, _, _ in bars])
    axes.xaxis.set_major_locator(MaxNLocator(4))
    if percent:
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return _svg_element(figure, aria_label)


@matplotlib.rc_context(_STYLE)
def interval_chart(
    aria_label: str, rows: Mapping[str, tuple[Estimate, int]], *, x_label: str
) -> str | None:
    """Draw one interval per row and a line at 0. `rows` maps names to estimates and colours."""
    if not rows:
        return None
    figure, axes = _make_figure(64 + 26 * len(rows), x_label)
    axes.axvline(0, color=INK, linewidth=1)
    for row, ((value, low, high), colour) in enumerate(rows.values()):
        style = _marker_style(colour) | {"linestyle": "-", "linewidth": 2.2}
        axes.plot([low, value, high], [row] * 3, markevery=[1], **style)
    _label_rows(axes, list(rows))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:+g}" if x else "0"))
    return _svg_element(figure, aria_label)


@matplotlib.rc_context(_STYLE)
def tile_chart(aria_label: str, tables: Sequence[Tiles], *, maximum: float = 1.0) -> str | None:
    """Draw tables of tiles, one below the other, from light at 0 to dark at `maximum`."""
    if not tables:
        return None
    heights = [len(table.rows) for table in tables]
    pixels = sum(heights) * _TILE_HEIGHT + 58 * len(tables)
    figure = Figure(figsize=(_WIDTH / 72, pixels / 72), dpi=72, layout="constrained")
    grid = figure.subplots(len(tables), 1, squeeze=False, gridspec_kw={"height_ratios": heights})
    for axes, table in zip(grid[:, 0], tables, strict=True):
        values = np.ma.masked_invalid(np.array(table.values, float))
        axes.pcolormesh(values, cmap=_BLUES, vmin=0, vmax=maximum, edgecolors=PAPER, linewidth=1)
        axes.set(title=table.title, ylim=(len(table.rows), 0))
        axes.set_xticks(np.arange(len(table.columns)) + 0.5, table.columns)
        axes.set_yticks(np.arange(len(table.rows)) + 0.5, table.rows)
        axes.spines["bottom"].set_visible(False)
        for (y, x), value in np.ndenumerate(np.array(table.values, float)):
            text = "" if np.isnan(value) else f"{value:.2f}"
            ink = _TILE_INKS[int(value > 0.55 * maximum)]
            axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", color=ink)
    return _svg_element(figure, aria_label)


@matplotlib.rc_context(_STYLE)
def legend_key(name: str, index: int) -> str:
    """Draw the line and marker of a series for a legend."""
    figure = Figure(figsize=(34 / 72, 16 / 72), dpi=72)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    axes.set(xlim=(0, 34), ylim=(0, 16))
    axes.plot([4, 17, 30], [8, 8, 8], markevery=[1], **_marker_style(index))
    return _svg_element(figure, f"key of {name}", "mark")


def _make_figure(height: float, x_label: str, heading: str = "") -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH / 72, height / 72), dpi=72, layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel=x_label, title=heading)
    return figure, axes


def _label_rows(axes: Axes, names: Sequence[str]) -> None:
    """Label the rows of a chart, the first on top."""
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), names, color=INK)
    axes.spines["bottom"].set_visible(False)
    axes.xaxis.grid(True)


def _marker_style(index: int) -> dict[str, Any]:
    """Return the line and marker style of a series; lines are dashed from the ninth on."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "marker": _MARKERS[index % len(_MARKERS)],
        "linestyle": "-" if index < len(COLOURS) else "--",
        "linewidth": 1.6,
        "markersize": 7,
        "markeredgecolor": PAPER,
    }


def _format_number(value: float, percent: bool, digits: int = 3) -> str:
    if percent:
        return f"{100 * value:.{digits}g}%"
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.{digits}g}".replace("e-0", "e-")


def _svg_element(figure: Figure, aria_label: str, css_class: str = "chart") -> str:
    """Return a figure as an SVG element whose colours are variables of the page."""
    buffer = io.StringIO()
    no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context({"svg.hashsalt": aria_label}):  # charts of a page share no ids
        figure.savefig(buffer, format="svg", metadata=no_metadata)
    body = buffer.getvalue().partition("<svg")[2].partition(">")[2]
    body = re.sub(r"<style.*?</style>|<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = body.replace("xlink:href", "href")
    colour_in_tag = r"#[0-9a-f]{6}\b(?=[^<>]*>)"
    body = re.sub(colour_in_tag, lambda match: _PAGE_COLOURS.get(match[0], match[0]), body)
    width, height = 72 * figure.get_size_inches()
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'class="{css_class}" role="img" aria-label={quoteattr(aria_label)}>{body}'
    )
