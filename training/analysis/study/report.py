"""A study's report: `report.md` with figures beside it, `report.html`, and `results.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from pydantic import TypeAdapter

from training.analysis import INDIVIDUAL_RATE, METRIC_NAMES, RATE_NAMES, SUCCESS_RATES
from training.analysis.study.config import Study
from training.analysis.study.directory import StudyDirectory
from training.analysis.study.figures import StudyFigure, engineer_colours, holes_name, study_figures
from training.analysis.study.outcomes import write_outcomes
from training.analysis.study.page import study_page
from training.analysis.study.reading import read_study
from training.analysis.study.results import Results, build_results
from training.errors import UserError
from training.run.progress import duration
from training.run.typed_files import JsonFile, TextFile

TEMPLATE = "report.md.jinja"

REVIEW_WORDS = {
    "accepted": "as written",
    "repaired": "mended",
    "rejected": "refused",
    "failed": "none came",
}
DESIGN_KINDS = ("accepted", "repaired", "retried", "kept")
COST_NAMES = {
    "training_instances": "training instances",
    "rehearsed_designs": "rehearsed designs",
    "engineer_tokens": "engineer tokens",
    "probe_rollouts": "probe rollouts",
    "probe_instances": "probe instances",
    "design_seconds": "design, seconds",
    "wall_seconds": "measured, seconds",
}
_RATES = {
    "valid": "rate of valid answers",
    "optimal_sum_of_costs": "rate of optimal sums of costs",
    "optimal_makespan": "rate of optimal makespans",
}


def write_report(study: Study, directory: StudyDirectory, folder: Path | None = None) -> Path:
    """Report on the runs that are finished, and return the path of `report.md`.

    It goes to the folder `report` in the study's directory, or to another one.
    """
    runs, unfinished = read_study(study, directory)
    if not runs:
        raise UserError(f"{directory.path}: no run is finished, there is nothing to report")
    machines, seconds = directory.machines.read(), directory.seconds_by_process
    results = build_results(study, runs, unfinished, machines, seconds)
    figures = study_figures(results)
    folder = folder or directory.report
    for figure in figures.values():
        TextFile(folder / figure.file).write(figure.svg)
    JsonFile(folder / "results.json", TypeAdapter(Results)).write(results)
    write_outcomes(folder / "outcomes.json.gz", runs)
    text = markdown(results, figures)
    TextFile(folder / "report.md").write(text)
    page = study_page(
        results["study"]["name"],
        text,
        list(figures.values()),
        colours=engineer_colours(results),
        facts=_facts(results),
        finished=not results["missing"],
    )
    TextFile(folder / "report.html").write(page)
    return folder / "report.md"


def markdown(results: Results, figures: Mapping[str, StudyFigure]) -> str:
    """The whole text of `report.md`, with `figures` as `study_figures` names them."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "counted": lambda number, word: f"{number} {word}" if number == 1 else f"{number} {word}s",
        "difference": _difference,
        "duration": duration,
        "holes": holes_name,
        "listed": _listed,
    }
    engineers, budget = results["engineers"], results["budget"]["training_instances"]
    return environment.get_template(TEMPLATE).render(
        **results,
        figures=figures,
        verdicts=verdicts(results),
        metric_names=METRIC_NAMES,
        rate_names=RATE_NAMES,
        individual_rate=INDIVIDUAL_RATE,
        success_rates=SUCCESS_RATES,
        cost_names=COST_NAMES,
        design_kinds=DESIGN_KINDS,
        review_words=REVIEW_WORDS,
        runs_planned=_runs_planned(results),
        reading=reading_sentences(results),
        same_start=len({str(one["mixture"][0]) for one in engineers.values()}) == 1,
        missing_runs=[
            f"{one['engineer']} seed {one['seed']} ({one['reason']})" for one in results["missing"]
        ],
        other_budgets=[
            f"{name} seed {seed} used {used:,}"
            for name, one in engineers.items()
            for seed, run in one["runs"].items()
            if (used := run["ledger"]["training_instances"]) != budget
        ],
        worst_slices={
            name: one["worst_slice"] for name, one in engineers.items() if one["worst_slice"]
        },
    )


def _runs_planned(results: Results) -> int:
    return len(results["study"]["engineers"]) * len(results["study"]["seeds"])


def _facts(results: Results) -> dict[str, object]:
    """What stands at the top of the page."""
    study, budget, planned = results["study"], results["budget"], _runs_planned(results)
    seconds = sum(results["process_seconds"].values())
    return {
        "Engineers": ", ".join(study["engineers"]),
        "Baseline": study["baseline"],
        "Seeds": ", ".join(map(str, study["seeds"])),
        "Runs finished": f"{planned - len(results['missing'])} of {planned}",
        "Stages": f"{budget['stages']} of {budget['updates_per_stage']} updates",
        "Training instances per run": f"{budget['training_instances']:,}",
        "Validation boards": f"{budget['validation_boards']:,}",
        **({"Time of all processes": duration(seconds)} if seconds else {}),
    }


def verdicts(results: Results) -> list[str]:
    """One sentence per metric: whose final rate differs from the baseline's beyond its interval."""
    baseline, engineers = results["study"]["baseline"], results["engineers"]
    compared = {name: one["difference"] for name, one in engineers.items() if one["difference"]}
    if not compared:
        why = f"no run of the baseline {baseline} is finished"
        if baseline in engineers:
            why = f"no other engineer has a finished run of a seed that {baseline} has"
        return [f"Nothing can be compared: {why}."]
    return [
        _verdict(rate, baseline, {name: one[metric] for name, one in compared.items()})
        for metric, rate in _RATES.items()
    ]


def reading_sentences(results: Results) -> list[str]:
    """Say of each engineer's runs whether the policy reads its evidence after the last stage."""
    unmeasured = [
        name for name, one in results["engineers"].items() if not one["reading"]["measured"]
    ]
    sentences = []
    for name, one in results["engineers"].items():
        found = one["reading"]
        if not found["measured"]:
            continue
        if (least := found["least"]) is None:
            sentences.append(f"{name}: no swap changes the rule's edits, so that it can't be told.")
            continue
        runs = f"{found['reads']} of {found['measured']} runs"
        verdict = "it reads" if found["reads"] == found["measured"] else "it does not always read"
        sentences.append(
            f"{name}: {verdict} ({runs}); the fact that it follows least is {least['fact']}, with"
            f" {least['flips']:.1%} of the rule's edits (seed {least['seed']})."
        )
    if unmeasured:
        sentences.append(f"Not measured, for `engineer.reading` is 0: {_listed(unmeasured)}.")
    return sentences


def _verdict(rate: str, baseline: str, differences: Mapping[str, Any]) -> str:
    clauses = []
    for word, beyond in (("better", 1), ("worse", -1)):
        found = {name: one for name, one in differences.items() if one["beyond"] == beyond}
        if found:
            names = _listed([f"{name} ({_difference(one)})" for name, one in found.items()])
            clauses.append(f"{word} than {baseline} beyond the interval, in points: {names}")
    same = [name for name, one in differences.items() if one["beyond"] == 0]
    if not clauses:
        return (
            f"In the {rate}, no difference to {baseline} was seen: "
            f"{'each interval' if len(same) > 1 else 'the interval'} of {_listed(same)} contains 0."
        )
    if same:
        clauses.append(f"no difference seen: {_listed(same)}")
    return f"In the {rate}, {'; '.join(clauses)}."


def _difference(interval: Mapping[str, float]) -> str:
    value, low, high = (_signed(100 * interval[key]) for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def _signed(points: float) -> str:
    words = f"{points:+.1f}"
    return "0.0" if float(words) == 0 else words


def _listed(names: Sequence[object]) -> str:
    *others, last = map(str, names)
    return f"{', '.join(others)} and {last}" if others else last
