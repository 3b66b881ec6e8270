"""Build report.html from a run directory."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from engineer import Spent
from engineer.scoring.reading import format_reading
from engineer.space import KnobValues
from jaxlake.statistics.paired import PairedComparison, compare
from jaxlake.text_tables import format_duration
from training.analysis import INDIVIDUAL_RATE, SUCCESS_RATES
from training.analysis.pages.document import page_environment, page_sources
from training.analysis.report import figures
from training.analysis.report.answers import answers_json
from training.analysis.report.load_run import ReportedRun, ReportedStage, load_run
from training.environments.catalogue import get_domain
from training.errors import UserError
from training.run.answer_records import make_stage_evidence, sort_groups
from training.run.directory import RunDirectory
from training.run.health import find_problems, summarize
from training.run.typed_files import TextFile

_FOLDER = Path(__file__).parent
_SECTIONS = {
    "missing": ("missing", "Missing data"),
    "validation": ("progress", "Validation"),
    "configurations": ("columns", "Configurations"),
    "answers": ("answers", "All answers"),
    "failures": ("failures", "Failures"),
    "learnable": ("atlases", "Learnability"),
    "training": ("curves", "Training"),
    "time": ("time", "Time"),
    "run-configuration": ("config_text", "Run configuration"),
}
"""Sections of the page by id: the required entry of the page's data, and the heading."""

TEXT_LIMIT = 20_000
"""Maximum number of characters of a context, an engineer's answer and the configuration."""


def build_report(run_dir: Path, output: Path | None = None, *, validation: Any = None) -> Path:
    """Write the report of a run, finished or not, as one self-contained page; return its path.

    `output` is `report.html` in the run's directory by default. `validation` is the solved
    `InstanceSet` of the validation boards, if available; all other answered boards are solved here.
    """
    run = load_run(run_dir)
    target = RunDirectory(run_dir).report if output is None else output
    if target.is_dir():
        raise UserError(f"{target}: is a folder; the name of a file is needed")
    page = _build_page(run, validation)
    page["contents"] = {
        name: heading for name, (needed, heading) in _SECTIONS.items() if page[needed]
    }
    # Models may write unpaired surrogates, which can't be encoded.
    text = _load_template(run).render(page).encode("utf-8", "replace").decode("utf-8")
    TextFile(target).write(text)
    return target


def _load_template(run: ReportedRun) -> jinja2.Template:
    environment = page_environment(_FOLDER)
    environment.filters |= {
        "cost": _format_cost,
        "cut": _shorten,
        "percent": lambda share: f"{100 * share:.1f}",
        "points": lambda share: f"{100 * share:+.1f}".replace("-", "\N{MINUS SIGN}"),
        "ratio": _format_ratio,
        "format_reading": format_reading,
        "group_name": run.group_name,
    }
    return environment.get_template("report.html.jinja")


def _build_page(run: ReportedRun, validation: Any) -> dict[str, Any]:
    columns = _list_configurations(run)
    time_figures, time_colours = figures.time_figure(run)
    embedded = answers_json(run, validation)
    return {
        **page_sources(_FOLDER / "report.css", _FOLDER / "report.js"),
        "name": run.config.name,
        "finished": run.finished,
        "run": run,
        "missing": run.missing,
        "config_text": run.config_text,
        "result": _summarize_validation(run),
        "problems": _describe_problems(run),
        "facts": _collect_facts(run),
        "reading_sentence": _describe_reading(run),
        "vocabulary": run.vocabulary,
        "is_lake": run.is_lake,
        "rate_interval": figures.rate_interval,
        "individual_rate": INDIVIDUAL_RATE,
        "success_rates": SUCCESS_RATES,
        "progress": figures.progress_figures(run),
        "failures": figures.failure_figures(run),
        "columns": columns,
        "review_sentence": _count_reviews(run),
        "configured_groups": sort_groups(group for column in columns for group in column.values),
        "answers": Markup(embedded.text),  # escaped for the place where it stands
        "embedded": embedded,
        "atlases": figures.atlas_figures(run),
        "curves": [*figures.warm_start_figures(run), *figures.training_figures(run)],
        "signals": _tabulate_signals(run),
        "time": time_figures,
        "speed": figures.speed_figures(run),
        "time_colours": time_colours,
        "compact": run.config.engineer.style == "compact",
        "text_limit": TEXT_LIMIT,
    }


def _summarize_validation(run: ReportedRun) -> dict[str, Any] | None:
    """Return the valid rates of the first and the last validation; None if there is none."""

    def valid_rate(stage: ReportedStage) -> dict[str, Any]:
        total = stage.rates[None]
        share, low, high = figures.rate_interval(total.valid, total.count) or (0.0, 0.0, 1.0)
        counts = {"when": run.moment(stage.number), "valid": total.valid, "count": total.count}
        return counts | {"share": share, "low": low, "high": high}

    stages = run.validated
    if not stages:
        return None
    if len(stages) == 1:
        return {"first": valid_rate(stages[0]), "last": None}
    first, last = stages[0], stages[-1]
    return {
        "first": valid_rate(first),
        "last": valid_rate(last),
        "paired": _compare_validations(first, last),
    }


def _compare_validations(before: ReportedStage, after: ReportedStage) -> PairedComparison | None:
    """Compare two validations board by board; None unless both answered the same boards."""
    first, last = (
        {(one.id, one.lines): one.valid for one in stage.episodes} for stage in (before, after)
    )
    if not first or first.keys() != last.keys():
        return None
    return compare(first.values(), (last[board] for board in first))


def _describe_problems(run: ReportedRun) -> list[str]:
    """Return the problems of the run, in the words of the terminal."""
    answers = {stage.number: stage.episodes for stage in run.stages}
    gates = {stage.number: stage.gate for stage in run.stages if stage.gate is not None}
    return summarize(find_problems(run.config, run.updates, answers, gates))


def _tabulate_signals(run: ReportedRun) -> list[tuple[str, list[str]]]:
    """Return statistics of the answers for each difficulty group, first and last.

    Each row has the name of the group, then the shares of readable and cut answers and their mean
    length at the first and last validation, and the share of prompts without a valid completion in
    the first and last stage.
    """
    ends = [make_stage_evidence(stage.number, stage.episodes) for stage in run.validated]
    trained = sorted({update.stage for update in run.updates})

    def from_to(values: Sequence[float | None], form: str) -> str:
        words = ["-" if value is None else form % value for value in values]
        return " → ".join(dict.fromkeys((words[0], words[-1]))) if words else "-"

    def without_success(stage: int, group: str) -> float | None:
        rows = [
            update.by_group[group]
            for update in run.updates
            if update.stage == stage and group in update.by_group
        ]
        prompts = sum(row.prompts for row in rows)
        return 100 * sum(row.without_success for row in rows) / prompts if prompts else None

    table = []
    for group in run.groups:
        seen = [one.validation[group].signals for one in ends if group in one.validation]
        signals = [one for one in seen if one is not None]
        idle = [without_success(stage, group) for stage in trained]
        cells = [
            from_to([100 * signal.readable for signal in signals], "%.1f"),
            from_to([100 * signal.truncated for signal in signals], "%.1f"),
            from_to([signal.tokens for signal in signals], "%.0f"),
            from_to(idle, "%.1f"),
        ]
        table.append((run.group_name(group), cells))
    return table


def _describe_reading(run: ReportedRun) -> str:
    """Return a sentence about reading; empty if it was not measured.

    Reading is a diagnostic of the policy as an engineer: whether its designs change with swapped
    facts of the evidence (docs/reading.md).
    """
    measured = [stage for stage in run.stages if stage.reading is not None]
    if not measured or (reading := measured[-1].reading) is None:
        return ""
    return f"{reading.sentence()} Measured {run.moment(measured[-1].number)}."


def _count_reviews(run: ReportedRun) -> str:
    """Return a sentence that counts the engineer's answers by review; empty without answers."""
    kinds = Counter(answer.kind for stage in run.stages for answer in stage.answers)
    if not kinds:
        return ""
    return (
        f"Answers of the engineer: {kinds['accepted']} valid as written, {kinds['repaired']} valid "
        f"after repairs, {kinds['unchanged']} without a change, {kinds['rejected']} refused, "
        f"{kinds['failed']} never came."
    )


@dataclass(frozen=True)
class _Column:
    """One configuration: the stage it is for, its origin, and whether it was used."""

    heading: str
    kind: str
    note: str
    values: KnobValues  # by group and knob


def _list_configurations(run: ReportedRun) -> list[_Column]:
    """Return the initial configuration and the configuration of each decision."""
    columns: list[_Column] = []
    trained = {stage.number for stage in run.stages if stage.configuration is not None}
    for stage in run.stages:
        if not columns and stage.configuration is not None:
            values = stage.configuration.values()
            start = run.config.started_from
            note = "given" if start is None else f"designed in {start.run}"
            columns.append(_Column(f"Stage {stage.number}", "initial", note, values))
        if (decision := stage.decision) is not None:
            note = f"after stage {stage.number}"
            if stage.number + 1 not in trained:
                note += ", not trained on" if run.finished else ", not trained on yet"
            heading, values = f"Stage {stage.number + 1}", decision.configuration.values()
            columns.append(_Column(heading, decision.kind, note, values))
    return columns


def _collect_facts(run: ReportedRun) -> dict[str, object]:
    """Return the facts at the top of the page."""
    config = run.config
    space, model = get_domain(config).space, config.model
    start = config.started_from
    scratch = (
        f"Qwen3 from scratch, {model.scratch.num_hidden_layers} layers of "
        f"{model.scratch.hidden_size}"
    )
    designed = sum(stage.decision is not None for stage in run.stages)
    facts: dict[str, object] = {
        "Model": model.pretrained
        or (scratch if start is None else f"of {start.run} after stage {start.stage}"),
        "Seed": config.seed,
        "Environment": config.environment.kind,
        f"{space.group_label.capitalize()}s": ", ".join(space.groups),
        "Stages designed": f"{designed} of {config.stages.count}",
        "Instances per stage": config.stages.instances,
        "Engineer": config.engineer.kind,
    }
    if spent := sum(sum(row.values()) for row in figures.seconds_spent(run).values()):
        facts["Measured time"] = format_duration(spent)
    return facts


def _format_cost(spent: Spent) -> str:
    """Return the cost of a design in words, without zero entries."""
    amounts = spent.model_dump(exclude={"seconds"})
    return ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in amounts.items() if n)


def _shorten(text: str | None, limit: int) -> str:
    if text is None:
        return "(no answer)"
    more = f"\n… {len(text) - limit} characters more" if len(text) > limit else ""
    return text[:limit] + more


def _format_ratio(value: float) -> str:
    """Format a knob with at least two decimals, enough for the engineer's grid."""
    short = f"{value:.2f}"
    return short if float(short) == value else f"{value:.4g}"
