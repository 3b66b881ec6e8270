"""The figures of a study, drawn from `results.json` alone."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from training.analysis import METRIC_NAMES
from training.analysis.pages.charts import (
    COLOURS,
    Series,
    bar_chart,
    interval_chart,
    rate_chart,
)
from training.analysis.pages.document import PageFigure, page_figures
from training.analysis.study.results import Results

KNOB_NAMES = {"data_ratio": "data", "hole_ratio": "holes", "wait_ratio": "waits"}


def engineer_colours(results: Results) -> dict[str, int]:
    """Return the index of each engineer's colour, including engineers without results."""
    return {name: index for index, name in enumerate(results["study"]["engineers"])}


def failure_colours(results: Results) -> dict[str, int]:
    """Return the index of the colour of each kind of failure that occurs."""
    rows = [shares for result in results["engineers"].values() for shares in result["kinds"]]
    kinds = [kind for kind in rows[0] if kind != "valid" and any(shares[kind] for shares in rows)]
    return {kind: index % len(COLOURS) for index, kind in enumerate(kinds)}


def difference_figures(results: Results) -> list[PageFigure]:
    """Draw the final rates minus the baseline's, with bootstrap intervals."""
    colours, baseline = engineer_colours(results), results["study"]["compared_with"]
    differences = {
        name: arm["difference"] for name, arm in results["engineers"].items() if arm["difference"]
    }
    figures = []
    for metric, title in METRIC_NAMES.items():
        rows = {}
        for name, difference in differences.items():
            value, low, high = (100 * difference[metric][key] for key in ("value", "low", "high"))
            rows[name] = (value, low, high), colours[name]
        label = f"points above {baseline}"
        chart = interval_chart(f"Difference from {baseline}, {title}", rows, x_label=label)
        figures += page_figures(title, chart)
    return figures


def learning_figures(results: Results) -> list[PageFigure]:
    """Draw the rates after each stage, with whiskers from the lowest to the highest seed."""
    stages = ["start", *_stages(results)]

    def make_metric_series(metric: str) -> list[Series]:
        return _make_series(results, lambda arm: arm["learning_curve"][metric])

    panels = {title: make_metric_series(metric) for metric, title in METRIC_NAMES.items()}
    return _rate_figures("Learning curve", panels, stages, "validation boards, %")


def mixture_figures(results: Results) -> list[PageFigure]:
    """Draw the knobs of each stage, by knob and map size."""
    sizes = next(iter(results["engineers"].values()))["mixture"][0]

    def make_knob_series(size: str, knob: str) -> list[Series]:
        return _make_series(results, lambda arm: [stage[size][knob] for stage in arm["mixture"]])

    panels = {
        f"{size}x{size}: {KNOB_NAMES.get(knob, knob)}": make_knob_series(size, knob)
        for knob in next(iter(sizes.values()))
        for size in sizes
    }
    return _rate_figures("Mixture", panels, _stages(results), "ratio, %", axis_start=0.0)


def failure_figures(results: Results) -> list[PageFigure]:
    """Draw the first failures at the start and after the last stage, one bar per engineer."""
    figures = []
    for index, heading in enumerate(("At the start", "After the last stage")):
        rows = {name: arm["kinds"][index] for name, arm in results["engineers"].items()}
        bars = [
            (name, shares, f"{100 * (1 - shares['valid']):.1f}%") for name, shares in rows.items()
        ]
        style: Any = {"x_label": "validation boards, %", "percent": True}
        chart = bar_chart(f"Failures, {heading}", bars, failure_colours(results), **style)
        figures += page_figures(heading, chart)
    return figures


def _rate_figures(
    kind: str,
    panels: dict[str, list[Series]],
    stages: Sequence[str],
    heading: str,
    axis_start: float = 1.0,  # upper bound of the start of the y axis
) -> list[PageFigure]:
    """Draw one chart per panel with a common axis."""
    curves = [curve for series in panels.values() for curve in series]
    values = [value for curve in curves for value in chain(*filter(None, curve.values))]
    style: Any = {"x_label": "stage", "heading": heading, "show_legend": False}
    style["span"] = (min(axis_start, *values), max(values))
    figures = []
    for title, series in panels.items():
        figures += page_figures(title, rate_chart(f"{kind}, {title}", series, stages, **style))
    return figures


def _make_series(
    results: Results, get_spreads: Callable[[Results], Sequence[Results]]
) -> list[Series]:
    """Return one series per engineer that has results."""
    colours = engineer_colours(results)
    series = []
    for name, arm in results["engineers"].items():
        values = [(spread["mean"], spread["low"], spread["high"]) for spread in get_spreads(arm)]
        series.append(Series(name, values, colours[name]))
    return series


def _stages(results: Results) -> list[str]:
    return [str(number) for number in range(1, results["budget"]["stages"] + 1)]
