"""What all charts share: series and tables as data, colours, how they are drawn, their SVG text.

`charts.py` has the charts themselves.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias
from xml.sax.saxutils import escape, quoteattr

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxlake.render.palette import INK, PAPER
from training.analysis.pages.chart_markup import (
    MATPLOTLIB_DEFAULTS,
    MOST_STOPS,
    TOOLTIP,
    Stop,
    stops_attribute,
    with_tooltips,
    without_styles,
)

COLOURS = (*("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#7b8894"), INK)
"""Colours of series by number, from Okabe and Ito; page.css has them for both modes."""

MARKERS = "os^DvPX"  # colour alone does not tell series apart for everyone
SOFT, LINE, EMPTY = "#55626e", "#d9e1e7", "#e9eef2"
_PAGE_COLOURS = {colour: f"var(--c{number})" for number, colour in enumerate(COLOURS)} | {
    INK: "var(--ink)",
    PAPER: "var(--card)",
    SOFT: "var(--soft)",
    LINE: "var(--line)",
}
LIGHT_TO_DARK = ["#f5fafd", COLOURS[0]]
write = partial(Axes.annotate, textcoords="offset points")  # words so many pixels from a place
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
STYLE: Any = {
    "svg.fonttype": "none",  # text stays text
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],  # measures text; readers see their own type
    "font.size": 11,
    "text.color": INK,
    "axes.facecolor": "none",
    "axes.edgecolor": SOFT,
    "axes.labelcolor": SOFT,
    "axes.axisbelow": True,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.major.pad": 6,
    "ytick.major.pad": 6,
    "grid.color": LINE,
    "grid.linewidth": 1,
    "lines.solid_capstyle": "round",
    "lines.markeredgecolor": PAPER,
    "patch.edgecolor": PAPER,
    "patch.force_edgecolor": True,
}
PAGE_STYLE: Any = STYLE | {"font.size": 12}

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


PAGE_TYPE = 1.15
"""How much larger the type of a page is than that of a file."""
MARGIN = 16
"""Pixels around what a file shows."""


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


def draw_series(
    axes: Axes,
    series: Sequence[Series],
    categories: Sequence[str],
    *,
    ends: bool,
    tooltips: str = "",
) -> None:
    """Draw series over categories beside one another; `ends`: with their last values.

    `tooltips` is the form in which tooltips tell a value and its range, such as `RANGES`.
    """
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
        axes.errorbar(x, value, reach, **mark_style(one.colour), capsize=2.5, linewidth=1.6)
        last.append((value[-1], f"{100 * value[-1]:.1f}%", mark_style(one.colour)))
        if tooltips:
            _add_tooltips(axes, one, categories, aside, tooltips)
    if ends:
        label_ends(axes, last)


INTERVALS, RANGES = "{}% [{}, {}]", "{}% ({} to {})"
"""How tooltips tell a value with its interval, or with the least and the largest of many."""


def _add_tooltips(
    axes: Axes, series: Series, categories: Sequence[str], aside: float, form: str
) -> None:
    """Lay an invisible spot over each value of a series; its tooltip says value and range."""
    for x, (category, value) in enumerate(zip(categories, series.values, strict=True)):
        if value is not None:
            said = form.format(*(f"{100 * part:.1f}" for part in value))
            look: dict[str, Any] = mark_style(series.colour) | {"markersize": 16, "alpha": 0}
            [spot] = axes.plot([x + aside], [value[0]], **look)
            about = f"{series.name} {said}, {axes.get_xlabel()} {category}"
            spot.set_gid(TOOLTIP + about)


def line_stops(
    axes: Axes,
    curves: Sequence[tuple[str, np.ndarray, np.ndarray]],  # name, x and y; NaN is a gap
    boundaries: Sequence[tuple[float, str]],  # x and name of sections, ascending
    percent: bool,
) -> list[Stop]:
    """What a chart tells at `MOST_STOPS` of its x at most, the last among them: all y there.

    A curve of many points tells its running mean, too. Places are pixels of the canvas.
    """
    every = sorted({float(x) for _, xs, ys in curves for x in xs[np.isfinite(ys)]})
    chosen = every[:: -(-len(every) // MOST_STOPS)]
    if chosen[-1] != every[-1]:
        chosen.append(every[-1])
    told: dict[float, list[tuple[str, float]]] = {x: [] for x in chosen}
    for name, xs, ys in curves:
        means = running_mean(ys)
        for x, y, mean in zip(xs.tolist(), ys.tolist(), means.tolist(), strict=True):
            if x in told and np.isfinite(y):
                words = f"{name} {_told(y, percent)}".strip()
                words += "" if means is ys else f" (mean {_told(mean, percent)})"
                told[x].append((words, y))
    height = axes.figure.bbox.height
    stops = []
    for x, values in told.items():
        place = axes.transData.transform([(x, y) for _, y in values])
        section = [name for start, name in boundaries if start <= x][-1:]
        where = ", ".join([f"{axes.get_xlabel()} {x:g}", *section])
        words = f"{where}: {', '.join(words for words, _ in values)}"
        stops.append(Stop(words, float(place[0, 0]), tuple((height - place[:, 1]).tolist())))
    return stops


def _told(value: float, percent: bool) -> str:
    return f"{100 * value:.1f}%" if percent else short_number(value)


END_HEIGHT = 14
"""Pixels that the words at the end of a curve take."""


def label_ends(axes: Axes, ends: Iterable[tuple[float, str, dict[str, Any]]]) -> None:
    """Write words to the right of the axes at the height of their y, moved apart as needed."""
    ordered = sorted(ends, key=lambda end: end[:2])
    to_share = axes.transData + axes.transAxes.inverted()
    heights = [to_share.transform((1, y))[1] for y, _, _ in ordered]
    x, gap = 1 + 10 / axes.bbox.width, END_HEIGHT / axes.bbox.height
    for y, (_, words, mark) in zip(separate(heights, gap, 1.0), ordered, strict=True):
        style = mark | {"markersize": 6, "clip_on": False}
        axes.plot([x], [y], transform=axes.transAxes, **style)
        write(axes, words, (x, y), (7, -4), axes.transAxes)


def mark_style(number: int) -> dict[str, Any]:
    """Line and marker of a series; those after the eighth have broken lines."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": "-" if number < len(COLOURS) else "--",
        "markersize": 7,
        "clip_on": False,
    }


def set_y_ticks(axes: Axes, ticks: Sequence[float], labels: Sequence[str]) -> None:
    """Give axes a ruled y axis from the first of its ticks to the last."""
    axes.set_ylim(ticks[0], ticks[-1])
    axes.set_yticks(ticks, labels)
    axes.yaxis.grid()


def set_rows(axes: Axes, names: Sequence[str], ticks: Sequence[float], x_label: str) -> None:
    """Give axes one row per name, the first on top, and an x axis that is ruled at its ticks."""
    axes.set(xlim=(ticks[0], ticks[-1]), ylim=(len(names) - 0.5, -0.5), xlabel=x_label)
    axes.set_yticks(range(len(names)), names, color=INK)
    axes.spines["bottom"].set_visible(False)
    axes.xaxis.grid()


def round_ticks(low: float, high: float, steps: int = 5) -> list[float]:
    """Round numbers in at most `steps` equal steps that cover `low` to `high`."""
    if not high > low:
        high = low + (abs(low) or 1.0)
    return list(MaxNLocator(steps, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high))


def number_text(value: float, percent: bool) -> str:
    """Write a number at a tick, a share in per cent."""
    return f"{100 * value:.3g}%" if percent else f"{value:.5g}"


def short_number(value: float) -> str:
    """Write a number with three digits, and from 1,000 on with all before its point."""
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}".replace("e-0", "e-")


def width_of(words: str) -> float:
    """About how wide words are, pixels."""
    return 6.4 * len(words)


class Canvas:
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

    def element(self, title: str, stops: Sequence[Stop] = ()) -> str:
        """Return an element of a page, which lends it colours and type.

        `stops` are the places at which charts.js tells values, beside patches with a tooltip.
        """
        named = f'class="chart" {MATPLOTLIB_DEFAULTS}{stops_attribute(stops)} {_name(title)}'
        return self._svg(named, f"<title>{escape(title)}</title>{self._page_body(title)}")

    def mark(self, name: str) -> str:
        """Return an element of a page that stands beside words, and says nothing itself.

        No other element of the page has its name, which is not shown.
        """
        unnamed = f'class="mark" {MATPLOTLIB_DEFAULTS} aria-hidden="true"'
        return self._svg(unnamed, self._page_body(name))

    def document(self, title: str) -> str:
        """Return a file on white paper in the reader's own type."""
        size = f'width="{self.width:.0f}" height="{self.height:.0f}" {_name(title)}'
        style = f"<style>text{{font-family:{_FONT}!important}}</style>"
        return self._svg(size, f"<title>{escape(title)}</title>{style}{self._body(title)}")

    def _svg(self, attributes: str, content: str) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" '
            f'viewBox="0 0 {self.width:.0f} {self.height:.0f}" {attributes}>{content}'
        )

    def _page_body(self, title: str) -> str:
        self.figure.patch.set_visible(False)
        return without_styles(self._body(title), _PAGE_COLOURS)

    def _body(self, title: str) -> str:
        """What matplotlib draws, without the beginning of its root element."""
        buffer = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        with matplotlib.rc_context({"svg.hashsalt": title}):  # so that no two charts share an id
            self.figure.savefig(buffer, format="svg", metadata=nothing)
        body = buffer.getvalue().partition("<svg")[2].partition(">")[2]
        body = with_tooltips(body).replace("xlink:href", "href")
        return re.sub(r"\s*\n\s*", " ", body)


def _name(title: str) -> str:
    return f'role="img" aria-label={quoteattr(title)}'
