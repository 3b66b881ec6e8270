"""The figures of a run's report: which records make which chart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from markupsafe import Markup

from engineer import AtlasCell, Configuration, DesignAtlas
from jaxlake.statistics.tables import wilson_interval
from training.analysis.pages.chart_drawing import COLOURS, Curve, Series
from training.analysis.pages.charts import bar_chart, line_chart, rate_chart, tile_chart
from training.analysis.pages.document import PageFigure
from training.analysis.pages.tiles import Mark, Tile, TileTable
from training.analysis.report.reading import ReportedRun
from training.environments.catalogue import domain_of
from training.run.answer_records import in_order
from training.run.progress import duration
from training.run.records import GroupMetrics


def rate_colours(run: ReportedRun) -> dict[str, int]:
    """The rates that are drawn, and the numbers of their colours."""
    best = "optimal, sum of costs" if run.on_the_lake else "best possible"
    return {"valid": 0} | ({best: 1} if run.tells_best else {})


def rate(successes: int, count: int) -> tuple[float, float, float] | None:
    """Share and 95% Wilson interval; None if there were no trials."""
    if count == 0:
        return None
    low, high = wilson_interval(successes, count)
    return successes / count, float(low), float(high)


def progress_figures(run: ReportedRun) -> list[PageFigure]:
    """Valid and optimal rate after each validation: for all groups together, then for each.

    All have one axis, which covers the intervals of all.
    """
    names = ["start" if stage.number == 0 else str(stage.number) for stage in run.validated]
    best = "optimal" if run.on_the_lake else "best"
    drawn = []
    for group in [None, *run.groups]:
        rows = [stage.rates.get(group) for stage in run.validated]
        series = []
        fields = {"valid": "valid"} | ({best: "best"} if run.tells_best else {})
        for colour, (name, field) in enumerate(fields.items()):
            values = [rate(getattr(row, field), row.count) if row else None for row in rows]
            series.append(Series(name, values, colour))
        drawn.append((group, series, sorted({row.count for row in rows if row is not None})))
    ends = [
        end for _, series, _ in drawn for one in series for end in chain(*filter(None, one.values))
    ]
    span = (min(ends), max(ends)) if ends else (0.0, 1.0)
    figures = []
    for group, series, counts in drawn:
        title, y_label = f"Valid and {best} rate, {run.called(group)}", "validation instances, %"
        chart = rate_chart(title, series, names, x_label="stage", y_label=y_label, span=span)
        figures += _figure(run.called(group), chart, f"n = {' or '.join(map(str, counts))}")
    return figures


def failure_figures(run: ReportedRun) -> list[PageFigure]:
    """Kinds of failure as shares of the validation instances: for all groups, then for each."""
    figures = []
    for group in [None, *run.groups]:
        rows = [(stage.number, stage.rates.get(group)) for stage in run.validated]
        bars = [
            (
                run.stage_name(number),
                {kind: n / row.count for kind, n in row.failures.items()},
                f"{row.count - row.valid} of {row.count}",
            )
            for number, row in rows
            if row is not None and row.count
        ]
        title, x_label = f"Failures, {run.called(group)}", "validation instances, %"
        chart = bar_chart(title, bars, run.words.failures, x_label=x_label, percent=True)
        figures += _figure(run.called(group), chart)
    return figures


def warm_start_figures(run: ReportedRun) -> list[PageFigure]:
    """Losses of the supervised start."""
    steps = [one.step for one in run.warm_start]
    curves = [
        Curve(
            "plans" if run.on_the_lake else "demonstrations",
            steps,
            [one.loss for one in run.warm_start],
            0,
        ),
        Curve("designs", steps, [one.engineer_loss for one in run.warm_start], 1),
    ]
    y_label = "cross-entropy, nats per token"
    chart = line_chart("Warm start", curves, x_label="step", y_label=y_label)
    shown = "the solver's plans" if run.on_the_lake else "demonstrations"
    note = f"On {shown}, and on configurations that the rule engineer wrote."
    return _figure("Warm start", chart, note)


def training_figures(run: ReportedRun) -> list[PageFigure]:
    """The curves of GRPO over the updates of all stages, with a mark where each stage begins."""
    draw, over_updates = partial(_draw_over_updates, run), partial(_over_updates, run)
    by_group = partial(_by_group, run)
    by = "size" if run.on_the_lake else "group"
    rates = "completions, %"
    valid_rates = by_group(lambda row: row.valid / row.count)
    solved = over_updates(
        valid_rate=("valid", 0), optimal_rate=("optimal" if run.on_the_lake else "best", 1)
    )
    ratio = over_updates(importance_ratio_mean=("", 5))
    readable = over_updates(parsed_rate=("parsed", 0), truncated_share=("cut short", 3))
    return [
        *draw("Training reward", "mean reward of a completion", over_updates(reward_mean=("", 0))),
        *draw("Training rates", rates, solved, percent=True),
        *draw(f"Training valid rate by {by}", rates, valid_rates, percent=True),
        *draw(
            f"Learnability by {by}",
            "mean p(1 − p) of a group",  # noqa: RUF001
            by_group(lambda row: row.learnability),
            f"p is the valid rate among the completions for one {run.words.instance}.",
        ),
        *draw("Loss", "token-mean GRPO loss", over_updates(loss=("", 0))),
        *draw("Gradient norm", "before it is clipped", over_updates(grad_norm=("", 3))),
        *draw("Entropy", "nats per token", over_updates(entropy=("", 2))),
        *draw(
            "Clipped and idle",
            "share, %",
            over_updates(clip_share=("clipped", 3), zero_variance_share=("idle", 6)),
            "Tokens whose ratio was clipped; groups whose rewards were all equal.",
            percent=True,
        ),
        *draw("Readable answers", rates, readable, percent=True),
        *draw("Completion length", "tokens", over_updates(completion_length=("", 4))),
        *draw(
            "Sampler gap",
            "mean |Δ log p| of a token, nats",
            over_updates(sampler_gap=("", 1)),
            "What the engine gave the tokens that it drew, against the trainer.",
            log=True,
        ),
        *draw("Importance ratio", "mean trainer / engine probability ratio", ratio, zero=False),
        *_option_figures(run),
    ]


def _option_figures(run: ReportedRun) -> list[PageFigure]:
    """The curves of what only some configurations record."""
    draw, over_updates = partial(_draw_over_updates, run), partial(_over_updates, run)
    replaced = over_updates(resampled_boards=("tried", 6), replaced_boards=("put in", 0))
    return [
        *draw(
            "KL divergence to the reference",
            "nats per token",
            over_updates(kl=("", 4)),
            "Mean over the tokens of completions, as it stands in the loss.",
        ),
        *draw(
            "Overlong penalty",
            "mean, taken from the reward",
            over_updates(overlong_penalty=("", 3)),
            "For answers that come close to the longest allowed.",
        ),
        *draw(
            "Dynamic sampling",
            f"{run.words.instance}s per update",
            replaced,
            "Answered beyond those given, and put in place of some with equal rewards.",
        ),
        *draw(
            "Age of the sampled answers",
            "updates",
            over_updates(rollout_lag=("", 6)),
            "Between the weights that sampled and those that were updated.",
        ),
        *draw(
            "Rehearsed designs",
            "cross-entropy, nats per token",
            over_updates(rehearsal_loss=("", 1)),
            "Of the designs that updates train on beside GRPO.",
        ),
    ]


def speed_figures(run: ReportedRun) -> list[PageFigure]:
    """How fast the updates were, and the memory that they took, as far as it was measured."""
    draw = partial(_draw_over_updates, run)
    known = {(one.stage, one.update): one for one in run.timings if one.update is not None}
    timings = [known.get((one.stage, one.update)) for one in run.updates]

    def curve(name: str, field: str, colour: int) -> Curve:
        values = [None if one is None else getattr(one, field) for one in timings]
        return Curve(name, range(1, len(values) + 1), values, colour)

    memory = [curve("device", "device_gib", 0), curve("host", "host_gib", 4)]
    return [
        *draw("Rollout speed", "tokens per second", [curve("", "tokens_per_second", 0)]),
        *draw(
            "Model FLOPs utilization",
            "of the devices' peak, %",
            [curve("", "mfu", 2)],
            "Of loss and gradient.",
            percent=True,
        ),
        *draw("Memory", "most so far, GiB", memory, "Of the trainer."),
    ]


def _draw_over_updates(
    run: ReportedRun,
    heading: str,
    y_label: str,
    curves: Sequence[Curve],
    note: str = "",
    **style: Any,
) -> list[PageFigure]:
    """Draw curves over the updates of all stages, with a mark where each stage begins."""
    stages = [one.stage for one in run.updates]
    begins = [
        (float(i), f"stage {stage}")
        for i, stage in enumerate(stages, 1)
        if i == 1 or stage != stages[i - 2]
    ]
    style |= {"x_label": "GRPO update", "y_label": y_label, "boundaries": begins}
    return _figure(heading, line_chart(heading, curves, **style), note)


def atlas_figures(run: ReportedRun) -> list[PageFigure]:
    """Measured p(1-p) by map size, holes and waits, with the decided and the best configuration."""
    figures = []
    for stage in run.stages:
        if stage.atlas is not None:
            atlas, best = stage.atlas.atlas, _best_of(run, stage.atlas.atlas)
            decided = None if stage.decision is None else stage.decision.configuration
            title = f"{run.stage_name(stage.number)}: what could be learned"
            chart = tile_chart(title, _atlas_tables(atlas, decided, best), across=1)
            note = _regret_note(run, atlas, decided, best)
            figures += _figure(f"After stage {stage.number}", chart, note)
    return figures


def _atlas_tables(
    atlas: DesignAtlas, decided: Configuration | None, best: Configuration | None
) -> list[TileTable]:
    """Draw a table per map size: hole levels from left to right, kinds of boards below another."""
    tables = []
    for group in dict.fromkeys(cell.group for cell in atlas.cells):
        cells = {tuple(one.knobs.values()): one for one in atlas.cells if one.group == group}
        holes, waits = (sorted(set(levels)) for levels in zip(*cells, strict=True))
        marks: list[Mark] = []
        shares: dict[str, str] = {}
        for name, configuration in (("best", best), ("decided", decided)):
            knobs = configuration and configuration.values().get(group)
            if knobs:
                shares[name] = f"{name} {100 * knobs['data_ratio']:.0f}%"
            if knobs and knobs["data_ratio"] > 0:
                x, y = (
                    float(np.interp(knobs[knob], levels, np.arange(len(levels)) + 0.5))
                    for knob, levels in (("hole_ratio", holes), ("wait_ratio", waits))
                )
                about = ", ".join(f"{knob} {value:g}" for knob, value in knobs.items())
                marks.append(Mark(x, y, name == "decided", f"{name}: {about}"))
        first, *others = [shares[name] for name in ("decided", "best") if name in shares] or [""]
        title = f"{group} × {group}"  # noqa: RUF001
        if first:
            title = ", ".join([title, f"{first} of the data", *others])
        tiles = [[_atlas_tile(cells[hole, wait]) for hole in holes] for wait in waits]
        names = ["waits" if wait else "no waits" for wait in waits]
        tables.append(TileTable(title, names, [f"{100 * hole:g}%" for hole in holes], tiles, marks))
    return tables


def _atlas_tile(cell: AtlasCell) -> Tile:
    about = ", ".join(f"{name} {value:g}" for name, value in cell.knobs.items())
    value = cell.learnability
    if value is None:
        return Tile("–", None, f"{about}: no boards")  # noqa: RUF001
    rate = f"{cell.count} boards, {100 * (cell.valid_rate or 0.0):.0f}% valid"
    return Tile(f"{value.value:.2f}", value.value / 0.25, f"{about}: {value}, {rate}")


def _best_of(run: ReportedRun, atlas: DesignAtlas) -> Configuration | None:
    """Return the best configuration of an atlas, where there is one."""
    try:
        return None if run.config is None else atlas.best(domain_of(run.config))
    except ValueError:
        return None


def _regret_note(
    run: ReportedRun,
    atlas: DesignAtlas,
    decided: Configuration | None,
    best: Configuration | None,
) -> str:
    """Say what the decided configuration is expected to teach, and what the best one."""
    if best is None or run.config is None:
        return "No configuration can be compared with the best."
    most = f"The best configuration (rings) is expected to teach {atlas.expected(best)}"
    if decided is None:
        return f"{most}; none is decided yet."
    expected, regret = atlas.expected(decided), atlas.regret(domain_of(run.config), decided)
    if expected is None:
        return f"{most}; the decided one (diamonds) has boards that were not measured."
    return f"{most}, the decided one (diamonds) {expected}: a regret of {regret}."


def seconds_spent(run: ReportedRun) -> dict[int, dict[str, float]]:
    """Seconds by stage and by what took them, stages ascending; the warm start is stage 0."""
    spent: dict[int, dict[str, float]] = {}
    for record in run.timings:
        row = spent.setdefault(record.stage, {})
        for name, seconds in record.seconds.items():
            row[name] = row.get(name, 0.0) + seconds
    return dict(sorted(spent.items()))


def time_figure(run: ReportedRun) -> tuple[list[PageFigure], dict[str, int]]:
    """Seconds by what took them, one bar per stage, and the numbers of the colours."""
    spent = _with_a_colour_each(seconds_spent(run))
    names = dict.fromkeys(name for row in spent.values() for name in row)
    colours = {name: rank for rank, name in enumerate(names)}
    bars = [
        (run.stage_name(number), row, duration(sum(row.values()))) for number, row in spent.items()
    ]
    chart = bar_chart("Time by phase", bars, colours, x_label="seconds", wide=True)
    return _figure("Time by phase", chart), colours


def _with_a_colour_each(spent: dict[int, dict[str, float]]) -> dict[int, dict[str, float]]:
    """Add up what took the least as `other`, where there are more names than colours."""
    total = Counter[str]()
    for row in spent.values():
        total.update(row)
    if len(total) <= len(COLOURS):
        return spent
    kept = {name for name, _ in total.most_common(len(COLOURS) - 1)}
    summed = {}
    for stage, row in spent.items():
        summed[stage] = {name: seconds for name, seconds in row.items() if name in kept}
        if rest := [seconds for name, seconds in row.items() if name not in kept]:
            summed[stage]["other"] = sum(rest)
    return summed


def _over_updates(run: ReportedRun, **fields: tuple[str, int]) -> list[Curve]:
    """One curve per field of the updates' records, with its name and the number of its colour."""
    numbers = range(1, len(run.updates) + 1)
    return [
        Curve(name, numbers, [getattr(one, field) for one in run.updates], colour)
        for field, (name, colour) in fields.items()
    ]


def _by_group(run: ReportedRun, value: Callable[[GroupMetrics], float]) -> list[Curve]:
    """One curve per group, over the updates that trained on it."""
    curves = []
    for rank, group in enumerate(in_order(group for one in run.updates for group in one.by_group)):
        rows = [(i, one.by_group.get(group)) for i, one in enumerate(run.updates, 1)]
        drew = [(i, row) for i, row in rows if row is not None and row.count]
        x, y = [i for i, _ in drew], [value(row) for _, row in drew]
        curves.append(Curve(run.called(group).replace(" × ", "×"), x, y, rank % len(COLOURS)))  # noqa: RUF001
    return curves


def _figure(heading: str, chart: str | None, note: str = "") -> list[PageFigure]:
    # Charts escape every text they are given, so their markup may pass the template as it is.
    return [] if chart is None else [PageFigure(heading, Markup(chart), note)]
