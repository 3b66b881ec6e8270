"""The tables of the report: validation results, and the configurations side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

from training.report.figures import rate, size_name, sizes_of, stage_name, tally_of, warm_started
from training.report.reading import Configuration, RunFiles, Stage

KNOBS = ("data_ratio", "hole_ratio", "wait_ratio")
METRICS = (
    ("valid", "valid"),
    ("optimal_sum_of_costs", "optimal, sum of costs"),
    ("optimal_makespan", "optimal, makespan"),
)


@dataclass(frozen=True)
class RateCell:
    """A share as the table prints it, in per cent."""

    percent: str
    low: str
    high: str
    successes: int
    count: int


@dataclass(frozen=True)
class RateGroup:
    """The rows of one map size: a metric's name, then a cell (or None) for each stage."""

    name: str
    rows: tuple[tuple[str, tuple[RateCell | None, ...]], ...]


@dataclass(frozen=True)
class KnobCell:
    """One knob in one configuration; `old` is its value before, where it changed."""

    value: str
    old: str | None


@dataclass(frozen=True)
class KnobGroup:
    """The rows of one map size: a knob's name, then a cell (or None) for each configuration."""

    name: str
    rows: tuple[tuple[str, tuple[KnobCell | None, ...]], ...]


@dataclass(frozen=True)
class ConfigurationColumn:
    """One configuration: the round it is for, how it came about, and what became of it."""

    heading: str
    kind: str
    note: str


def validation_table(run: RunFiles) -> tuple[list[str], list[RateGroup]]:
    """Headings of the validated stages, and a group of rows a map size, the total last."""
    stages = [stage for stage in run.stages if stage.validation is not None]
    headings = [stage_name(stage.number, warm_started(run)) for stage in stages]
    groups = [
        RateGroup(
            size_name(size),
            tuple(
                (words, tuple(_rate_cell(stage, size, metric) for stage in stages))
                for metric, words in METRICS
            ),
        )
        for size in [*sizes_of(stages), None]
    ]
    return headings, groups if stages else []


def configuration_table(
    run: RunFiles,
) -> tuple[list[ConfigurationColumn], list[KnobGroup]]:
    """The initial configuration and each decision's, and a group of rows a map size."""
    columns: list[ConfigurationColumn] = []
    configurations: list[Configuration] = []
    for stage in run.stages:
        if not columns and stage.configuration is not None:
            columns.append(ConfigurationColumn(f"Round {stage.number}", "initial", "given"))
            configurations.append(stage.configuration)
        if stage.decision is not None:
            note = f"after round {stage.number}"
            if not _trained(run, stage.number + 1):
                note += ", not trained on" + ("" if run.finished else " yet")
            columns.append(
                ConfigurationColumn(f"Round {stage.number + 1}", stage.decision.kind, note)
            )
            configurations.append(stage.decision.configuration)
    sizes = sorted({size for configuration in configurations for size in configuration})
    groups = [
        KnobGroup(
            size_name(size),
            tuple((knob, _knob_cells(configurations, size, knob)) for knob in KNOBS),
        )
        for size in sizes
    ]
    return columns, groups


def _rate_cell(stage: Stage, size: int | None, metric: str) -> RateCell | None:
    tally = tally_of(stage, size)
    if tally is None:
        return None
    successes = getattr(tally, metric)
    interval = rate(successes, tally.count)
    if interval is None:
        return None
    percent, low, high = (f"{100 * share:.1f}" for share in interval)
    return RateCell(percent, low, high, successes, tally.count)


def _knob_cells(
    configurations: Sequence[Configuration], size: int, knob: str
) -> tuple[KnobCell | None, ...]:
    cells: list[KnobCell | None] = []
    before: float | None = None
    for rank, configuration in enumerate(configurations):
        value = configuration.get(size, {}).get(knob)
        if value is None:
            cells.append(None)
        else:
            changed = rank > 0 and value != before
            old = "–" if before is None else _ratio(before)  # noqa: RUF001
            cells.append(KnobCell(_ratio(value), old if changed else None))
        before = value
    return tuple(cells)


def _ratio(value: float) -> str:
    """Two decimals at least: enough for the engineer's grid, and exact beyond it."""
    short = f"{value:.2f}"
    return short if float(short) == value else f"{value:.4g}"


def _trained(run: RunFiles, number: int) -> bool:
    return any(stage.number == number and stage.configuration is not None for stage in run.stages)
