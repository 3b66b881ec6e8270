"""The figures of a study, drawn from `results.json` alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from training.analysis import METRIC_NAMES, charts
from training.analysis.chart_drawing import Series, Tile, TileTable
from training.analysis.study.results import Results

KNOB_NAMES = {"data_ratio": "data", "hole_ratio": "holes", "wait_ratio": "waits"}
MOST_LEARNABLE = 0.25
_SLICES = (
    "Final rate (%s) of each slice of the boards in per cent, mean over seeds. A column is a "
    "slice: its holes, whether a wait is needed, and in brackets how many boards it has."
)
_LEARNABILITY = (
    "p(1-p), where p is the final valid rate of a slice in one seed; mean over seeds. The largest "
    "possible value is 0.25: half of the answers are valid."
)


@dataclass(frozen=True)
class FigureFile:
    """An SVG file, the heading above it and the caption below it."""

    file: str
    heading: str
    caption: str
    svg: str


def study_figures(results: Results) -> list[FigureFile]:
    """Every figure that the numbers are there for, in the order of the report."""
    return [
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


def _differences(results: Results) -> list[FigureFile]:
    numbers, baseline = _numbers(results), results["study"]["baseline"]
    engineers = results["engineers"]
    compared = {name: one["difference"] for name, one in engineers.items() if one["difference"]}
    if not compared:
        return []
    panels = {
        title: {name: (_points(one[metric]), numbers[name]) for name, one in compared.items()}
        for metric, title in METRIC_NAMES.items()
    }
    title, x_label = f"Differences to {baseline}", f"points above {baseline}"
    svg = charts.difference_panels(title, panels, x_label=x_label)
    confidence = f"{100 * results['study']['confidence']:g}%"
    caption = (
        f"Final rate minus that of {baseline}, paired by seed and board, with {confidence} "
        "bootstrap intervals, each for its own comparison."
    )
    return [FigureFile("differences.svg", f"Difference to {baseline}", caption, svg)]


def _learning_curves(results: Results) -> FigureFile:

    def series(metric: str) -> list[Series]:
        return _series(results, lambda one: one["learning_curve"][metric])

    panels = {title: series(metric) for metric, title in METRIC_NAMES.items()}
    return FigureFile(
        "learning_curves.svg",
        "Learning curves",
        "Rates on the validation set after each stage: mean over seeds, whiskers from the lowest "
        "seed to the highest.",
        charts.rate_panels("Learning curves", [panels], ["start", *_stage_names(results)]),
    )


def _mixtures(results: Results) -> FigureFile:
    sizes = next(iter(results["engineers"].values()))["mixture"][0]

    def series(size: str, knob: str) -> list[Series]:
        return _series(results, lambda one: [stage[size][knob] for stage in one["mixture"]])

    panels = [
        {f"{size}x{size}: {KNOB_NAMES.get(knob, knob)}": series(size, knob) for size in sizes}
        for knob in next(iter(sizes.values()))
    ]
    return FigureFile(
        "mixtures.svg",
        "Mixtures",
        "What each stage was trained on: the share of the data, the hole ratio and the wait ratio "
        "of each map size; mean over seeds, whiskers from the lowest seed to the highest.",
        charts.rate_panels("Mixtures", panels, _stage_names(results), zero=True),
    )


def _by_slice(results: Results, field: str, file: str, heading: str, caption: str) -> FigureFile:
    """One table per map size: a row for the start and one for each engineer, a column per slice."""
    slices = results["warm_start"]["slices"]
    rows = {"start": slices}
    rows |= {name: one["slices"] for name, one in results["engineers"].items()}
    tables = []
    for size in dict.fromkeys(one["size"] for one in slices):
        chosen = [number for number, one in enumerate(slices) if one["size"] == size]
        columns = [_slice_name(slices[number]) for number in chosen]
        tiles = [
            [_tile(field, of_row[number][field]["mean"]) for number in chosen]
            for of_row in rows.values()
        ]
        tables.append(TileTable(f"{size}x{size}", list(rows), columns, tiles))
    across = 3 if max(len(table.columns) for table in tables) < 5 else 2
    return FigureFile(file, heading, caption, charts.table_panels(heading, tables, across=across))


def holes_name(tenth: int) -> str:
    """A hole tenth for people: `10-19%`."""
    return f"{10 * tenth}-{10 * tenth + 9}%"


def _slice_name(one: Results) -> str:
    wait = "wait" if one["needs_wait"] else "no wait"
    return f"{holes_name(one['hole_tenth'])}, {wait} ({one['count']})"


def _failure_flows(results: Results) -> FigureFile:
    names = [kind.replace("_", " ") for kind in results["study"]["kinds"]]
    flows = {
        name: [[count / sum(map(sum, one["flow"])) for count in row] for row in one["flow"]]
        for name, one in results["engineers"].items()
    }
    largest = max(share for flow in flows.values() for row in flow for share in row)

    def tile(share: float) -> Tile:
        return Tile(f"{100 * share:.1f}", share / largest) if share else Tile()

    tables = [
        TileTable(name, names, names, [[tile(share) for share in row] for row in flow])
        for name, flow in flows.items()
    ]
    return FigureFile(
        "failure_flows.svg",
        "Failure flows",
        "What became of the answer to each board at the start (row) and after the last stage "
        "(column), in per cent of all boards and seeds; empty: none.",
        charts.table_panels("Failure flows", tables, across=2),
    )


def _tile(field: str, value: float) -> Tile:
    if field == "learnability":
        return Tile(f"{value:.2f}".removeprefix("0"), value / MOST_LEARNABLE)
    return Tile(f"{100 * value:.0f}", value)


def _series(results: Results, spreads: Callable[[Results], Sequence[Results]]) -> list[Series]:
    """The spreads of each engineer that has results."""
    numbers = _numbers(results)
    return [
        Series(name, [(s["mean"], s["low"], s["high"]) for s in spreads(one)], numbers[name])
        for name, one in results["engineers"].items()
    ]


def _numbers(results: Results) -> dict[str, int]:
    """Engineers and their colours, which do not depend on who has results."""
    return {name: number for number, name in enumerate(results["study"]["engineers"])}


def _stage_names(results: Results) -> list[str]:
    return [f"stage {number}" for number in range(1, results["budget"]["stages"] + 1)]


def _points(interval: Mapping[str, float]) -> charts.Range:
    return (100 * interval["value"], 100 * interval["low"], 100 * interval["high"])
