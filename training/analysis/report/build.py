"""From a run directory to report.html."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from engineer import Spent
from engineer.review import Repair
from engineer.scoring.reading import format_reading
from engineer.space import KnobValues
from jaxlake.statistics.paired import PairedComparison, compare
from training.analysis import INDIVIDUAL_RATE, SUCCESS_RATES
from training.analysis.pages.document import page_environment, page_sources
from training.analysis.report import figures
from training.analysis.report.answers import NO_ANSWERS, answers_json
from training.analysis.report.gallery import shown_episodes
from training.analysis.report.reading import ReportedRun, ReportedStage, read_run
from training.environments.catalogue import domain_of
from training.errors import UserError
from training.run.answer_records import in_order
from training.run.directory import RunDirectory
from training.run.progress import duration
from training.run.records import DecisionRecord, EpisodeRecord
from training.run.typed_files import TextFile
from training.schema import RunConfig
from training.schema.environment_sections import OtherEnvironment

_FOLDER = Path(__file__).parent
_SECTIONS = {
    "missing": ("missing", "What is missing"),
    "validation": ("progress", "Validation"),
    "configurations": ("columns", "Configurations"),
    "answers": ("answers", "All answers"),
    "failures": ("failures", "Failures"),
    "learnable": ("atlases", "What could be learned"),
    "episodes": ("shown", "Examples"),
    "training": ("curves", "Training"),
    "time": ("time", "Time"),
    "run-configuration": ("config_text", "Run configuration"),
}
"""The sections of the page by their ids: what there must be for one, and its heading."""

LONGEST_ANSWER = 1500  # characters of an example

MOST_BYTES = 5_000_000
"""Of the whole page."""
TEXT_LIMITS = (20_000, 5_000, 1_000, 250)
"""Characters kept of a context, an engineer's answer and the configuration: the first limit with
which `ROOM_FOR_ANSWERS` is left."""
ROOM_FOR_ANSWERS = 1_500_000  # bytes
_ROOM_FOR_PLAYER = 20_000  # bytes of the player's elements and of the list of contents


def build_report(run_dir: Path, output: Path | None = None, *, validation: Any = None) -> Path:
    """Write the report of a run, finished or not, as one page that needs no other file.

    It is written whole, to `output` (None: into the run's directory), and that file is returned.
    The solver's plans are those of the `validation` set, an `InstanceSet` that is at hand in a run;
    boards that it lacks are solved.
    """
    run = read_run(run_dir)
    target = RunDirectory(run_dir).report if output is None else output
    if target.is_dir():
        raise UserError(f"{target}: is a folder; the name of a file is needed")
    # A model may write half of a surrogate pair, which no encoding of a file can hold.
    TextFile(target).write(_render(run, validation).encode("utf-8", "replace").decode("utf-8"))
    return target


def _render(run: ReportedRun, validation: Any) -> str:
    template, page = _template(run), _page(run)
    for text_limit in TEXT_LIMITS:
        rest = template.render(page, text_limit=text_limit, answers=None, embedded=NO_ANSWERS)
        room = MOST_BYTES - len(rest.encode("utf-8", "replace")) - _ROOM_FOR_PLAYER
        if room >= ROOM_FOR_ANSWERS:
            break
    embedded = answers_json(run, validation, max(room, 0))
    answers = Markup(embedded.text)  # escaped for where it stands
    contents = {
        name: heading
        for name, (known, heading) in _SECTIONS.items()
        if (answers if known == "answers" else page[known])
    }
    return template.render(
        page, text_limit=text_limit, answers=answers, embedded=embedded, contents=contents
    )


def _template(run: ReportedRun) -> jinja2.Template:
    environment = page_environment(_FOLDER)
    environment.filters |= {
        "cost": _cost,
        "cut": _cut,
        "percent": lambda share: f"{100 * share:.1f}",
        "points": lambda share: f"{100 * share:+.1f}".replace("-", "\N{MINUS SIGN}"),
        "ratio": _ratio,
        "reading": format_reading,
        "called": run.called,
        "changes": _changes,
        "said": _said_of_decision,
    }
    return environment.get_template("report.html.jinja")


def _page(run: ReportedRun) -> dict[str, Any]:
    """What the template shows, but for the answers in the player."""
    answered = [stage for stage in run.stages if stage.episodes]
    failed, solved = shown_episodes(run, answered[-1].episodes if answered else ())
    columns = _configuration_columns(run)
    time_figures, time_colours = figures.time_figure(run)
    pictures = [text for one in (*failed, *solved) for text in one.styles]
    return {
        **page_sources(_FOLDER / "report.css", _FOLDER / "report.js", pictures=pictures),
        "name": run.name,
        "finished": run.finished,
        "run": run,
        "missing": run.missing,
        "config_text": run.config_text,
        "result": _headline(run),
        "facts": _facts(run),
        "reads": _reading_said(run),
        "words": run.words,
        "lake": run.on_the_lake,
        "rate": figures.rate,
        "individual_rate": INDIVIDUAL_RATE,
        "success_rates": SUCCESS_RATES,
        "progress": figures.progress_figures(run),
        "failures": figures.failure_figures(run),
        "rate_colours": figures.rate_colours(run),
        "columns": columns,
        "reviewed": _answers_said(run),
        "configured": in_order(group for column in columns for group in column.values),
        "atlases": figures.atlas_figures(run),
        "shown": run.moment(answered[-1].number) if answered else None,
        "failed": failed,
        "solved": solved,
        "longest_answer": LONGEST_ANSWER,
        "curves": [*figures.warm_start_figures(run), *figures.training_figures(run)],
        "time": time_figures,
        "speed": figures.speed_figures(run),
        "time_colours": time_colours,
        "compact": run.config is not None and run.config.engineer.style == "compact",
        "contents": {},
    }


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


def _reading_said(run: ReportedRun) -> str:
    """Say whether the policy reads its evidence, or why that is not known."""
    measured = [stage for stage in run.stages if stage.reading is not None]
    if measured and (reading := measured[-1].reading) is not None:
        return f"{reading.sentence()} Measured {run.moment(measured[-1].number)}."
    if run.config is None:
        return "Not measured."
    if run.config.engineer.style != "compact":
        return "Not measured: only compact contexts allow it (engineer.style is full)."
    if not run.config.engineer.reading:
        return "Not measured: engineer.reading is 0."
    return "Not measured yet."


def _answers_said(run: ReportedRun) -> str:
    """Count the engineer's answers by what the review made of them; nothing if there are none."""
    kinds = Counter(answer.kind for stage in run.stages for answer in stage.answers)
    if not kinds:
        return ""
    total = kinds.total()
    said = f"The engineer's {f'{total} answers' if total != 1 else 'only answer'}:"
    said += f" {kinds['accepted']} valid as written (shares that sum to 1 included),"
    said += f" {kinds['repaired']} valid after repairs, {kinds['rejected']} refused"
    return f"{said}, {kinds['failed']} never came."


_KINDS_SAID = {
    "accepted": "Its first answer was used as written",
    "repaired": "Its answer was used after repairs",
    "retried": "An answer was refused, and a later one was used",
    "kept": "No answer could be used, so the configuration stayed as it was",
}


def _said_of_decision(decision: DecisionRecord) -> str:
    """Say how a decision came about, in a sentence that ends with what the record says."""
    said = _KINDS_SAID.get(decision.kind, f"Its answer was {decision.kind}")
    if (decision.kind, decision.reason) == ("accepted", "used as written"):
        return f"{said}."
    return f"{said}: {decision.reason.replace('_', ' ')}."


def _valid_rate(run: ReportedRun, stage: ReportedStage) -> dict[str, Any]:
    """The valid rate of one validation over all groups; shares from 0 to 1."""
    total = stage.rates[None]
    shares = figures.rate(total.valid, total.count) or ()
    counts = {"when": run.moment(stage.number), "valid": total.valid, "count": total.count}
    return counts | dict(zip(("share", "low", "high"), shares, strict=True))


def _paired(
    before: Sequence[EpisodeRecord], after: Sequence[EpisodeRecord]
) -> PairedComparison | None:
    """Compare two validations board by board; None unless both answered the very same boards."""
    first, last = ({(one.id, one.lines): one.valid for one in some} for some in (before, after))
    if not first or first.keys() != last.keys():
        return None
    return compare(first.values(), (last[board] for board in first))


@dataclass(frozen=True)
class _Column:
    """One configuration: the stage it is for, how it came about, and what became of it."""

    heading: str
    kind: str
    note: str
    values: KnobValues  # by group and knob


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


@dataclass(frozen=True)
class _KnobChange:
    """A knob that a decision changed, or whose value was repaired in the engineer's answer."""

    group: str
    knob: str
    old: float | None  # None: the group is new
    new: float
    repairs: tuple[Repair, ...]

    @property
    def changed(self) -> bool:
        """Whether the next stage has another value."""
        return self.old != self.new


def _changes(decision: DecisionRecord) -> list[_KnobChange]:
    """Every knob that a decision changed or repaired: those that changed come first."""
    values = {
        f"{group}.{knob}": value
        for group, knobs in decision.configuration.values().items()
        for knob, value in knobs.items()
    }
    ends: dict[str, tuple[float | None, float]] = {
        change.field: (change.old, change.new) for change in decision.diff
    }
    for repair in decision.repairs:
        if repair.field in values:
            ends.setdefault(repair.field, (values[repair.field], values[repair.field]))
    changes = []
    for field, (old, new) in ends.items():
        group, knob = field.rsplit(".", 1)
        repairs = tuple(repair for repair in decision.repairs if repair.field == field)
        changes.append(_KnobChange(group, knob, old, new, repairs))
    return changes


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
            **_where(config),
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


def _where(config: RunConfig) -> dict[str, object]:
    """Say what the run is on."""
    if isinstance(config.environment, OtherEnvironment):
        space = domain_of(config).space
        label = f"{space.group_label}s"
        return {"Environment": config.environment.kind, label.capitalize(): ", ".join(space.groups)}
    return {
        "Agents": config.environment.num_agents,
        "Map sizes": ", ".join(map(str, config.environment.bounds.sizes)),
    }


_COSTS = {
    "training_instances": "training instances in the stage",
    "rehearsed_designs": "designs rehearsed beside them",
    "engineer_tokens": "tokens written by the engineer",
    "probe_instances": "instances trained on in probes",
    "probe_rollouts": "answers drawn in probes",
}


def _cost(spent: Spent) -> str:
    """What a design has cost, in words, without what cost nothing."""
    amounts = {words: getattr(spent, name) for name, words in _COSTS.items()}
    return ", ".join(f"{amount:,} {words}" for words, amount in amounts.items() if amount)


def _cut(text: str | None, limit: int) -> str:
    if text is None:
        return "(no answer)"
    more = f"\n… {len(text) - limit} characters more" if len(text) > limit else ""
    return text[:limit] + more


def _ratio(value: float) -> str:
    """A knob with at least two decimals: enough for the engineer's grid, and exact beyond it."""
    short = f"{value:.2f}"
    return short if float(short) == value else f"{value:.4g}"
