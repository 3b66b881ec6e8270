"""From a run directory to report.html."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
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
from jaxlake.paired import PairedComparison, compare
from jaxlake.render import FAILURES, episode_svg
from training.analysis.report import figures
from training.analysis.report.answers import answers_json
from training.analysis.report.reading import ReportedRun, ReportedStage, in_order, read_run
from training.errors import UserError
from training.run.directory import RunDirectory
from training.run.progress import duration
from training.run.records import AnyEpisode, DecisionRecord, EpisodeRecord
from training.run.typed_files import TextFile
from training.schema import RunConfig
from training.schema.environment_sections import OtherEnvironment

TEMPLATE, SCRIPT = "report.html", "report.js"
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

EPISODES_SHOWN = 6  # of the failed ones, and of the solved ones
GALLERY_CELL, GALLERY_BOARD = 44, 170  # least pixels: all text on a board has 11 or more
LONGEST_PLAN = 60
LONGEST_ANSWER, LONGEST_TEXT = 1500, 20_000  # characters


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
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "breakable": _breakable,
        "cost": _cost,
        "cut": _cut,
        "percent": lambda share: f"{100 * share:.1f}",
        "points": lambda share: f"{100 * share:+.1f}".replace("-", "\N{MINUS SIGN}"),
        "picture": _picture,
        "ratio": _ratio,
        "reading": format_reading,
        "called": run.called,
        "changes": _changes,
    }
    answered = [stage for stage in run.stages if stage.episodes]
    failed, solved = _shown_episodes(run, answered[-1].episodes if answered else ())
    columns = _configuration_columns(run)
    time_figures, time_colours = figures.time_figure(run)
    script = (Path(__file__).parent / SCRIPT).read_text(encoding="utf-8")
    embedded, left_out = answers_json(run, validation)
    page = {
        "run": run,
        "missing": run.missing,
        "config_text": run.config_text,
        "answers": Markup(embedded),  # escaped for where it stands
        "answers_left_out": left_out,
        "script": Markup(script),
        "script_hash": Markup(_hash_source(script)),
        "result": _headline(run),
        "facts": _facts(run),
        "reads": _reading_said(run),
        "words": run.words,
        "lake": run.on_the_lake,
        "rate": figures.rate,
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
        "time_colours": time_colours,
        "compact": run.config is not None and run.config.engineer.style == "compact",
    }
    contents = {name: heading for name, (known, heading) in _SECTIONS.items() if page[known]}
    return environment.get_template(TEMPLATE).render(page, contents=contents)


def _hash_source(script: str) -> str:
    """Return how a content security policy names a script: `sha256-` and its hash in base 64."""
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


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
        return "Whether the policy reads its evidence was not measured."
    if run.config.engineer.style != "compact":
        return "Whether the policy reads can be measured in compact contexts alone."
    if not run.config.engineer.reading:
        return "Whether the policy reads was not measured: engineer.reading is 0."
    return "Whether the policy reads has not been measured yet."


def _answers_said(run: ReportedRun) -> str:
    """Count the engineer's answers by what the review made of them; nothing if there are none."""
    kinds = Counter(answer.kind for stage in run.stages for answer in stage.answers)
    if not kinds:
        return ""
    said = f"Of {kinds.total()} answers {kinds['accepted']} were valid as written"
    said += f" (sums included), {kinds['repaired']} once mended, {kinds['rejected']} were refused"
    return f"{said} and {kinds['failed']} did not come."


def _valid_rate(run: ReportedRun, stage: ReportedStage) -> dict[str, Any]:
    """The valid rate of one validation over all groups; shares from 0 to 1."""
    total = stage.rates[None]
    shares = figures.rate(total.valid, total.count) or ()
    counts = {"when": run.moment(stage.number), "valid": total.valid, "count": total.count}
    return counts | dict(zip(("share", "low", "high"), shares, strict=True))


def _paired(before: Sequence[AnyEpisode], after: Sequence[AnyEpisode]) -> PairedComparison | None:
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
        space = config.domain.space
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


def _breakable(value: object) -> Markup:
    """Let a long name break after its punctuation, and not within a word."""
    return Markup("<wbr>").join(re.split(r"(?<=[._:/])(?=\w)", str(value)))


def _cut(text: str | None) -> str:
    if text is None:
        return "(no answer)"
    more = f"\n… {len(text) - LONGEST_TEXT} characters more" if len(text) > LONGEST_TEXT else ""
    return text[:LONGEST_TEXT] + more


def _ratio(value: float) -> str:
    """A knob with at least two decimals: enough for the engineer's grid, and exact beyond it."""
    short = f"{value:.2f}"
    return short if float(short) == value else f"{value:.4g}"


def _shown_episodes(
    run: ReportedRun,
    episodes: Sequence[AnyEpisode],
) -> tuple[list[AnyEpisode], list[AnyEpisode]]:
    """Choose some failed and some solved episodes, by rule and not by eye.

    Failed: the kinds of failure take turns in the verifier's order, each giving its first episode
    in the file, then its second. Solved: boards that need a wait come first; map sizes take turns
    from the largest, and groups of other environments from the last.
    """
    order = FAILURES if run.on_the_lake else tuple(run.words.failures)
    kinds = {kind: rank for rank, kind in enumerate(order)}
    groups = {group: rank for rank, group in enumerate(run.groups)}
    failed = _take_turns(
        (one for one in episodes if not one.valid),
        lambda one: kinds.get(one.failure or "", len(kinds)),
    )
    solved = _take_turns(
        (one for one in episodes if one.valid), lambda one: -groups.get(one.group, 0)
    )
    solved.sort(key=lambda one: not (isinstance(one, EpisodeRecord) and one.needs_wait))
    return failed[:EPISODES_SHOWN], solved[:EPISODES_SHOWN]


def _picture(episode: AnyEpisode) -> tuple[Markup | None, str]:
    """Draw an episode; the second value says why it is not drawn or not played.

    Instances of other environments than the lake are shown in their lines.
    """
    if not isinstance(episode, EpisodeRecord):
        return Markup("<pre>{}</pre>").format("\n".join(episode.lines)), ""
    plan, problem = episode.plan, ""
    if plan is not None and max(map(len, plan), default=0) > LONGEST_PLAN:
        plan, problem = None, f"The plan has more than {LONGEST_PLAN} steps and is not played."
    try:
        svg = episode_svg(
            episode.grid,
            plan,
            failure=episode.failure,
            failure_agent=episode.agent,
            failure_time=episode.time,
            cell=max(GALLERY_CELL, GALLERY_BOARD / max(len(episode.grid), 1)),
        )
    except ValueError as error:
        return None, f"It can't be drawn: {error}"
    return Markup(svg), problem


def _take_turns(
    episodes: Iterable[AnyEpisode], turn: Callable[[AnyEpisode], int]
) -> list[AnyEpisode]:
    """The first of each group in the order of their turns, then the second of each, and so on."""
    groups: dict[int, list[AnyEpisode]] = {}
    for one in episodes:
        groups.setdefault(turn(one), []).append(one)
    ranked = [(rank, key, one) for key, group in groups.items() for rank, one in enumerate(group)]
    return [one for _, _, one in sorted(ranked, key=lambda entry: entry[:2])]
