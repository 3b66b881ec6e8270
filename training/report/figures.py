"""The figures of the report: which records make which chart."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from jaxlake import wilson_interval
from training.report.charts import (
    COLOURS,
    Intervals,
    Line,
    interval_chart,
    line_chart,
    stacked_bars,
)
from training.report.reading import Record, RunFiles, Stage, Tally, finite, lookup

RATE_COLOURS = {"valid": 0, "optimal, sum of costs": 1}
FAILURE_COLOURS = {
    "parse_error": 6,
    "off_board": 5,
    "hole": 0,
    "vertex_conflict": 1,
    "swapping_conflict": 3,
    "goal_not_reached": 4,
}
_UNKNOWN_COLOUR = 7


@dataclass(frozen=True)
class Figure:
    """A chart with what stands above and below it."""

    heading: str
    chart: Markup
    note: str = ""


def stage_name(number: int, warm_started: bool = True) -> str:
    """How the report calls a validation."""
    if number == 0:
        return "Warm start" if warm_started else "Before"
    return f"Round {number}"


def moment(number: int, warm_started: bool = True) -> str:
    """When a validation took place, as part of a sentence."""
    name = stage_name(number, warm_started).lower()
    return "before training" if name == "before" else f"after {name}"


def size_name(size: int | None) -> str:
    """How the report calls a map size."""
    return "All sizes" if size is None else f"{size} × {size}"  # noqa: RUF001


def rate(successes: int, count: int) -> tuple[float, float, float] | None:
    """Share and 95% Wilson interval; None where there were no trials."""
    if count == 0:
        return None
    low, high = wilson_interval(successes, count)
    return successes / count, float(low), float(high)


def progress_figures(run: RunFiles) -> list[Figure]:
    """Valid and optimal rate after each validation: for all sizes, then for each."""
    stages = [stage for stage in run.stages if stage.validation is not None]
    names = ["start" if stage.number == 0 else str(stage.number) for stage in stages]
    figures = []
    for size in [None, *sizes_of(stages)]:
        tallies = [tally_of(stage, size) for stage in stages]
        chart = interval_chart(
            f"Valid and optimal rate, {size_name(size)}",
            [
                Intervals("valid", [rate(t.valid, t.count) if t else None for t in tallies], 0),
                Intervals(
                    "optimal",
                    [rate(t.optimal_sum_of_costs, t.count) if t else None for t in tallies],
                    1,
                ),
            ],
            names,
            x_label="round",
            y_label="validation instances, %",
        )
        figures += _figure(size_name(size), chart, _counts_note(tallies))
    return figures


def training_figures(run: RunFiles) -> list[Figure]:
    """The curves of GRPO, over updates of all rounds."""
    updates = _in_order(record for record in run.metrics if record.get("phase") == "train")
    starts = [
        (float(i), f"round {record.get('stage')}")
        for i, record in enumerate(updates, start=1)
        if i == 1 or record.get("stage") != updates[i - 2].get("stage")
    ]

    def curves(
        heading: str,
        lines: Sequence[tuple[str, str, int]],
        y_label: str,
        *,
        note: str = "",
        percent: bool = False,
        log: bool = False,
        zero: bool = True,
        limit: tuple[float, str] | None = None,
    ) -> list[Figure]:
        chart = line_chart(
            heading,
            [
                Line(name, [(i, finite(one.get(key))) for i, one in enumerate(updates, 1)], colour)
                for name, key, colour in lines
            ],
            x_label="GRPO update",
            y_label=y_label,
            percent=percent,
            log=log,
            zero=zero,
            boundaries=starts,
            limit=limit,
        )
        return _figure(heading, chart, note)

    tolerance = finite(lookup(run.config, "sampling", "sync_tolerance"))
    return [
        *curves("Training reward", [("", "reward_mean", 0)], "mean reward of a completion"),
        *curves(
            "Training rates",
            [("valid", "valid_rate", 0), ("optimal", "optimal_rate", 1)],
            "completions, %",
            percent=True,
        ),
        *_by_size_figures(updates, starts),
        *curves("Loss", [("", "loss", 0)], "token-mean GRPO loss"),
        *curves("Entropy", [("", "entropy", 2)], "nats a token"),
        *curves(
            "Clipped and idle",
            [("clipped", "clip_share", 3), ("idle", "zero_variance_share", 6)],
            "share, %",
            percent=True,
            note="Tokens whose ratio was clipped; groups without variance in reward.",
        ),
        *curves(
            "Readable answers",
            [("parsed", "parsed_rate", 0), ("cut short", "truncated_share", 3)],
            "completions, %",
            percent=True,
        ),
        *curves("Completion length", [("", "completion_length", 4)], "tokens"),
        *curves(
            "Weight sync check",
            [("", "sync_max_abs_diff", 0)],
            "largest |Δ log p|, nats",
            log=True,
            limit=None if tolerance is None else (tolerance, "allowed"),
            note="vLLM against the trainer after each update.",
        ),
        *curves(
            "Importance ratio",
            [("", "importance_ratio_mean", 5)],
            "mean trainer / vLLM probability ratio",
            zero=False,
        ),
    ]


def warm_start_figures(run: RunFiles) -> list[Figure]:
    """Losses of the supervised start."""
    records = [record for record in run.metrics if record.get("phase") == "warm_start"]

    def line(name: str, key: str, colour: int) -> Line:
        return Line(
            name,
            [(step, finite(r.get(key))) for r in records if (step := finite(r.get("step")))],
            colour,
        )

    chart = line_chart(
        "Warm start",
        [line("plans", "loss", 0), line("designs", "engineer_loss", 1)],
        x_label="step",
        y_label="cross-entropy, nats a token",
    )
    return _figure(
        "Warm start",
        chart,
        "On solver plans, and on configurations written by the rule engineer.",
    )


def failure_figures(run: RunFiles) -> list[Figure]:
    """Failure kinds as shares of the validation instances: for all sizes, then for each."""
    stages = [stage for stage in run.stages if stage.validation is not None]
    figures = []
    for size in [None, *sizes_of(stages)]:
        bars = []
        for stage in stages:
            tally = tally_of(stage, size)
            if tally is None or tally.count == 0:
                continue
            failed = tally.count - tally.valid
            shares = {kind: n / tally.count for kind, n in tally.failures.items()}
            name = stage_name(stage.number, warm_started(run))
            bars.append((name, shares, f"{failed} of {tally.count}"))
        kinds = FAILURE_COLOURS | {
            kind: _UNKNOWN_COLOUR
            for _, shares, _ in bars
            for kind in shares
            if kind not in FAILURE_COLOURS
        }
        chart = stacked_bars(
            f"Failures, {size_name(size)}",
            bars,
            kinds,
            x_label="validation instances, %",
            percent=True,
        )
        figures += _figure(size_name(size), chart)
    return figures


def seconds_spent(run: RunFiles) -> dict[int, dict[str, float]]:
    """Seconds by round and phase, rounds ascending; what belongs to no round counts as before."""
    spent: dict[int, dict[str, float]] = {}
    for record in run.timings:
        stage = record.get("stage")
        seconds = record.get("seconds")
        phases = seconds if isinstance(seconds, dict) else {str(record.get("phase")): seconds}
        for phase, value in phases.items():
            amount = finite(value)
            if amount is not None and amount >= 0:
                row = spent.setdefault(stage if isinstance(stage, int) else 0, {})
                row[phase] = row.get(phase, 0.0) + amount
    return dict(sorted(spent.items()))


def time_figure(run: RunFiles) -> tuple[list[Figure], dict[str, int]]:
    """Seconds of each phase by round, and the colours of the phases."""
    spent = seconds_spent(run)
    phases = dict.fromkeys(phase for row in spent.values() for phase in row)
    colours = {phase: rank % COLOURS for rank, phase in enumerate(phases)}
    bars = [
        (stage_name(number, warm_started(run)), row, duration(sum(row.values())))
        for number, row in spent.items()
    ]
    chart = stacked_bars("Time by phase", bars, colours, x_label="seconds", wide=True)
    return _figure("Time by phase", chart), colours


def duration(seconds: float) -> str:
    """Seconds for people: 41 s, 3 min 12 s, 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def warm_started(run: RunFiles) -> bool:
    """Whether the run began with a warm start; without a configuration, whether it logged one."""
    if "warm_start" in run.config:
        return run.config["warm_start"] is not None
    return any(record.get("phase") == "warm_start" for record in run.metrics)


def sizes_of(stages: Iterable[Stage]) -> list[int]:
    """All map sizes that were validated, ascending."""
    return sorted(
        {
            row.size
            for stage in stages
            if stage.validation is not None
            for row in stage.validation.rows
            if row.size is not None
        }
    )


def tally_of(stage: Stage, size: int | None) -> Tally | None:
    """A stage's counts for one map size, or for all (None)."""
    if stage.validation is None:
        return None
    if size is None:
        return stage.validation.total
    return next((row for row in stage.validation.rows if row.size == size), None)


def _by_size_figures(
    updates: Sequence[Record], starts: Sequence[tuple[float, str]]
) -> list[Figure]:
    """What each map size yields, and how much it can teach, over the updates that drew it."""
    rows = [one["by_size"] if isinstance(one.get("by_size"), dict) else {} for one in updates]
    sizes = sorted({int(size) for row in rows for size in row if str(size).isdecimal()})

    def valid_rate(row: Record, size: int) -> float | None:
        count = finite(lookup(row, str(size), "count"))
        valid = finite(lookup(row, str(size), "valid"))
        return valid / count if count and valid is not None else None

    def learnability(row: Record, size: int) -> float | None:
        return finite(lookup(row, str(size), "learnability"))

    def curves(
        heading: str,
        value: Callable[[Record, int], float | None],
        y_label: str,
        percent: bool = False,
        note: str = "",
    ) -> list[Figure]:
        lines = [
            Line(
                f"{size}×{size}",  # noqa: RUF001
                [(i, y) for i, row in enumerate(rows, 1) if (y := value(row, size)) is not None],
                rank % COLOURS,
            )
            for rank, size in enumerate(sizes)
        ]
        chart = line_chart(
            heading,
            lines,
            x_label="GRPO update",
            y_label=y_label,
            percent=percent,
            boundaries=starts,
        )
        return _figure(heading, chart, note)

    return [
        *curves("Training valid rate by size", valid_rate, "completions, %", percent=True),
        *curves(
            "Learnability by size",
            learnability,
            "mean p(1 − p) of a group",  # noqa: RUF001
            note="p: the valid rate among one board's completions.",
        ),
    ]


def _in_order(records: Iterable[Record]) -> list[Record]:
    """Updates as they came; of one that a resumed run logged again, the later record."""
    latest = {(str(one.get("stage")), str(one.get("update"))): one for one in records}
    return list(latest.values())


def _counts_note(tallies: Sequence[Tally | None]) -> str:
    counts = sorted({tally.count for tally in tallies if tally is not None})
    return f"n = {' or '.join(map(str, counts))}" if counts else ""


def _figure(heading: str, chart: str | None, note: str = "") -> list[Figure]:
    # Charts escape every text they are given, so their markup may pass the template as it is.
    return [] if chart is None else [Figure(heading, Markup(chart), note)]
