"""From a run directory to report.html."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2

from engineer import Spent
from engineer.space import KnobValues
from jaxlake.paired import PairedComparison, compare
from training.analysis import METRIC_NAMES
from training.analysis.report import episodes, figures
from training.analysis.report.reading import ReportedRun, ReportedStage, read_run
from training.errors import UserError
from training.run.directory import RunDirectory
from training.run.files import TextFile
from training.run.progress import duration
from training.run.records import EpisodeRecord

TEMPLATE = "report.html"
LONGEST_TEXT = 20_000


def build_report(run_dir: Path, output: Path | None = None) -> Path:
    """Write the report of a run, finished or not, as one page that needs no other file.

    Args:
        run_dir: The run's directory.
        output: The file to write, whole; None: the report in the run's directory.

    Returns:
        The file that was written.

    Raises:
        UserError: `run_dir` is not a run's directory, or `output` can't be written.
    """
    run = read_run(run_dir)
    target = RunDirectory(run_dir).report if output is None else output
    if target.is_dir():
        raise UserError(f"{target}: is a folder; the name of a file is needed")
    # A model may write half of a surrogate pair, which no encoding of a file can hold.
    TextFile(target).write(_render(run).encode("utf-8", "replace").decode("utf-8"))
    return target


def _render(run: ReportedRun) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "cost": _cost,
        "cut": _cut,
        "percent": lambda share: f"{100 * share:.1f}",
        "picture": episodes.picture,
        "ratio": _ratio,
        "size": figures.size_name,
    }
    answered = [stage for stage in run.stages if stage.episodes]
    failed, solved = episodes.shown_episodes(answered[-1].episodes if answered else ())
    columns = _configuration_columns(run)
    time_figures, time_colours = figures.time_figure(run)
    return environment.get_template(TEMPLATE).render(
        run=run,
        result=_headline(run),
        facts=_facts(run),
        metrics=METRIC_NAMES,
        rate=figures.rate,
        progress=figures.progress_figures(run),
        failures=figures.failure_figures(run),
        failure_colours=figures.FAILURE_COLOURS,
        rate_colours=figures.RATE_COLOURS,
        columns=columns,
        configured_sizes=sorted({int(size) for column in columns for size in column.values}),
        shown=run.moment(answered[-1].number) if answered else None,
        failed=failed,
        solved=solved,
        longest_answer=episodes.LONGEST_ANSWER,
        training=figures.training_figures(run),
        warm_start=figures.warm_start_figures(run),
        time=time_figures,
        time_colours=time_colours,
    )


def _headline(run: ReportedRun) -> dict[str, Any] | None:
    """How the valid rate went from the first validation to the last; None if there is none."""
    stages = [stage for stage in run.validated if stage.rates[None].count]
    if not stages:
        return None
    first, last = (_valid_rate(run, stage) for stage in (stages[0], stages[-1]))
    if len(stages) == 1:
        return {"first": first, "last": None}
    apart = max(first["low"], last["low"]) > min(first["high"], last["high"])
    paired = _paired(stages[0].episodes, stages[-1].episodes)
    return {"first": first, "last": last, "apart": apart, "paired": paired}


def _valid_rate(run: ReportedRun, stage: ReportedStage) -> dict[str, Any]:
    """The valid rate of one validation over all map sizes; shares from 0 to 1."""
    total = stage.rates[None]
    shares = figures.rate(total.valid, total.count) or ()
    counts = {"when": run.moment(stage.number), "valid": total.valid, "count": total.count}
    return counts | dict(zip(("share", "low", "high"), shares, strict=True))


def _paired(
    before: Sequence[EpisodeRecord], after: Sequence[EpisodeRecord]
) -> PairedComparison | None:
    """Compare two validations board by board; None unless both answered the very same boards."""
    first, last = ({(one.id, one.grid): one.valid for one in some} for some in (before, after))
    if not first or first.keys() != last.keys():
        return None
    return compare(first.values(), (last[board] for board in first))


@dataclass(frozen=True)
class _Column:
    """One configuration: the stage it is for, how it came about, and what became of it."""

    heading: str
    kind: str
    note: str
    values: KnobValues  # by map size and knob


def _configuration_columns(run: ReportedRun) -> list[_Column]:
    """The initial configuration, and that of every decision."""
    columns: list[_Column] = []
    trained = {stage.number for stage in run.stages if stage.configuration is not None}
    for stage in run.stages:
        if not columns and stage.configuration is not None:
            values = stage.configuration.values()
            columns.append(_Column(f"Stage {stage.number}", "initial", "given", values))
        if (decision := stage.decision) is not None:
            note = f"after stage {stage.number}"
            if stage.number + 1 not in trained:
                note += ", not trained on" if run.finished else ", not trained on yet"
            heading, values = f"Stage {stage.number + 1}", decision.configuration.values()
            columns.append(_Column(heading, decision.kind, note, values))
    return columns


def _facts(run: ReportedRun) -> dict[str, object]:
    """What stands at the top of the page, as far as it is known."""
    facts: dict[str, object] = {}
    if (config := run.config) is not None:
        layers, width = config.model.scratch.num_hidden_layers, config.model.scratch.hidden_size
        from_scratch = f"Qwen3 from scratch, {layers} layers of {width}"
        designed = sum(stage.decision is not None for stage in run.stages)
        facts = {
            "Model": config.model.pretrained or from_scratch,
            "Seed": config.seed,
            "Agents": config.environment.num_agents,
            "Map sizes": ", ".join(map(str, config.environment.bounds.sizes)),
            "Stages designed": f"{designed} of {config.stages.count}",
            "Instances per stage": config.stages.instances,
            "Engineer": config.engineer.kind,
        }
    if spent := sum(sum(row.values()) for row in figures.seconds_spent(run).values()):
        facts["Measured time"] = duration(spent)
    if run.last_written:
        written = datetime.fromtimestamp(run.last_written, UTC)
        facts["Last written"] = f"{written:%Y-%m-%d %H:%M} UTC"
    return facts


_COSTS = {
    "training_instances": "training instances in the stage",
    "engineer_tokens": "tokens written by the engineer",
    "probe_instances": "instances trained on in probes",
    "probe_rollouts": "answers drawn in probes",
}


def _cost(spent: Spent) -> str:
    """What a design has cost, in words, without what cost nothing."""
    amounts = {words: getattr(spent, name) for name, words in _COSTS.items()}
    return ", ".join(f"{amount:,} {words}" for words, amount in amounts.items() if amount)


def _cut(text: str | None) -> str:
    if text is None:
        return "(no answer)"
    more = f"\n… {len(text) - LONGEST_TEXT} characters more" if len(text) > LONGEST_TEXT else ""
    return text[:LONGEST_TEXT] + more


def _ratio(value: float) -> str:
    """A knob with at least two decimals: enough for the engineer's grid, and exact beyond it."""
    short = f"{value:.2f}"
    return short if float(short) == value else f"{value:.4g}"
