"""The figures of a study, drawn from `results.json` alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from training.analysis import METRIC_NAMES
from training.analysis.pages import charts
from training.analysis.pages.chart_drawing import RANGES, Series
from training.analysis.pages.document import PageFigure
from training.analysis.pages.tiles import SMALL_PAGE_TILES, Tile, TileTable
from training.analysis.study.results import Results

KNOB_NAMES = {"data_ratio": "data", "hole_ratio": "holes", "wait_ratio": "waits"}
MOST_LEARNABLE = 0.25
_SLICES = (
    "Final rate (%s) of each slice of the boards in per cent, mean over seeds. A slice has one map "
    "size and one share of holes, and its boards need a wait or don't; above it stands how many "
    "boards it has."
)
_LEARNABILITY = (
    "p(1-p), where p is the final valid rate of a slice in one seed; mean over seeds. The largest "
    "possible value is 0.25: half of the answers are valid."
)


@dataclass(frozen=True)
class StudyFigure:
    """A figure as one SVG file, and as charts of a page."""

    file: str
    heading: str
    caption: str
    svg: str
    charts: tuple[PageFigure, ...]
    keyed: bool = False  # the page needs a key of the engineers above the charts


def study_figures(results: Results) -> dict[str, StudyFigure]:
    """Every figure that the numbers are there for, by the name of its file without the ending."""
    figures = [
        *_differences(results),
        _learning_curves(results),
        _mixtures(results),
        *(
            _by_slice(results, metric, f"slices_{metric}.svg", f"By slice: {name}", _SLICES % name)
            for metric, name in METRIC_NAMES.items()
        ),
        _failure_flows(results),
        _by_slice(results, "learnability", "learnability.svg", "Learnability atlas", _LEARNABILITY),
    ]
    return {figure.file.removesuffix(".svg"): figure for figure in figures}


def engineer_colours(results: Results) -> dict[str, int]:
    """Engineers and the numbers of their colours, which do not depend on who has results."""
    return {name: number for number, name in enumerate(results["study"]["engineers"])}


def _differences(results: Results) -> list[StudyFigure]:
    numbers, baseline = engineer_colours(results), results["study"]["baseline"]
    engineers = results["engineers"]
    compared = {name: one["difference"] for name, one in engineers.items() if one["difference"]}
    if not compared:
        return []
    panels = {
        title: {name: (_points(one[metric]), numbers[name]) for name, one in compared.items()}
        for metric, title in METRIC_NAMES.items()
    }
    heading, x_label = f"Difference to {baseline}", f"points above {baseline}"
    confidence = f"{100 * results['study']['confidence']:g}%"
    caption = (
        f"Final rate minus that of {baseline}, paired by seed and board, with {confidence} "
        "bootstrap intervals, each for its own comparison."
    )
    drawn = [
        _on_page(title, charts.difference_chart(f"{heading}, {title}", rows, x_label=x_label))
        for title, rows in panels.items()
    ]
    svg = charts.difference_panels(f"Differences to {baseline}", panels, x_label=x_label)
    return [StudyFigure("differences.svg", heading, caption, svg, tuple(drawn))]


def _learning_curves(results: Results) -> StudyFigure:
    stages = ["start", *_stage_names(results)]

    def series(metric: str) -> list[Series]:
        return _series(results, lambda one: one["learning_curve"][metric])

    panels = {title: series(metric) for metric, title in METRIC_NAMES.items()}
    caption = (
        "Rates on the validation set after each stage: mean over seeds, whiskers from the lowest "
        "seed to the highest."
    )
    return StudyFigure(
        "learning_curves.svg",
        "Learning curves",
        caption,
        charts.rate_panels("Learning curves", [panels], stages),
        _rate_charts("Learning curve", panels, stages, "validation boards, %"),
        keyed=True,
    )


def _mixtures(results: Results) -> StudyFigure:
    sizes = next(iter(results["engineers"].values()))["mixture"][0]
    stages = _stage_names(results)

    def series(size: str, knob: str) -> list[Series]:
        return _series(results, lambda one: [stage[size][knob] for stage in one["mixture"]])

    panels = [
        {f"{size}x{size}: {KNOB_NAMES.get(knob, knob)}": series(size, knob) for size in sizes}
        for knob in next(iter(sizes.values()))
    ]
    caption = (
        "What each stage was trained on: the share of the data, the hole ratio and the wait ratio "
        "of each map size; mean over seeds, whiskers from the lowest seed to the highest."
    )
    drawn = [
        chart
        for by_title in panels
        for chart in _rate_charts("Mixture", by_title, stages, "ratio, %", least=0.0)
    ]
    svg = charts.rate_panels("Mixtures", panels, stages, zero=True)
    return StudyFigure("mixtures.svg", "Mixtures", caption, svg, tuple(drawn), keyed=True)


def _rate_charts(
    kind: str,
    panels: Mapping[str, Sequence[Series]],
    stages: Sequence[str],
    y_label: str,
    least: float = 1.0,  # the axis begins there, or lower
) -> tuple[PageFigure, ...]:
    """Draw one chart of a page per panel, all on one axis."""
    every = [value for series in panels.values() for one in series for value in one.values if value]
    span = (min(least, *(low for _, low, _ in every)), max(high for _, _, high in every))
    names = [stage.removeprefix("stage ") for stage in stages]
    style: Any = {"x_label": "stage", "y_label": y_label, "span": span, "tooltips": RANGES}
    return tuple(
        _on_page(title, charts.rate_chart(f"{kind}, {title}", series, names, **style))
        for title, series in panels.items()
    )


def _by_slice(results: Results, field: str, file: str, heading: str, caption: str) -> StudyFigure:
    """One table per map size and need of a wait: a row per engineer, a column per share of holes.

    Above these stand how many boards a slice has, and what the policy began with.
    """
    slices = results["warm_start"]["slices"]
    rows = {"start": slices}
    rows |= {name: one["slices"] for name, one in results["engineers"].items()}
    tables = []
    for size, wait in dict.fromkeys((one["size"], one["needs_wait"]) for one in slices):
        chosen = [
            number
            for number, one in enumerate(slices)
            if (one["size"], one["needs_wait"]) == (size, wait)
        ]
        columns = [holes_name(slices[number]["hole_tenth"]) for number in chosen]
        counts = [Tile(f"{slices[number]['count']:,}") for number in chosen]
        tiles = [
            [
                _tile(f"{name}, holes {column}", field, of_row[number])
                for number, column in zip(chosen, columns, strict=True)
            ]
            for name, of_row in rows.items()
        ]
        title = f"{size}x{size}, {'wait' if wait else 'no wait'} needed"
        tables.append(TileTable(title, ["boards", *rows], columns, [counts, *tiles]))
    across = 3 if max(len(table.columns) for table in tables) < 5 else 2
    svg = charts.table_panels(heading, tables, across=across)
    return StudyFigure(file, heading, caption, svg, _tile_charts(heading, tables))


def _tile_charts(heading: str, tables: Sequence[TileTable]) -> tuple[PageFigure, ...]:
    """Draw one chart of a page per table, whose title stands above it."""
    drawn = []
    for table in tables:
        title, untitled = f"{heading}, {table.title}", [replace(table, title="")]
        chart = charts.tile_chart(title, untitled, across=1, style=SMALL_PAGE_TILES)
        drawn.append(_on_page(table.title, chart))
    return tuple(drawn)


def _on_page(heading: str, chart: str | None) -> PageFigure:
    # Charts escape every text they are given, so their markup may pass the template as it is.
    return PageFigure(heading, Markup(chart or ""))


def holes_name(tenth: int) -> str:
    """A hole tenth for people: `10-19%`."""
    return f"{10 * tenth}-{10 * tenth + 9}%"


def _failure_flows(results: Results) -> StudyFigure:
    names = [kind.replace("_", " ") for kind in results["study"]["kinds"]]
    flows = {
        name: [[count / sum(map(sum, one["flow"])) for count in row] for row in one["flow"]]
        for name, one in results["engineers"].items()
    }
    largest = max(share for flow in flows.values() for row in flow for share in row)

    def tile(before: str, after: str, share: float) -> Tile:
        words = f"{100 * share:.1f}"
        about = f"{before} at the start, {after} at the end: {words}%"
        return Tile(words, share / largest, about) if share else Tile()

    tables = [
        TileTable(
            name,
            names,
            names,
            [
                [tile(before, after, share) for after, share in zip(names, row, strict=True)]
                for before, row in zip(names, flow, strict=True)
            ],
        )
        for name, flow in flows.items()
    ]
    return StudyFigure(
        "failure_flows.svg",
        "Failure flows",
        "What became of the answer to each board at the start (row) and after the last stage "
        "(column), in per cent of all boards and seeds; empty: none.",
        charts.table_panels("Failure flows", tables, across=2),
        _tile_charts("Failure flows", tables),
    )


def _tile(place: str, field: str, of_slice: Results) -> Tile:
    """Say a value of a slice, and with it its range over seeds and how many boards there are."""
    value, low, high = (of_slice[field][key] for key in ("mean", "low", "high"))
    boards = f"{of_slice['count']:,} boards"
    if field == "learnability":
        about = f"{place}: {value:.3f} ({low:.3f} to {high:.3f}), {boards}"
        return Tile(f"{value:.2f}".removeprefix("0"), value / MOST_LEARNABLE, about)
    said = RANGES.format(*(f"{100 * share:.1f}" for share in (value, low, high)))
    return Tile(f"{100 * value:.0f}", value, f"{place}: {said}, {boards}")


def _series(results: Results, spreads: Callable[[Results], Sequence[Results]]) -> list[Series]:
    """The spreads of each engineer that has results."""
    numbers = engineer_colours(results)
    return [
        Series(name, [(s["mean"], s["low"], s["high"]) for s in spreads(one)], numbers[name])
        for name, one in results["engineers"].items()
    ]


def _stage_names(results: Results) -> list[str]:
    return [f"stage {number}" for number in range(1, results["budget"]["stages"] + 1)]


def _points(interval: Mapping[str, float]) -> charts.Range:
    return (100 * interval["value"], 100 * interval["low"], 100 * interval["high"])
