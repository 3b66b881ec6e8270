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
    """Return the number of each engineer's colour, including engineers without results."""
    return {name: number for number, name in enumerate(results["study"]["engineers"])}


def kind_colours(results: Results) -> dict[str, int]:
    """Return the number of the colour of each kind of failure that occurs."""
    shares = [kinds for result in results["engineers"].values() for kinds in result["kinds"]]
    kinds = [kind for kind in shares[0] if kind != "valid" and any(share[kind] for share in shares)]
    return {kind: number % len(COLOURS) for number, kind in enumerate(kinds)}


def difference_figures(results: Results) -> list[PageFigure]:
    """Draw the final rates minus the baseline's, with bootstrap intervals."""
    numbers, baseline = engineer_colours(results), results["study"]["compared_with"]
    compared = {
        name: arm["difference"] for name, arm in results["engineers"].items() if arm["difference"]
    }
    figures = []
    for metric, title in METRIC_NAMES.items():
        rows = {}
        for name, difference in compared.items():
            value, low, high = (100 * difference[metric][key] for key in ("value", "low", "high"))
            rows[name] = (value, low, high), numbers[name]
        label = f"points above {baseline}"
        chart = interval_chart(f"Difference to {baseline}, {title}", rows, x_label=label)
        figures += page_figures(title, chart)
    return figures


def learning_figures(results: Results) -> list[PageFigure]:
    """Draw the rates after each stage, with whiskers from the lowest to the highest seed."""
    stages = ["start", *_stages(results)]

    def series(metric: str) -> list[Series]:
        return _series(results, lambda one: one["learning_curve"][metric])

    panels = {title: series(metric) for metric, title in METRIC_NAMES.items()}
    return _rate_figures("Learning curve", panels, stages, "validation boards, %")


def mixture_figures(results: Results) -> list[PageFigure]:
    """Draw the knobs of each stage, by knob and map size."""
    sizes = next(iter(results["engineers"].values()))["mixture"][0]

    def series(size: str, knob: str) -> list[Series]:
        return _series(results, lambda one: [stage[size][knob] for stage in one["mixture"]])

    panels = {
        f"{size}x{size}: {KNOB_NAMES.get(knob, knob)}": series(size, knob)
        for knob in next(iter(sizes.values()))
        for size in sizes
    }
    return _rate_figures("Mixture", panels, _stages(results), "ratio, %", low=0.0)


def kind_figures(results: Results) -> list[PageFigure]:
    """Draw the first failures at the start and after the last stage, one bar per engineer."""
    figures = []
    for number, heading in enumerate(("At the start", "After the last stage")):
        bars = [
            (name, arm["kinds"][number], f"{100 * (1 - arm['kinds'][number]['valid']):.1f}%")
            for name, arm in results["engineers"].items()
        ]
        style: Any = {"x_label": "validation boards, %", "percent": True}
        chart = bar_chart(f"Failures, {heading}", bars, kind_colours(results), **style)
        figures += page_figures(heading, chart)
    return figures


def _rate_figures(
    kind: str,
    panels: dict[str, list[Series]],
    stages: Sequence[str],
    y_label: str,
    low: float = 1.0,  # the axis begins there, or lower
) -> list[PageFigure]:
    """Draw one chart per panel with a common axis."""
    values = [
        end
        for series in panels.values()
        for curve in series
        for end in chain(*filter(None, curve.values))
    ]
    style: Any = {"x_label": "stage", "y_label": y_label, "legend": False}
    style["span"] = (min(low, *values), max(values))
    figures = []
    for title, series in panels.items():
        figures += page_figures(title, rate_chart(f"{kind}, {title}", series, stages, **style))
    return figures


def _series(results: Results, spreads: Callable[[Results], Sequence[Results]]) -> list[Series]:
    """Return the spreads of each engineer that has results."""
    numbers = engineer_colours(results)
    return [
        Series(name, [(s["mean"], s["low"], s["high"]) for s in spreads(arm)], numbers[name])
        for name, arm in results["engineers"].items()
    ]


def _stages(results: Results) -> list[str]:
    return [str(number) for number in range(1, results["budget"]["stages"] + 1)]
