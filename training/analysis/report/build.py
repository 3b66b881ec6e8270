"""Build `report.html` from the directory of a run."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from engineer import Costs
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
"""Sections of the page by id: the template variable that must not be empty, and the heading."""

TEXT_LIMIT = 20_000
"""Maximum length of each context, answer of an engineer and configuration, characters."""


def build_report(run_dir: Path, output: Path | None = None, *, validation: Any = None) -> Path:
    """Write the report of a run, finished or not, as one self-contained page.

    Args:
        run_dir: Directory of the run.
        output: The file to write; None writes `report.html` in the run's directory.
        validation: The solved `InstanceSet` of the validation boards, if available. Answered boards
            outside this set are solved for the report.

    Returns:
        The path of the page.

    Raises:
        UserError: The run has no configuration, or `output` is a folder.
    """
    run = load_run(run_dir)
    target = RunDirectory(run_dir).report if output is None else output
    if target.is_dir():
        raise UserError(f"{target}: must be a file, got a folder")
    page = _build_page(run, validation)
    page["contents"] = {
        name: heading for name, (variable, heading) in _SECTIONS.items() if page[variable]
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
    columns = _list_configuration_columns(run)
    time_figures, time_colours = figures.time_figure(run)
    embedded_answers = answers_json(run, validation)
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
        "answers": Markup(embedded_answers.text),  # already escaped
        "embedded": embedded_answers,
        "atlases": figures.atlas_figures(run),
        "curves": [*figures.warm_start_figures(run), *figures.training_figures(run)],
        "answer_statistics": _tabulate_statistics(run),
        "time": time_figures,
        "speed": figures.speed_figures(run),
        "time_colours": time_colours,
        "compact": run.config.engineer.style == "compact",
        "text_limit": TEXT_LIMIT,
    }


def _summarize_validation(run: ReportedRun) -> dict[str, Any] | None:
    """Return the valid rates of the first and the last validation; None without validations."""
    rates = []
    for stage in run.validated:
        total = stage.rates[None]
        share, low, high = figures.rate_interval(total.valid, total.count) or (0.0, 0.0, 1.0)
        rate = {"when": run.describe_time(stage.number), "valid": total.valid, "count": total.count}
        rates.append(rate | {"share": share, "low": low, "high": high})
    if not rates:
        return None
    if len(rates) == 1:
        return {"first": rates[0], "last": None}
    comparison = _compare_validations(run.validated[0], run.validated[-1])
    return {"first": rates[0], "last": rates[-1], "paired": comparison}


def _compare_validations(first: ReportedStage, last: ReportedStage) -> PairedComparison | None:
    """Compare two validations board by board; None if their boards differ."""
    valid_before, valid_after = (
        {(episode.id, episode.lines): episode.valid for episode in stage.episodes}
        for stage in (first, last)
    )
    if not valid_before or valid_before.keys() != valid_after.keys():
        return None
    return compare(valid_before.values(), (valid_after[board] for board in valid_before))


def _describe_problems(run: ReportedRun) -> list[str]:
    """Return the problems of the run, as `jaxlake run` prints them."""
    answers = {stage.number: stage.episodes for stage in run.stages}
    gates = {stage.number: stage.gate for stage in run.stages if stage.gate is not None}
    return summarize(find_problems(run.config, run.updates, answers, gates))


def _tabulate_statistics(run: ReportedRun) -> list[tuple[str, list[str]]]:
    """Return one row per group with statistics of its answers, as first → last.

    The cells are the shares of readable and of truncated answers and their mean length at the first
    and the last validation, and the share of prompts without a valid completion in the first and
    the last stage.
    """
    validations = [make_stage_evidence(stage.number, stage.episodes) for stage in run.validated]
    stages = sorted({update.stage for update in run.updates})
    table = []
    for group in run.groups:
        evidence = [stage.validation.get(group) for stage in validations]
        statistics = [row.answer_statistics for row in evidence if row and row.answer_statistics]
        cells = [
            _format_change([100 * row.readable for row in statistics], "%.1f"),
            _format_change([100 * row.truncated for row in statistics], "%.1f"),
            _format_change([row.tokens for row in statistics], "%.0f"),
            _format_change([_percent_unsolved(run, stage, group) for stage in stages], "%.1f"),
        ]
        table.append((run.group_name(group), cells))
    return table


def _format_change(values: Sequence[float | None], number_format: str) -> str:
    """Format the first and the last value, or a single one if they look equal."""
    texts = ["-" if value is None else number_format % value for value in values]
    return " → ".join(dict.fromkeys((texts[0], texts[-1]))) if texts else "-"


def _percent_unsolved(run: ReportedRun, stage: int, group: str) -> float | None:
    """Return the share of a stage's prompts without a valid completion, in per cent."""
    rows = [
        update.by_group[group]
        for update in run.updates
        if update.stage == stage and group in update.by_group
    ]
    prompts = sum(row.prompts for row in rows)
    return 100 * sum(row.without_success for row in rows) / prompts if prompts else None


def _describe_reading(run: ReportedRun) -> str:
    """Return a sentence about the last measurement of reading; empty if there is none.

    A policy reads its evidence if its designs follow when a fact of the evidence is swapped
    (docs/reading.md).
    """
    measured_stages = [stage for stage in run.stages if stage.reading is not None]
    if not measured_stages or (reading := measured_stages[-1].reading) is None:
        return ""
    return f"{reading.sentence()} Measured {run.describe_time(measured_stages[-1].number)}."


def _count_reviews(run: ReportedRun) -> str:
    """Return a sentence with the engineer's answers by kind of review; empty without answers."""
    kinds = Counter(answer.kind for stage in run.stages for answer in stage.answers)
    if not kinds:
        return ""
    return (
        f"Answers of the engineer: {kinds['accepted']} valid as written, {kinds['repaired']} valid "
        f"after repairs, {kinds['unchanged']} without a change, {kinds['rejected']} rejected, "
        f"{kinds['failed']} missing."
    )


@dataclass(frozen=True)
class _ConfigurationColumn:
    heading: str  # the stage that the configuration is for
    kind: str  # the kind of decision that led to it
    note: str  # where it comes from, and whether a stage was trained on it
    values: KnobValues  # by group and knob


def _list_configuration_columns(run: ReportedRun) -> list[_ConfigurationColumn]:
    """Return the initial configuration and the configuration of each decision."""
    columns: list[_ConfigurationColumn] = []
    trained_stages = {stage.number for stage in run.stages if stage.configuration is not None}
    for stage in run.stages:
        if not columns and stage.configuration is not None:
            values = stage.configuration.values()
            origin = run.config.started_from
            note = "given" if origin is None else f"designed in {origin.run}"
            heading = f"Stage {stage.number}"
            columns.append(_ConfigurationColumn(heading, "initial", note, values))
        if (decision := stage.decision) is not None:
            note = f"after stage {stage.number}"
            if stage.number + 1 not in trained_stages:
                note += ", not trained on" if run.finished else ", not trained on yet"
            heading, values = f"Stage {stage.number + 1}", decision.configuration.values()
            columns.append(_ConfigurationColumn(heading, decision.kind, note, values))
    return columns


def _collect_facts(run: ReportedRun) -> dict[str, object]:
    """Return the properties of the run at the top of the page."""
    config = run.config
    space, model = get_domain(config).space, config.model
    if model.pretrained:
        model_name = model.pretrained
    elif (origin := config.started_from) is not None:
        model_name = f"of {origin.run} after stage {origin.stage}"
    else:
        shape = model.scratch
        model_name = f"Qwen3 from scratch, {shape.num_hidden_layers} layers of {shape.hidden_size}"
    num_designed = sum(stage.decision is not None for stage in run.stages)
    facts: dict[str, object] = {
        "Model": model_name,
        "Seed": config.seed,
        "Environment": config.environment.kind,
        f"{space.group_label.capitalize()}s": ", ".join(space.groups),
        "Stages designed": f"{num_designed} of {config.stages.count}",
        "Instances per stage": config.stages.instances,
        "Engineer": config.engineer.kind,
    }
    if seconds := sum(sum(row.values()) for row in figures.seconds_by_phase(run).values()):
        facts["Measured time"] = format_duration(seconds)
    return facts


def _format_cost(spent: Costs) -> str:
    """Return the cost of a design as a list of its non-zero amounts."""
    amounts = spent.model_dump(exclude={"seconds"})
    return ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in amounts.items() if n)


def _shorten(text: str | None, max_length: int) -> str:
    if text is None:
        return "(no answer)"
    omission = f"\n… {len(text) - max_length} characters more" if len(text) > max_length else ""
    return text[:max_length] + omission


def _format_ratio(value: float) -> str:
    """Format a knob with at least two decimals, enough for the engineer's grid."""
    text = f"{value:.2f}"
    return text if float(text) == value else f"{value:.4g}"
