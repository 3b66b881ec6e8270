"""The figures of a study, drawn from `results.json` alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from training.study import drawing
from training.study.drawing import Box, Range, Series
from training.study.measures import holes_name
from training.study.results import Results

METRIC_NAMES = {
    "valid": "valid",
    "optimal_sum_of_costs": "optimal, sum of costs",
    "optimal_makespan": "optimal, makespan",
}
KNOB_NAMES = {"data_ratio": "data", "hole_ratio": "holes", "wait_ratio": "waits"}
WARM_START = "warm start"

_PANEL, _HEIGHT, _MARGIN, _WIDEST = 320.0, 220.0, 16.0, 1050.0
_MOST_LEARNABLE = 0.25


@dataclass(frozen=True)
class Figure:
    """An SVG file with what stands above and below it."""

    file: str
    heading: str
    caption: str
    svg: str


def figures(results: Results) -> list[Figure]:
    """Every figure that the numbers are there for, in the order of the report."""
    return [
        *_differences(results),
        _learning_curves(results),
        _mixtures(results),
        *(_rates_by_cell(results, metric) for metric in METRIC_NAMES),
        _failure_flows(results),
        _by_cell(
            results,
            "learnability.svg",
            "Learnability atlas",
            "p(1-p), p the final valid rate of a cell in one seed; mean over seeds. 0.25 is the "
            "most there is: half of the answers are valid.",
            value=lambda cell: cell["learnability"]["mean"],
            write=lambda value: f"{value:.2f}".removeprefix("0"),
            limit=_MOST_LEARNABLE,
        ),
    ]


def _rates_by_cell(results: Results, metric: str) -> Figure:
    name = METRIC_NAMES[metric]
    return _by_cell(
        results,
        f"cells_{metric}.svg",
        f"By cell: {name}",
        f"Final rate ({name}) of each cell, per cent, mean over seeds. A column is a cell: its "
        "holes, whether a wait is needed, in brackets its boards.",
        value=lambda cell: float(cell[metric]["mean"]),
        write=lambda rate: f"{100 * rate:.0f}",
        limit=1.0,
    )


def _ranks(results: Results) -> dict[str, int]:
    """Engineers with results, and their colours, which do not depend on who is missing."""
    order = {name: rank for rank, name in enumerate(results["study"]["engineers"])}
    return {name: order[name] for name in results["engineers"]}


def _differences(results: Results) -> list[Figure]:
    ranks = _ranks(results)
    compared = {
        name: one["difference"]
        for name, one in results["engineers"].items()
        if one["difference"] is not None
    }
    if not compared:
        return []
    baseline = results["study"]["baseline"]
    height = 60 + 26.0 * len(compared)
    parts = []
    for number, (metric, title) in enumerate(METRIC_NAMES.items()):
        rows = [
            (ranks[name], name, _points(difference[metric]))
            for name, difference in compared.items()
        ]
        box = Box(_MARGIN + number * (_PANEL + _MARGIN), _MARGIN, _PANEL, height)
        parts += drawing.interval_panel(box, title, rows, f"points above {baseline}")
    width = _MARGIN + len(METRIC_NAMES) * (_PANEL + _MARGIN)
    confidence = f"{100 * results['study']['confidence']:g}%"
    return [
        Figure(
            "differences.svg",
            f"Difference to {baseline}",
            f"Final rate less that of {baseline}, paired by seed and board, with {confidence} "
            "bootstrap intervals, each for itself.",
            drawing.page(f"Differences to {baseline}", width, height + 1.5 * _MARGIN, parts),
        )
    ]


def _points(interval: Mapping[str, float]) -> Range:
    return (100 * interval["value"], 100 * interval["low"], 100 * interval["high"])


def _learning_curves(results: Results) -> Figure:
    ranks = _ranks(results)
    rounds = results["budget"]["rounds"]
    categories = ["start", *(f"round {number}" for number in range(1, rounds + 1))]
    width = _MARGIN + len(METRIC_NAMES) * (_PANEL + _MARGIN)
    parts, used = _legend(results, width)
    for number, (metric, title) in enumerate(METRIC_NAMES.items()):
        series = [
            Series(rank, [_range(one) for one in _of(results, name)["learning_curve"][metric]])
            for name, rank in ranks.items()
        ]
        box = Box(_MARGIN + number * (_PANEL + _MARGIN), used, _PANEL, _HEIGHT)
        parts += drawing.line_panel(box, title, series, categories)
    return Figure(
        "learning_curves.svg",
        "Learning curves",
        "Rates on the validation set after each round: mean over seeds, whiskers from the lowest "
        "seed to the highest.",
        drawing.page("Learning curves", width, used + _HEIGHT + _MARGIN, parts),
    )


def _mixtures(results: Results) -> Figure:
    ranks = _ranks(results)
    mixtures = {name: _of(results, name)["mixture"] for name in ranks}
    first = next(iter(mixtures.values()))[0]
    sizes, knobs = list(first), list(next(iter(first.values())))
    categories = [f"round {number}" for number in range(1, results["budget"]["rounds"] + 1)]
    panel, height = 240.0, 150.0
    width = _MARGIN + len(sizes) * (panel + _MARGIN)
    parts, used = _legend(results, width)
    for row, knob in enumerate(knobs):
        highest = max(
            stage[size][knob]["high"]
            for one in mixtures.values()
            for stage in one
            for size in sizes
        )
        for column, size in enumerate(sizes):
            series = [
                Series(rank, [_range(stage[size][knob]) for stage in mixtures[name]])
                for name, rank in ranks.items()
            ]
            box = Box(
                _MARGIN + column * (panel + _MARGIN), used + row * (height + 8), panel, height
            )
            title = f"{size}x{size}: {KNOB_NAMES.get(knob, knob)}"
            parts += drawing.line_panel(
                box, title, series, categories, ends=False, span=(0.0, highest)
            )
    return Figure(
        "mixtures.svg",
        "Mixtures",
        "What each round was trained on: the share of the data, the hole ratio and the wait ratio "
        "of each map size; mean over seeds, whiskers from the lowest seed to the highest.",
        drawing.page("Mixtures", width, used + len(knobs) * (height + 8) + 4, parts),
    )


def _by_cell(
    results: Results,
    file: str,
    heading: str,
    caption: str,
    *,
    value: Callable[[Results], float],
    write: Callable[[float], str],
    limit: float,
) -> Figure:
    """One heat map a map size: a row for the warm start and each engineer, a column a cell."""
    tables = {WARM_START: results["warm_start"]["cells"]} | {
        name: one["cells"] for name, one in results["engineers"].items()
    }
    rows = list(tables)
    cells = results["warm_start"]["cells"]
    parts: list[str] = []
    width, height, x, y = 0.0, 0.0, _MARGIN, _MARGIN
    for size in dict.fromkeys(cell["size"] for cell in cells):
        chosen = [number for number, cell in enumerate(cells) if cell["size"] == size]
        columns = [_cell_name(cells[number]) for number in chosen]
        values = [
            [(value(tables[row][number]), write(value(tables[row][number]))) for number in chosen]
            for row in rows
        ]
        title = f"{size}x{size}"
        across, down = drawing.heat_map_size(rows, columns)
        if x > _MARGIN and x + across > _WIDEST:
            x, y = _MARGIN, height
        parts += drawing.heat_map(x, y, title, rows, columns, values, limit)
        x += across + _MARGIN
        width, height = max(width, x), max(height, y + down + _MARGIN)
    return Figure(file, heading, caption, drawing.page(heading, width, height, parts))


def _cell_name(cell: Results) -> str:
    wait = "wait" if cell["needs_wait"] else "no wait"
    return f"{holes_name(cell['hole_tenth'])}, {wait} ({cell['count']})"


def _failure_flows(results: Results) -> Figure:
    names = [kind.replace("_", " ") for kind in results["study"]["kinds"]]
    across, down = drawing.heat_map_size(names, names)
    columns = min(int(_WIDEST // (across + _MARGIN)), len(results["engineers"]))
    flows = {name: _shares(one["flow"]) for name, one in results["engineers"].items()}
    largest = max(share for flow in flows.values() for row in flow for share in row)
    parts: list[str] = []
    for number, (name, flow) in enumerate(flows.items()):
        values = [
            [(share, f"{100 * share:.1f}") if share else None for share in row] for row in flow
        ]
        parts += drawing.heat_map(
            _MARGIN + number % columns * (across + _MARGIN),
            _MARGIN + number // columns * (down + _MARGIN),
            name,
            names,
            names,
            values,
            largest,
        )
    lines = -(-len(results["engineers"]) // columns)
    return Figure(
        "failure_flows.svg",
        "Failure flows",
        "Each board from what became of its answer at the start (row) to what became of it after "
        "the last round (column), per cent of all boards and seeds; empty: none.",
        drawing.page(
            "Failure flows",
            _MARGIN + columns * (across + _MARGIN),
            _MARGIN + lines * (down + _MARGIN),
            parts,
        ),
    )


def _shares(flow: Sequence[Sequence[int]]) -> list[list[float]]:
    answers = sum(map(sum, flow))
    return [[count / answers for count in row] for row in flow]


def _legend(results: Results, width: float) -> tuple[list[str], float]:
    """The engineers in their colours, and where the drawing may begin."""
    names: Sequence[str] = list(results["study"]["engineers"])
    parts, height = drawing.legend(names, _MARGIN, _MARGIN + 4, width - 2 * _MARGIN)
    return parts, _MARGIN + height + 4


def _of(results: Results, name: str) -> Any:
    return results["engineers"][name]


def _range(spread: Mapping[str, float]) -> Range:
    return (spread["mean"], spread["low"], spread["high"])
