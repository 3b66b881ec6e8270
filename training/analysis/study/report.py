"""Write the report of a study: `report.html`, `results.json` and `outcomes.json.gz`."""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
from markupsafe import Markup
from pydantic import TypeAdapter

from jaxlake.files import require_inside, require_plain_files, write_bytes_atomic
from training.analysis import INDIVIDUAL_RATE, METRIC_NAMES, RATE_NAMES, SUCCESS_RATES
from training.analysis.pages.charts import legend_key
from training.analysis.pages.document import join_names, page_environment, page_sources
from training.analysis.study import figures
from training.analysis.study.config import Study
from training.analysis.study.directory import StudyDirectory
from training.analysis.study.finished_runs import KINDS, METRICS, FinishedRun, read_study
from training.analysis.study.results import REVIEWS, Results, build_results
from training.errors import UserError
from training.run.progress import console, new_table, print_table
from training.run.records import DecisionRecord
from training.run.typed_files import JsonFile, TextFile

_FOLDER = Path(__file__).parent
_DESIGN_KINDS: tuple[str, ...] = get_args(DecisionRecord.model_fields["kind"].annotation)
_REVIEW_LABELS = dict(
    zip(REVIEWS, ("as written", "repaired", "unchanged", "rejected", "missing"), strict=True)
)
_SECTIONS = {
    "results": "Results",
    "differences": "Differences",
    "learning": "Learning curves",
    "method": "Method",
    "designs": "Designs",
    "mixtures": "Mixtures",
    "seeds": "Seed by seed",
    "failures": "Failures",
    "cost": "Cost",
}


def write_report(study: Study, directory: StudyDirectory, folder: Path | None = None) -> Path:
    """Write the report of the finished runs, and return the path of `report.html`.

    Args:
        study: The study.
        directory: Its files.
        folder: The folder of the report; None: `report` in the study's directory.

    Raises:
        UserError: No run is finished, or the runs can't be compared.
    """
    runs, unfinished_runs = read_study(study, directory)
    if not runs:
        raise UserError(f"{directory.path}: no run is finished, so there is nothing to report")
    results = build_results(study, runs, unfinished_runs)
    if folder is None:
        folder = directory.report
        require_inside(folder, directory.path)
        require_plain_files(folder)
    JsonFile(folder / "results.json", TypeAdapter(Results)).write(results)
    write_outcomes(folder / "outcomes.json.gz", runs)
    page = folder / "report.html"
    TextFile(page).write(render_page(results))
    print_results(results)
    return page


def write_outcomes(path: Path, runs: Sequence[FinishedRun]) -> None:
    """Write the outcomes of all answers of a study as deterministic, compressed JSON.

    `boards` lists the grids of the validation boards. `runs` has one string per run and stage with
    one character per board: an index into the list `kinds` for `kinds`, and 0 or 1 for each metric.
    A run's `configurations` list the knobs of stage 1 and later, by map size.
    """

    def encode_rows(rows: np.ndarray) -> list[str]:
        return ["".join(map(str, row)) for row in rows.astype(int).tolist()]

    content: dict[str, Any] = {
        "boards": [{"grid": list(grid)} for grid in runs[0].boards],
        "kinds": list(KINDS),
        "runs": [
            {
                "engineer": run.engineer,
                "seed": run.seed,
                "kinds": encode_rows(run.kinds),
                **{name: encode_rows(run.scores[i]) for i, name in enumerate(METRICS)},
                "configurations": list(run.configurations),
            }
            for run in runs
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes_atomic(path, gzip.compress(json.dumps(content).encode(), mtime=0))


def print_results(results: Results) -> None:
    """Print each engineer's final valid rate and its difference from the baseline."""
    headings = ("seeds", "[95%]", f"minus {results['study']['compared_with']}", "other seeds only")
    table = new_table("\nValid, per cent", "engineer", *headings)
    for name, arm in results["engineers"].items():
        difference = arm["difference"] and arm["difference"]["valid"]
        cells = ("-", "-")
        if difference:
            cells = (interval_text(difference), over_seeds_text(difference))
        rate = interval_text(arm["rates"]["valid"], signed=False)
        table.add_row(name, f"{len(arm['seeds'])}", rate, *cells)
    print_table(table)
    console.print(describe_differences(results, "valid"), soft_wrap=True)


def render_page(results: Results) -> str:
    """Return the report as HTML."""
    environment = page_environment(_FOLDER)
    environment.filters |= {
        "interval": interval_text,
        "listed": join_names,
        "over_seeds": over_seeds_text,
        "percent": lambda share: f"{100 * share:.1f}",
    }
    engineers, budget, study = results["engineers"], results["budget"], results["study"]
    num_planned = len(study["engineers"]) * len(study["seeds"])
    legend = {
        name: Markup(legend_key(name, index))
        for name, index in figures.engineer_colours(results).items()
        if name in engineers
    }
    return environment.get_template("study.html.jinja").render(
        page_sources(_FOLDER / "study.css"),
        **results,
        name=study["name"],
        finished=not results["missing"],
        contents=_SECTIONS,
        facts={
            "Engineers": ", ".join(study["engineers"]),
            "Baseline": study["baseline"],
            **{
                f"{name} is compared with": baseline
                for name, baseline in study["against"].items()
                if baseline not in (None, study["baseline"])
            },
            "Seeds": ", ".join(map(str, study["seeds"])),
            "Runs finished": f"{num_planned - len(results['missing'])} of {num_planned}",
            "Stages": f"{budget['stages']} of {budget['updates_per_stage']} updates",
            "Training instances per run": f"{budget['training_instances']:,}",
            "Validation boards": f"{budget['validation_boards']:,}",
        },
        verdicts=[describe_differences(results, metric) for metric in METRIC_NAMES],
        metric_names=METRIC_NAMES,
        rate_names=RATE_NAMES,
        individual_rate=INDIVIDUAL_RATE,
        success_rates=SUCCESS_RATES,
        design_kinds=_DESIGN_KINDS,
        review_labels=_REVIEW_LABELS,
        costs=list(next(iter(engineers.values()))["ledger"]),
        legend=legend,
        failure_colours=figures.failure_colours(results),
        difference_figures=figures.difference_figures(results),
        learning_figures=figures.learning_figures(results),
        mixture_figures=figures.mixture_figures(results),
        failure_figures=figures.failure_figures(results),
        other_budgets=[
            f"{name} seed {seed} used {instances:,}"
            for name, arm in engineers.items()
            for seed, run in arm["runs"].items()
            if (instances := run["ledger"]["training_instances"]) != budget["training_instances"]
        ],
    )


def describe_differences(results: Results, metric: str) -> str:
    """Return a sentence that sorts the engineers by the difference of their final rate."""
    baseline, rate = results["study"]["compared_with"], METRIC_NAMES[metric]
    differences = {
        name: arm["difference"][metric]
        for name, arm in results["engineers"].items()
        if arm["difference"]
    }
    if not differences:
        return f"A comparison with {baseline} needs another engineer with a common seed, got none."
    clauses = []
    for label, sign in (("better", 1), ("worse", -1), ("no difference seen", 0)):
        names = [
            f"{name} ({interval_text(difference)})"
            for name, difference in differences.items()
            if difference["beyond"] == sign
        ]
        if names:
            clauses.append(f"{label}: {join_names(names)}")
    return f"Rate of {rate} answers against {baseline}, in points: {'; '.join(clauses)}."


def interval_text(interval: Mapping[str, Any], *, signed: bool = True) -> str:
    """Format a value with its interval, in points or per cent."""
    number_format = "+.1f" if signed else ".1f"
    value, low, high = (
        _format_number(100 * interval[key], number_format) for key in ("value", "low", "high")
    )
    return f"{value} [{low}, {high}]"


def over_seeds_text(difference: Mapping[str, Any]) -> str:
    """Format the interval over seeds only; a dash for a single seed."""
    bounds = [difference["over_seeds"][key] for key in ("low", "high")]
    if None in bounds:
        return "-"
    return f"[{', '.join(_format_number(100 * bound, '+.1f') for bound in bounds)}]"


def _format_number(value: float, number_format: str) -> str:
    text = format(value, number_format)
    return "0.0" if float(text) == 0 else text  # no sign for zero
