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
_PANELS = ("policy", "size", "num_agents")  # columns with one panel per value, unless an axis
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
_MAX_PRINTED_RATES = 120  # per panel; larger panels have no printed values


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
    _require_name("value", value, [name for name in rows if name not in (*_KEYS, *_NOT_RATES)])
    x_axis, y_axis = (_Axis.from_column(knob, rows[knob]) for knob in _choose_axes(rows, x, y))
    panel_names, rates = _compute_panels(rows, x_axis, y_axis, value)
    layout = _panel_layout(rows, len(panel_names))

    # A closed figure is displayed only once in notebooks.
    figure = pyplot.figure(figsize=_figure_size(layout.shape, x_axis, y_axis), layout="constrained")
    pyplot.close(figure)
    grid = figure.subplots(*layout.shape, sharex=True, sharey=True, squeeze=False)
    limits = (0.0, 100.0)
    if value in _MEANS and not np.isnan(rates).all():
        limits = (float(np.nanmin(rates)), float(np.nanmax(rates)))
    panels_below = np.pad(layout[1:], ((0, 1), (0, 0)), constant_values=-1)
    for axes, panel, panel_below in zip(grid.flat, layout.flat, panels_below.flat, strict=True):
        if panel < 0:
            axes.set_visible(False)
            continue
        axes.set_title(panel_names[panel], fontsize="small")
        image = _draw_panel(axes, rates[panel], limits)
        x_axis.label_ticks(axes.xaxis)
        axes.xaxis.set_tick_params(labelbottom=bool(panel_below < 0))
        y_axis.label_ticks(axes.yaxis)
    label = _MEANS.get(value) or f"{_LABELS.get(value, value.replace('_', ' '))}, %"
    figure.colorbar(image, ax=grid, label=label, aspect=30, pad=0.02)
    figure.supxlabel(x_axis.label, fontsize="medium")
    figure.supylabel(y_axis.label, fontsize="medium")
    title_parts = _describe_fixed_knobs(rows, x_axis, y_axis)
    if np.isnan(rates).any():
        denominator = _DENOMINATORS.get(value, ("boards",))[0]
        title_parts.append(f"grey: no {_LABELS.get(denominator, denominator)}")
    figure.suptitle(", ".join(title_parts), fontsize="medium")
    return figure


@dataclass(frozen=True)
class _Axis:
    """Axis of a heat map: the bins into which one knob divides the rows."""

    knob: str
    values: np.ndarray  # value or centre of each bin
    row_bins: np.ndarray  # bin index of each row

    @classmethod
    def from_column(cls, knob: str, column: np.ndarray) -> "_Axis":
        values, row_bins = np.unique(column, return_inverse=True)
        if len(values) <= _MAX_VALUES:
            return cls(knob, values, row_bins)
        edges = np.linspace(values[0], values[-1], _BINS + 1)
        row_bins = np.searchsorted(edges[1:-1], column, side="right")
        return cls(knob, (edges[1:] + edges[:-1]) / 2, row_bins)

    @property
    def is_ratio(self) -> bool:
        return self.knob.endswith("_ratio")

    @property
    def label(self) -> str:
        return _LABELS[self.knob] + (", %" if self.is_ratio else "")

    def label_ticks(self, axis: Any) -> None:
        bins = range(0, len(self.values), math.ceil(len(self.values) / _MAX_TICKS))
        factor = 100 if self.is_ratio else 1
        axis.set_ticks(bins, [f"{factor * self.values[i]:.3g}" for i in bins])
        axis.set_tick_params(labelsize="small", length=2)


def _choose_axes(rows: Rows, x: str | None, y: str | None) -> tuple[str, str]:
    """Return the knobs of both axes; replace None with a knob, preferably one that varies."""
    for option, name in (("x", x), ("y", y)):
        if name is not None:
            _require_name(option, name, AXES)
    if x is not None and x == y:
        raise SweepError(f"x and y must be different knobs, got {x} for both")
    unused_knobs = [name for name in AXES if name not in (x, y)]
    unused_knobs.sort(key=lambda name: not _is_varying(rows, name))
    x = x or unused_knobs.pop(0)
    return x, y or unused_knobs.pop(0)


def _require_name(option: str, name: str, allowed_names: Any) -> None:
    if name not in allowed_names:
        names = ", ".join(allowed_names)
        raise SweepError(
            f"{option} must be one of {names}, got {name}{did_you_mean(name, allowed_names)}"
        )


def _is_varying(rows: Rows, name: str) -> bool:
    return bool((rows[name] != rows[name][0]).any())


def _compute_panels(rows: Rows, x: _Axis, y: _Axis, value: str) -> tuple[list[str], np.ndarray]:
    """Return panel names, and rates (panels, y, x) in percent or as means; NaN without boards."""
    knobs = [name for name in _PANELS if name not in (x.knob, y.knob)]
    uniques = [np.unique(rows[name], return_inverse=True) for name in knobs]
    values, indices = zip(*uniques, strict=True)
    value_counts = list(map(len, values))
    num_panels = math.prod(value_counts)
    if num_panels > _MAX_PANELS:
        raise SweepError(
            f"x and y must leave at most {_MAX_PANELS} panels, got {num_panels} panels for "
            f"{', '.join(knobs)}"
        )
    varying_knobs = [knob for knob, count in zip(knobs, value_counts, strict=True) if count > 1]
    settings = [dict(zip(knobs, setting, strict=True)) for setting in itertools.product(*values)]
    panel_names = [
        ", ".join(_format_setting(knob, setting[knob]) for knob in varying_knobs)
        for setting in settings
    ]
    shape = (*value_counts, len(y.values), len(x.values))
    flat_bins = np.ravel_multi_index((*indices, y.row_bins, x.row_bins), shape)

    def sum_counters(counters: tuple[str, ...]) -> np.ndarray:
        # float64 represents sums below 2**53 exactly.
        sums = np.bincount(flat_bins, sum(rows[name] for name in counters), math.prod(shape))
        return sums.reshape(num_panels, *shape[-2:])

    numerator = sum_counters((value,))
    denominator = sum_counters(_DENOMINATORS.get(value, ("boards",)))
    nan_rates = np.full_like(numerator, np.nan)
    rates = np.divide(numerator, denominator, out=nan_rates, where=denominator > 0)
    return panel_names, rates if value in _MEANS else 100 * rates


def _format_setting(knob: str, value: Any) -> str:
    if knob == "size":
        return f"{value}x{value}"
    if knob == "num_agents":
        return f"{value} agent{'s' if value > 1 else ''}"
    return str(value).replace("_", " ")


def _panel_layout(rows: Rows, num_panels: int) -> np.ndarray:
    """Return the panel at each grid position, -1 for none; each policy starts a new row."""
    panel_grid = np.arange(num_panels).reshape(len(np.unique(rows["policy"])), -1)
    if panel_grid.shape[1] == 1:
        panel_grid = panel_grid.T
    num_rows = math.ceil(panel_grid.shape[1] / _MAX_COLUMNS)
    num_columns = math.ceil(panel_grid.shape[1] / num_rows)
    padding = ((0, 0), (0, num_rows * num_columns - panel_grid.shape[1]))
    return np.pad(panel_grid, padding, constant_values=-1).reshape(-1, num_columns)


def _figure_size(shape: tuple[int, ...], x: _Axis, y: _Axis) -> tuple[float, float]:
    num_rows, num_columns = shape
    min_side = 3.2 if num_rows * num_columns == 1 else 2.0
    width, height = (min(4.5, max(min_side, 0.36 * len(axis.values))) for axis in (x, y))
    height = height if len(y.values) > 1 else 1.0
    return width * num_columns + 1.6, (height + 0.3) * num_rows + 0.9


def _draw_panel(axes: "Axes", rates: np.ndarray, limits: tuple[float, float]) -> "AxesImage":
    """Draw one panel; the colour scale covers the limits."""
    low, high = limits
    axes.set_facecolor("0.85")  # visible in empty cells
    image = axes.imshow(rates, origin="lower", aspect="auto", cmap="viridis", vmin=low, vmax=high)
    if rates.size <= _MAX_PRINTED_RATES:
        digits = 0 if high >= 20 else 1
        for (y, x), rate in np.ndenumerate(rates):
            if not np.isnan(rate):
                colour = "black" if rate > low + 0.6 * (high - low) else "white"
                text = f"{rate:.{digits}f}"
                axes.text(x, y, text, color=colour, ha="center", va="center", fontsize=7)
    return image


def _describe_fixed_knobs(rows: Rows, x: _Axis, y: _Axis) -> list[str]:
    """Return one text per knob that is pooled or has the same value in all panels."""
    texts = []
    for name in ("policy", "size", "num_agents", "hole_ratio", "wait_ratio"):
        if name in (x.knob, y.knob):
            continue
        if name not in _PANELS:
            share = "all shares" if _is_varying(rows, name) else f"{100 * rows[name][0]:.3g}%"
            texts.append(f"{_LABELS[name]}: {share}")
        elif not _is_varying(rows, name):
            texts.append(_format_setting(name, rows[name][0]))
    return texts
