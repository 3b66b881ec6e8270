"""Heat maps of a sweep: a rate over two knobs, with one panel per setting of the other knobs."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxlake.errors import did_you_mean
from jaxlake.sweeps.knobs import SweepError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

Rows = Mapping[str, np.ndarray]
"""Columns by name, as returned by `jaxlake.sweeps.read`."""

AXES = ("hole_ratio", "wait_ratio", "size", "num_agents")
"""Knobs that can be axes of a plot."""

_KEYS = ("configuration", "policy", *AXES)
_PANELS = ("policy", "size", "num_agents")  # one panel per value unless they are an axis
_LABELS = {
    "hole_ratio": "cells that are holes",
    "wait_ratio": "boards that need a wait",
    "size": "side of the board",
    "num_agents": "agents",
    "valid": "valid plans",
    "agents_at_goal": "agents at their goals",
    "optimal_sum_of_costs": "plans of optimal sum of costs",
    "optimal_makespan": "plans of optimal makespan",
    "needs_wait": "boards that need a wait",
    "valid_needs_wait": "valid plans on boards that need a wait",
    "missing": "boards that could not be made",
    "unknown": "candidates that the solver gave up",
    "compared": "plans compared with the optimum",
}
_MEANS = {
    "sum_of_costs": "sum of costs of valid plans, steps",
    "makespan": "makespan of valid plans, steps",
    "excess_sum_of_costs": "sum of costs above the optimum, steps",
    "excess_makespan": "makespan above the optimum, steps",
    "candidates": "candidates per board",
}
_DENOMINATORS = {
    "agents_at_goal": ("agents",),
    "valid_needs_wait": ("needs_wait",),
    "missing": ("boards", "missing"),
    "unknown": ("candidates",),
    "sum_of_costs": ("valid",),
    "makespan": ("valid",),
    "excess_sum_of_costs": ("compared",),
    "excess_makespan": ("compared",),
}
"""Counters by which each counter is divided; the default is `boards`."""

_NOT_RATES = ("boards", "agents", "sum_of_costs_squared", "makespan_squared")
_MAX_VALUES = 40  # per axis; more values are binned
_BINS = 20
_MAX_TICKS = 8
_MAX_COLUMNS = 6
_MAX_PANELS = 72
_MAX_PRINTED_CELLS = 120  # per panel; larger panels have no printed values


def plot(
    rows: Rows, *, x: str | None = None, y: str | None = None, value: str = "valid"
) -> "Figure":
    """Draw heat maps of a rate over two knobs.

    Each policy, size and number of agents gets its own panel unless it is an axis. A ratio that is
    not an axis is pooled. Cells without boards are grey. An axis with more than 40 values, which is
    common for samples, is divided into 20 bins.

    Args:
        rows: Columns by name, as returned by `jaxlake.sweeps.read`.
        x: The knob of the horizontal axis, one of `AXES`. Defaults to the first one that varies.
        y: The knob of the vertical axis. Defaults to the next one that varies.
        value: The counter to draw, such as `valid` (CSR) or `agents_at_goal` (ISR), as a share of
            the plans, boards, agents or candidates, or as a mean number of steps.

    Returns:
        A figure already closed in pyplot: notebooks show it, `savefig` writes it to a file.

    Raises:
        SweepError: `rows` is empty, a name is unknown, or more than 72 panels are needed.
        ModuleNotFoundError: matplotlib is not installed.
    """
    from matplotlib import pyplot

    if not isinstance(rows, Mapping):
        raise SweepError(f"rows must be the result of read, got {type(rows).__name__}")
    if not len(rows["configuration"]):
        raise SweepError("rows must not be empty")
    _check_name("value", value, [name for name in rows if name not in (*_KEYS, *_NOT_RATES)])
    columns, lines = (_Axis.from_column(name, rows[name]) for name in _axis_names(rows, x, y))
    names, rates = _panels(rows, columns, lines, value)
    layout = _panel_layout(rows, len(names))

    # pyplot registers the display of figures in notebooks; a closed figure is shown only once.
    figure = pyplot.figure(figsize=_inches(layout.shape, columns, lines), layout="constrained")
    pyplot.close(figure)
    grid = figure.subplots(*layout.shape, sharex=True, sharey=True, squeeze=False)
    limits = (0.0, 100.0)
    if value in _MEANS and not np.isnan(rates).all():
        limits = (float(np.nanmin(rates)), float(np.nanmax(rates)))
    below = np.pad(layout[1:], ((0, 1), (0, 0)), constant_values=-1)
    for axes, panel, is_last in zip(grid.flat, layout.flat, below.ravel() < 0, strict=True):
        if panel < 0:
            axes.set_visible(False)
            continue
        axes.set_title(names[panel], fontsize="small")
        image = _draw(axes, rates[panel], limits)
        columns.label_ticks(axes.xaxis)
        axes.xaxis.set_tick_params(labelbottom=bool(is_last))
        lines.label_ticks(axes.yaxis)
    label = _MEANS.get(value) or f"{_LABELS.get(value, value.replace('_', ' '))}, %"
    figure.colorbar(image, ax=grid, label=label, aspect=30, pad=0.02)
    figure.supxlabel(columns.label, fontsize="medium")
    figure.supylabel(lines.label, fontsize="medium")
    title = _fixed_knobs(rows, columns, lines)
    if np.isnan(rates).any():
        total = _DENOMINATORS.get(value, ("boards",))[0]
        title.append(f"grey: no {_LABELS.get(total, total)}")
    figure.suptitle(", ".join(title), fontsize="medium")
    return figure


@dataclass(frozen=True)
class _Axis:
    """Cells of a heat map along one knob."""

    knob: str
    values: np.ndarray  # value of each cell, or the centre of its bin
    cells: np.ndarray  # cell index of each row

    @classmethod
    def from_column(cls, knob: str, column: np.ndarray) -> "_Axis":
        values, cells = np.unique(column, return_inverse=True)
        if len(values) <= _MAX_VALUES:
            return cls(knob, values, cells)
        edges = np.linspace(values[0], values[-1], _BINS + 1)
        cells = np.searchsorted(edges[1:-1], column, side="right")
        return cls(knob, (edges[1:] + edges[:-1]) / 2, cells)

    @property
    def is_ratio(self) -> bool:
        return self.knob.endswith("_ratio")

    @property
    def label(self) -> str:
        return _LABELS[self.knob] + (", %" if self.is_ratio else "")

    def label_ticks(self, axis: Any) -> None:
        cells = range(0, len(self.values), math.ceil(len(self.values) / _MAX_TICKS))
        factor = 100 if self.is_ratio else 1
        axis.set_ticks(cells, [f"{factor * self.values[cell]:.3g}" for cell in cells])
        axis.set_tick_params(labelsize="small", length=2)


def _axis_names(rows: Rows, x: str | None, y: str | None) -> tuple[str, str]:
    """Return the knobs of the axes; choose those that are None."""
    for option, name in (("x", x), ("y", y)):
        if name is not None:
            _check_name(option, name, AXES)
    if x is not None and x == y:
        raise SweepError(f"x and y must be different knobs, got {x} for both")
    free = [name for name in AXES if name not in (x, y)]
    free.sort(key=lambda name: not _varies(rows, name))
    x = x or free.pop(0)
    return x, y or free.pop(0)


def _check_name(option: str, name: str, allowed: Any) -> None:
    if name not in allowed:
        names = ", ".join(allowed)
        raise SweepError(
            f"{option} must be one of {names}, got {name}{did_you_mean(name, allowed)}"
        )


def _varies(rows: Rows, name: str) -> bool:
    return bool((rows[name] != rows[name][0]).any())


def _panels(rows: Rows, x: _Axis, y: _Axis, value: str) -> tuple[list[str], np.ndarray]:
    """Return panel names, and rates (panels, y, x) in per cent or as means; NaN without boards."""
    knobs = [name for name in _PANELS if name not in (x.knob, y.knob)]
    uniques = [np.unique(rows[name], return_inverse=True) for name in knobs]
    values, indices = zip(*uniques, strict=True)
    counts = list(map(len, values))
    if (panels := math.prod(counts)) > _MAX_PANELS:
        raise SweepError(
            f"x and y must leave at most {_MAX_PANELS} panels, got {panels} panels for "
            f"{', '.join(knobs)}"
        )
    varying = [knob for knob, count in zip(knobs, counts, strict=True) if count > 1]
    settings = [dict(zip(knobs, setting, strict=True)) for setting in itertools.product(*values)]
    names = [
        ", ".join(_setting_text(knob, setting[knob]) for knob in varying) for setting in settings
    ]
    shape = (*counts, len(y.values), len(x.values))
    cells = np.ravel_multi_index((*indices, y.cells, x.cells), shape)

    def total(counters: tuple[str, ...]) -> np.ndarray:
        # float64 represents sums below 2**53 exactly.
        sums = np.bincount(cells, sum(rows[name] for name in counters), math.prod(shape))
        return sums.reshape(panels, *shape[-2:])

    numerator, denominator = total((value,)), total(_DENOMINATORS.get(value, ("boards",)))
    nan = np.full_like(numerator, np.nan)
    rates = np.divide(numerator, denominator, out=nan, where=denominator > 0)
    return names, rates if value in _MEANS else 100 * rates


def _setting_text(knob: str, value: Any) -> str:
    if knob == "size":
        return f"{value}x{value}"
    if knob == "num_agents":
        return f"{value} agent{'s' if value > 1 else ''}"
    return str(value).replace("_", " ")


def _panel_layout(rows: Rows, panels: int) -> np.ndarray:
    """Return the panel at each grid position, -1 for none; each policy starts a new row."""
    by_policy = np.arange(panels).reshape(len(np.unique(rows["policy"])), -1)
    if by_policy.shape[1] == 1:
        by_policy = by_policy.T
    num_rows = math.ceil(by_policy.shape[1] / _MAX_COLUMNS)
    num_columns = math.ceil(by_policy.shape[1] / num_rows)
    padding = ((0, 0), (0, num_rows * num_columns - by_policy.shape[1]))
    return np.pad(by_policy, padding, constant_values=-1).reshape(-1, num_columns)


def _inches(shape: tuple[int, ...], x: _Axis, y: _Axis) -> tuple[float, float]:
    num_rows, num_columns = shape
    min_side = 3.2 if num_rows * num_columns == 1 else 2.0
    width, height = (min(4.5, max(min_side, 0.36 * len(axis.values))) for axis in (x, y))
    height = height if len(y.values) > 1 else 1.0
    return width * num_columns + 1.6, (height + 0.3) * num_rows + 0.9


def _draw(axes: "Axes", rates: np.ndarray, limits: tuple[float, float]) -> "AxesImage":
    """Draw one panel, with colours for rates within the limits."""
    low, high = limits
    axes.set_facecolor("0.85")  # visible in empty cells
    image = axes.imshow(rates, origin="lower", aspect="auto", cmap="viridis", vmin=low, vmax=high)
    if rates.size <= _MAX_PRINTED_CELLS:
        digits = 0 if high >= 20 else 1
        for (line, column), rate in np.ndenumerate(rates):
            if not np.isnan(rate):
                colour = "black" if rate > low + 0.6 * (high - low) else "white"
                text = f"{rate:.{digits}f}"
                axes.text(column, line, text, color=colour, ha="center", va="center", fontsize=7)
    return image


def _fixed_knobs(rows: Rows, x: _Axis, y: _Axis) -> list[str]:
    """Return descriptions of the knobs that are equal in all panels or pooled."""
    texts = []
    for name in ("policy", "size", "num_agents", "hole_ratio", "wait_ratio"):
        if name in (x.knob, y.knob):
            continue
        if name not in _PANELS:
            share = "all shares" if _varies(rows, name) else f"{100 * rows[name][0]:.3g}%"
            texts.append(f"{_LABELS[name]}: {share}")
        elif not _varies(rows, name):
            texts.append(_setting_text(name, rows[name][0]))
    return texts
