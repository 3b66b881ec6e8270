"""From a run directory to report.html."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2

from training.errors import UserError
from training.report import episodes, figures, tables
from training.report.headline import headline
from training.report.reading import Record, RunFiles, Stage, finite, lookup, read_run
from training.run.directory import write_text

TEMPLATE = "report.html"
_LONGEST_TEXT = 20_000


def build_report(run_dir: Path, output: Path | None = None) -> Path:
    """Write the report of a run, finished or not, as one page that holds everything it needs.

    Args:
        run_dir: the run's directory.
        output: the file to write; None: `report.html` in `run_dir`. It is written whole.

    Returns:
        The file that was written.

    Raises:
        UserError: `run_dir` is no run directory, or `output` can't be written.
    """
    run = read_run(run_dir)
    target = run_dir / "report.html" if output is None else output
    if target.is_dir():
        raise UserError(f"{target}: is a folder; the name of a file is needed")
    # A model may emit half of a surrogate pair, which no encoding of a file can hold.
    page = _render(run).encode("utf-8", "replace").decode("utf-8")
    write_text(target, page)
    return target


def _render(run: RunFiles) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["ratio"] = _ratio
    environment.filters["percent"] = lambda share: f"{100 * share:.1f}"
    return environment.get_template(TEMPLATE).render(**_view(run))


def _view(run: RunFiles) -> dict[str, Any]:
    headings, groups = tables.validation_table(run)
    columns, knob_groups = tables.configuration_table(run)
    shown = next((stage for stage in reversed(run.stages) if stage.episodes), None)
    failed, solved = episodes.shown_episodes(shown.episodes if shown else ())
    time_figures, phases = figures.time_figure(run)
    return {
        "name": str(run.config.get("name") or run.path.resolve().name),
        "result": headline(run),
        "facts": _facts(run),
        "finished": run.finished,
        "missing": run.missing,
        "progress": figures.progress_figures(run),
        "headings": headings,
        "groups": groups,
        "failures": figures.failure_figures(run),
        "failure_colours": figures.FAILURE_COLOURS,
        "rate_colours": figures.RATE_COLOURS,
        "columns": columns,
        "knob_groups": knob_groups,
        "designs": [_design(stage) for stage in run.stages if stage.answers or stage.decision],
        "shown": None if shown is None else figures.moment(shown.number, figures.warm_started(run)),
        "failed": failed,
        "solved": solved,
        "training": figures.training_figures(run),
        "warm_start": figures.warm_start_figures(run),
        "time": time_figures,
        "phases": phases,
        "config_text": run.config_text[:_LONGEST_TEXT],
    }


def _facts(run: RunFiles) -> list[tuple[str, str]]:
    config = run.config
    written = datetime.fromtimestamp(run.last_written, UTC)
    spent = sum(sum(row.values()) for row in figures.seconds_spent(run).values())
    rounds = lookup(config, "stages", "rounds")
    designed = sum(stage.decision is not None for stage in run.stages)
    candidates = [
        ("Model", _model(config)),
        ("Seed", _known(config.get("seed"))),
        ("Agents", _known(lookup(config, "environment", "num_agents"))),
        ("Map sizes", _map_sizes(config)),
        ("Rounds designed", f"{designed} of {rounds}" if rounds is not None else None),
        ("Instances a round", _known(lookup(config, "stages", "instances"))),
        ("Engineer", _known(lookup(config, "engineer", "kind"))),
        ("Measured time", figures.duration(spent) if spent else None),
        ("Last written", f"{written:%Y-%m-%d %H:%M} UTC" if run.last_written else None),
    ]
    return [(name, value) for name, value in candidates if value is not None]


def _model(config: Record) -> str | None:
    pretrained = lookup(config, "model", "pretrained")
    if pretrained:
        return str(pretrained)
    scratch = lookup(config, "model", "scratch")
    if not isinstance(scratch, Mapping):
        return None
    return (
        f"Qwen3 from scratch, {scratch.get('num_hidden_layers')} layers "
        f"of {scratch.get('hidden_size')}"
    )


def _map_sizes(config: Record) -> str | None:
    for keys in (
        ("environment", "bounds", "sizes"),
        ("environment", "sizes"),
        ("validation", "sizes"),
    ):
        sizes = lookup(config, *keys)
        if isinstance(sizes, list | Mapping) and sizes:
            return ", ".join(map(str, sizes))
    return None


def _design(stage: Stage) -> dict[str, Any]:
    decision = stage.decision
    return {
        "stage": stage.number,
        "kind": decision.kind if decision else "open",
        "reason": decision.reason if decision else "",
        "engineer": decision.engineer if decision else "",
        "repairs": decision.repairs if decision else (),
        "notice": stage.notice,
        "cost": _cost(decision.spent) if decision else "",
        "answers": [
            {
                "attempt": answer.get("attempt", rank),
                "kind": str(answer.get("kind") or ""),
                "reason": str(answer.get("reason") or ""),
                "text": _cut(answer.get("text")),
            }
            for rank, answer in enumerate(stage.answers)
        ],
        "context": _cut(stage.context),
    }


_COSTS = {
    "training_instances": "training instances in the round",
    "engineer_tokens": "tokens written by the engineer",
    "probe_instances": "instances trained on in probes",
    "probe_rollouts": "answers drawn in probes",
}


def _cost(spent: Record) -> str:
    """The ledger in words, without what cost nothing."""
    amounts = {words: finite(spent.get(name)) for name, words in _COSTS.items()}
    return ", ".join(f"{amount:,.0f} {words}" for words, amount in amounts.items() if amount)


def _cut(text: object) -> str:
    words = text if isinstance(text, str) else "(no answer)"
    if len(words) <= _LONGEST_TEXT:
        return words
    return f"{words[:_LONGEST_TEXT]}\n… {len(words) - _LONGEST_TEXT} characters more"


def _known(value: object) -> str | None:
    return None if value is None else str(value)


def _ratio(value: object) -> str:
    number = finite(value)
    return str(value) if number is None else f"{number:.4g}"
