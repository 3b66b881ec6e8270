"""The figures of a run's report."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from engineer import DesignAtlas
from jaxlake.statistics.intervals import wilson_interval
from jaxlake.text_tables import format_duration
from training.analysis.pages.charts import (
    COLOURS,
    Curve,
    Series,
    Tiles,
    bar_chart,
    line_chart,
    rate_chart,
    tile_chart,
)
from training.analysis.pages.document import PageFigure, page_figures
from training.analysis.report.load_run import ReportedRun
from training.run.answer_records import sort_groups
from training.run.records import GroupMetrics

_IMPORTANCE_RATIO = "importance_ratio_mean"

_UPDATE_CURVES: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("Training reward", "mean of a completion", {"": "reward_mean"}),
    ("Training rates", "completions, %", {"valid": "valid_rate", "best": "optimal_rate"}),
    ("Loss", "token-mean GRPO loss", {"": "loss"}),
    ("Gradient norm", "before it is clipped", {"": "grad_norm"}),
    ("Entropy", "nats per token", {"": "entropy"}),
    (
        "Clipped tokens, idle groups",
        "share, %",
        {"clip": "clip_share", "idle": "zero_variance_share"},
    ),
    ("Readable answers", "completions, %", {"read": "parsed_rate", "cut": "truncated_share"}),
    ("Completion length", "tokens", {"": "completion_length"}),
    ("Sampler gap", "mean |Δ log p| of a token, log scale", {"": "sampler_gap"}),
    ("Importance ratio", "mean trainer / engine probability ratio", {"": _IMPORTANCE_RATIO}),
    ("KL divergence to the reference", "nats per token, in the loss", {"": "kl"}),
    ("Overlong penalty", "mean, taken from the reward", {"": "overlong_penalty"}),
    ("Dynamic sampling", "instances", {"drawn": "resampled_boards", "replaced": "replaced_boards"}),
    ("Age of the sampled answers", "updates", {"": "rollout_lag"}),
    ("Rehearsed designs", "cross-entropy, nats per token", {"": "rehearsal_loss"}),
)
"""Charts over the updates: title, heading, and the field of each named curve."""


def rate_interval(successes: int, count: int) -> tuple[float, float, float] | None:
    """Return a share and its 95% Wilson interval, or None without trials."""
    if count == 0:
        return None
    low, high = wilson_interval(successes, count)
    return successes / count, float(low), float(high)


def progress_figures(run: ReportedRun) -> list[PageFigure]:
    """Draw the valid rate and the rate of best answers by validation, overall and per group.

    All charts share one y axis, which covers all intervals.
    """
    names = ["start" if stage.number == 0 else str(stage.number) for stage in run.validated]
    fields = {"valid": "valid"} | ({"best": run.vocabulary.best} if run.has_best_rate else {})
    panels = []
    for group in [None, *run.groups]:
        rows = [stage.rates.get(group) for stage in run.validated]
        series = [
            Series(
                name,
                [rate_interval(getattr(row, field), row.count) if row else None for row in rows],
                colour,
            )
            for colour, (field, name) in enumerate(fields.items())
        ]
        panels.append((group, series, sorted({row.count for row in rows if row is not None})))
    curves = [curve for _, series, _ in panels for curve in series]
    values = [value for curve in curves for value in chain(*filter(None, curve.values))]
    style: Any = {"x_label": "stage", "heading": "validation instances, %"}
    style["span"] = (min(values), max(values)) if values else (0.0, 1.0)
    figures = []
    for group, series, counts in panels:
        chart = rate_chart(f"Rates, {run.group_name(group)}", series, names, **style)
        figures += page_figures(
            run.group_name(group), chart, f"n = {' or '.join(map(str, counts))}"
        )
    return figures


def failure_figures(run: ReportedRun) -> list[PageFigure]:
    """Draw kinds of failure as shares of the validation instances, overall and per group."""
    figures = []
    for group in [None, *run.groups]:
        rows = [(stage.number, stage.rates.get(group)) for stage in run.validated]
        bars = [
            (
                run.stage_name(number),
                {kind: count / row.count for kind, count in row.failures.items()},
                f"{row.count - row.valid} of {row.count}",
            )
            for number, row in rows
            if row is not None and row.count
        ]
        label, x_label = f"Failures, {run.group_name(group)}", "validation instances, %"
        chart = bar_chart(label, bars, run.vocabulary.failures, x_label=x_label, percent=True)
        figures += page_figures(run.group_name(group), chart)
    return figures


def warm_start_figures(run: ReportedRun) -> list[PageFigure]:
    """Draw the losses of the warm start."""
    steps = [record.step for record in run.warm_start]
    curves = [
        Curve("answers", steps, [record.loss for record in run.warm_start], 0),
        Curve("designs", steps, [record.engineer_loss for record in run.warm_start], 1),
    ]
    heading = "cross-entropy, nats per token"
    chart = line_chart("Warm start", curves, x_label="step", heading=heading)
    note = "On demonstrations, and on configurations written by the rule engineer."
    return page_figures("Warm start", chart, note)


def training_figures(run: ReportedRun) -> list[PageFigure]:
    """Draw the curves of GRPO over all updates, with a mark at the start of each stage."""
    update_numbers, label = range(1, len(run.updates) + 1), run.vocabulary.label
    valid_rates = _group_curves(run, lambda row: row.valid / row.count)
    learnability = _group_curves(run, lambda row: row.learnability)
    figures = [
        *_update_chart(run, f"Training valid rate by {label}", "completions, %", valid_rates),
        *_update_chart(run, f"Learnability by {label}", "mean p(1-p) of a group", learnability),
    ]
    for title, heading, fields in _UPDATE_CURVES:
        curves = [
            Curve(name, update_numbers, [getattr(update, field) for update in run.updates], colour)
            for colour, (name, field) in enumerate(fields.items())
        ]
        show_zero = _IMPORTANCE_RATIO not in fields.values()
        figures += _update_chart(run, title, heading, curves, show_zero=show_zero)
    return figures


def speed_figures(run: ReportedRun) -> list[PageFigure]:
    """Draw the speed and memory of the updates, if measured."""
    timings_by_update = {(timing.stage, timing.update): timing for timing in run.timings}
    timings = [timings_by_update.get((update.stage, update.update)) for update in run.updates]

    def make_curve(name: str, field: str, colour: int = 0) -> Curve:
        values = [None if timing is None else getattr(timing, field) for timing in timings]
        return Curve(name, range(1, len(values) + 1), values, colour)

    memory_curves = [make_curve("device", "device_gib"), make_curve("host", "host_gib", 1)]
    speed_curves, mfu_curves = [make_curve("", "tokens_per_second")], [make_curve("", "mfu")]
    return [
        *_update_chart(run, "Rollout speed", "tokens per second", speed_curves),
        *_update_chart(run, "Model FLOPs utilization", "of the devices' peak, %", mfu_curves),
        *_update_chart(run, "Memory of the trainer", "peak so far, GiB", memory_curves),
    ]


def _update_chart(
    run: ReportedRun, title: str, heading: str, curves: Sequence[Curve], *, show_zero: bool = True
) -> list[PageFigure]:
    """Draw curves over all updates. `heading` ends with "%" or "log scale" for such an axis."""
    stages = [update.stage for update in run.updates]
    stage_starts = [
        (float(i), f"stage {stage}")
        for i, stage in enumerate(stages, 1)
        if i == 1 or stage != stages[i - 2]
    ]
    chart = line_chart(
        title,
        curves,
        x_label="GRPO update",
        heading=heading,
        percent=heading.endswith("%"),
        log_scale=heading.endswith("log scale"),
        show_zero=show_zero,
        boundaries=stage_starts,
    )
    return page_figures(title, chart)


def _group_curves(run: ReportedRun, get_value: Callable[[GroupMetrics], float]) -> list[Curve]:
    """Return one curve per group, over the updates that trained on it."""
    curves = []
    groups = sort_groups(group for update in run.updates for group in update.by_group)
    for index, group in enumerate(groups):
        rows = [(i, update.by_group.get(group)) for i, update in enumerate(run.updates, 1)]
        trained_rows = [(i, row) for i, row in rows if row is not None and row.count]
        x, y = [i for i, _ in trained_rows], [get_value(row) for _, row in trained_rows]
        curves.append(Curve(run.group_name(group), x, y, index % len(COLOURS)))
    return curves


def atlas_figures(run: ReportedRun) -> list[PageFigure]:
    """Draw the measured p(1-p) by map size, hole ratio and wait ratio, for stages with an atlas."""
    figures = []
    for stage in run.stages:
        if stage.atlas is not None:
            label = f"{run.stage_name(stage.number)}: learnability"
            chart = tile_chart(label, _atlas_tables(stage.atlas.atlas), maximum=0.25)
            figures += page_figures(f"After stage {stage.number}", chart)
    return figures


def _atlas_tables(atlas: DesignAtlas) -> list[Tiles]:
    """Return one table per map size, with hole ratios as columns and wait ratios as rows."""
    tables = []
    for group in dict.fromkeys(cell.group for cell in atlas.cells):
        cells = {tuple(cell.knobs.values()): cell for cell in atlas.cells if cell.group == group}
        hole_ratios, wait_ratios = (sorted(set(levels)) for levels in zip(*cells, strict=True))
        learnability = {
            levels: float("nan") if cell.learnability is None else cell.learnability
            for levels, cell in cells.items()
        }
        values = [[learnability[hole, wait] for hole in hole_ratios] for wait in wait_ratios]
        rows = ["waits" if wait else "no waits" for wait in wait_ratios]
        columns = [f"{100 * hole:g}%" for hole in hole_ratios]
        tables.append(Tiles(f"{group} × {group}", rows, columns, values))  # noqa: RUF001
    return tables


def seconds_by_phase(run: ReportedRun) -> dict[int, dict[str, float]]:
    """Return the measured seconds by stage and phase, stages ascending."""
    seconds_by_stage: dict[int, dict[str, float]] = {}
    for record in run.timings:
        phases = seconds_by_stage.setdefault(record.stage, {})
        for phase, seconds in record.seconds.items():
            phases[phase] = phases.get(phase, 0.0) + seconds
    return dict(sorted(seconds_by_stage.items()))


def time_figure(run: ReportedRun) -> tuple[list[PageFigure], dict[str, int]]:
    """Draw seconds by phase, one bar per stage; also return the colours of the phases."""
    stages = seconds_by_phase(run)
    names = dict.fromkeys(phase for phases in stages.values() for phase in phases)
    colours = {phase: index % len(COLOURS) for index, phase in enumerate(names)}
    bars = [
        (run.stage_name(number), phases, format_duration(sum(phases.values())))
        for number, phases in stages.items()
    ]
    return page_figures("Time by phase", bar_chart("Time", bars, colours, x_label="s")), colours
