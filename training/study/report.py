"""A study's report: `report.md` with figures beside it, and `results.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from training.errors import UserError
from training.report.figures import duration
from training.run.directory import write_json, write_text
from training.study.config import Study
from training.study.directory import WARM_START, StudyDirectory
from training.study.figures import METRIC_NAMES, Figure, figures
from training.study.measures import holes_name
from training.study.reading import read_study
from training.study.results import Results, build_results

_NONE = "–"  # noqa: RUF001
_RATES = {
    "valid": "rate of valid answers",
    "optimal_sum_of_costs": "rate of optimal sums of costs",
    "optimal_makespan": "rate of optimal makespans",
}


def write_report(study: Study, directory: StudyDirectory, folder: Path | None = None) -> Path:
    """Write the report of the runs that are finished.

    Args:
        study: what was run.
        directory: its files.
        folder: where to; None: `report` in the study's directory.

    Returns:
        `report.md`.

    Raises:
        UserError: no run is finished, or a run's files are not as they must be.
    """
    runs, missing = read_study(study, directory)
    if not runs:
        raise UserError(f"{directory.path}: no run is finished, there is nothing to report")
    results = build_results(
        study, runs, missing, directory.machines.read(), directory.seconds_by_process
    )
    drawn = figures(results)
    folder = folder or directory.report
    for figure in drawn:
        write_text(folder / figure.file, figure.svg)
    write_json(folder / "results.json", results)
    write_text(folder / "report.md", markdown(results, drawn))
    return folder / "report.md"


def markdown(results: Results, drawn: Sequence[Figure]) -> str:
    """The whole text of `report.md`."""
    verdict, *others = verdicts(results)
    parts = [
        f"# Study {results['study']['name']}",
        *_what_was_run(results),
        "## What came out",
        f"**{verdict}**",
        " ".join(others),
        _caution(results),
        _table(results),
        _reading(results),
        "## What it cost",
        _ledger_table(results),
        _hardware(results),
        "## What the engineers did",
        _designs_table(results),
        "## Seed by seed",
        _seed_table(results),
        "## Worst slices",
        *_worst_slices(results),
        *(f"## {one.heading}\n\n![{one.heading}]({one.file})\n\n{one.caption}" for one in drawn),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def verdicts(results: Results) -> list[str]:
    """A sentence a metric: whose final rate differs from the baseline's beyond its interval."""
    baseline = results["study"]["baseline"]
    compared = {
        name: one["difference"]
        for name, one in results["engineers"].items()
        if one["difference"] is not None
    }
    if not compared:
        return [f"Nothing can be compared: {_why_not_compared(results)}."]
    return [
        _verdict(rate, baseline, {n: d[metric] for n, d in compared.items()})
        for metric, rate in _RATES.items()
    ]


def _why_not_compared(results: Results) -> str:
    baseline = results["study"]["baseline"]
    if baseline not in results["engineers"]:
        return f"no run of the baseline {baseline} is finished"
    return f"no other engineer has a finished run of a seed that {baseline} has"


def _verdict(rate: str, baseline: str, differences: Mapping[str, Any]) -> str:
    def named(beyond: int) -> list[str]:
        return [
            f"{name} ({_difference(one)})"
            for name, one in differences.items()
            if one["beyond"] == beyond
        ]

    higher, lower = named(1), named(-1)
    same = [name for name, one in differences.items() if one["beyond"] == 0]
    if not higher and not lower:
        return (
            f"In the {rate}, no difference to {baseline} was seen: "
            f"{'each interval' if len(same) > 1 else 'the interval'} of {_listed(same)} holds 0."
        )
    clauses = []
    if higher:
        clauses.append(f"better than {baseline} beyond the interval, in points: {_listed(higher)}")
    if lower:
        clauses.append(f"worse than {baseline} beyond the interval, in points: {_listed(lower)}")
    if same:
        clauses.append(f"no difference seen: {_listed(same)}")
    return f"In the {rate}, {'; '.join(clauses)}."


def _caution(results: Results) -> str:
    comparisons = results["comparisons"]
    if not comparisons["count"]:
        return ""
    return (
        f"These are {comparisons['count']} comparisons, and each interval is for its own: if no "
        f"engineer made any difference, {_by_chance(comparisons)} of {comparisons['count']} such "
        f"intervals would leave 0 out by chance. {_seed_caution(len(results['study']['seeds']))}"
    ).strip()


def _by_chance(comparisons: Mapping[str, Any]) -> str:
    least, most = (f"{comparisons['expected_by_chance'][end]:.1f}" for end in ("least", "most"))
    return f"about {most}" if least == most else f"{least} to {most}"


def _seed_caution(seeds: int) -> str:
    if seeds == 1:
        return "With one seed the intervals say nothing of how another seed would have come out."
    if seeds < 10:
        return (
            f"With {seeds} seeds, how much seeds differ is itself known badly, which the intervals "
            "can't show: the further seeds lie apart, the more of them (docs/studies.md)."
        )
    return ""


def _what_was_run(results: Results) -> list[str]:
    study, budget, missing = results["study"], results["budget"], results["missing"]
    planned = len(study["engineers"]) * len(study["seeds"])
    start = results["warm_start"]["rates"]["valid"]
    parts = [
        f"{_counted(len(study['engineers']), 'engineer')} ({_listed(list(study['engineers']))}), "
        f"{_counted(len(study['seeds']), 'seed')} ({_listed(list(map(str, study['seeds'])))}), "
        f"the baseline is {study['baseline']}. Every run starts from one shared warm start "
        f"({_start(start)}) and has the same budget: "
        f"{_counted(budget['rounds'], 'round')} of {budget['updates_a_round']} updates with "
        f"{budget['prompts_an_update']} boards x {budget['completions_a_prompt']} answers each, "
        f"{budget['training_instances']:,} training instances in all. After each round the same "
        f"{budget['validation_boards']:,} validation boards are answered once, at temperature "
        f"{budget['validation_temperature']:g}. {_first_round(budget['rounds'])}",
        "Engineers: "
        + "; ".join(
            f"{name}: `{' '.join(overrides)}`" if overrides else f"{name}: as the base says"
            for name, overrides in study["engineers"].items()
        )
        + ".",
    ]
    if other := _other_budgets(results):
        parts.append(
            f"**Not every run used the budget of {budget['training_instances']:,} training "
            f"instances**: {_listed(other)}."
        )
    if missing:
        gone = [f"{one['engineer']} seed {one['seed']} ({one['reason']})" for one in missing]
        parts.append(
            f"{planned - len(missing)} of {planned} runs are finished. Missing: {_listed(gone)}."
        )
    return parts


def _start(rate: Mapping[str, float]) -> str:
    low, high = (f"{100 * rate[key]:.1f}" for key in ("low", "high"))
    mean = f"{100 * rate['mean']:.1f}% valid"
    return mean if low == high else f"{mean}; the runs measured {low}% to {high}%"


def _first_round(rounds: int) -> str:
    """What an engineer has had a hand in."""
    if rounds == 1:
        return "The one round is the same for every engineer: what they design is never trained on."
    return (
        "The first round is the same for every engineer, and what they design after the last is "
        f"not trained on: {_counted(rounds - 1, 'round')} of {rounds} can tell them apart."
    )


def _other_budgets(results: Results) -> list[str]:
    budget = results["budget"]["training_instances"]
    return [
        f"{name} seed {seed} used {used:,}"
        for name, one in results["engineers"].items()
        for seed, run in one["runs"].items()
        if (used := run["ledger"]["training_instances"]) != budget
    ]


def _hardware(results: Results) -> str:
    machines = [
        f"{one['processor']} ({_counted(one['cores'], 'core')}, {one['system']}), Python "
        f"{one['python']}, {', '.join(' '.join(package) for package in one['packages'].items())}"
        for one in results["machines"]
    ]
    where = f"Run on {'; then on '.join(machines)}. " if machines else ""
    took = results["process_seconds"]
    whole = ""
    if took:
        warm = f", the warm start {duration(took[WARM_START])} of it" if WARM_START in took else ""
        whole = f"All processes from start to end took {duration(sum(took.values()))}{warm}. "
    return (
        f"{where}{whole}Seconds are wall-clock, and whatever else the machine did is in them. "
        "Those of the table hold compiling, which the first runs pay for all: programs are kept "
        "between runs. They hold neither the warm start nor the start of a process nor the drawing "
        "of boards, nor work that was lost when a run was stopped."
    )


def _designs_table(results: Results) -> str:
    kinds = ("accepted", "repaired", "retried", "kept")
    rows = [
        [
            name,
            str(one["designs"]["trained_on"]),
            *(str(one["designs"]["by_kind"].get(kind, 0)) for kind in kinds),
            str(one["designs"]["rolled_back"]),
        ]
        for name, one in results["engineers"].items()
    ]
    return (
        "Designs that were trained on, all seeds together, by what became of the engineer's "
        "answers: taken as they were, mended, taken after one was refused, or none usable, so that "
        "the last configuration was kept. Rolled back: rounds before them after which the valid "
        "rate fell by more than its noise.\n\n"
    ) + _markdown_table(["engineer", "designs", *kinds, "rolled back"], rows)


def _table(results: Results) -> str:
    baseline = results["study"]["baseline"]
    heads = ["engineer", "seeds"]
    for words in METRIC_NAMES.values():
        heads += [f"{words}, %", f"{words} less {baseline}, points"]
    heads += ["engineer tokens", "seconds"]
    rows = []
    for name, one in results["engineers"].items():
        cells = [name, str(len(one["seeds"]))]
        for metric in METRIC_NAMES:
            cells.append(_rate(one["rates"][metric]))
            difference = one["difference"]
            cells.append(_NONE if difference is None else _difference(difference[metric]))
        ledger = one["ledger"]
        cells += [
            f"{ledger['engineer_tokens']['mean']:,.0f}",
            f"{ledger['wall_seconds']['mean']:,.0f}",
        ]
        rows.append(cells)
    return _markdown_table(heads, rows)


def _reading(results: Results) -> str:
    study = results["study"]
    return (
        "Rates are those after the last round, over all seeds and validation boards; in brackets "
        f"{100 * study['confidence']:g}% bootstrap intervals ({study['resamples']:,} resamples of "
        "seeds, and of the boards that all of them answer). Differences are paired by seed and "
        "board. Tokens and seconds are a run's, mean over seeds. `docs/studies.md` defines every "
        "number; `results.json` holds all of them."
    )


def _ledger_table(results: Results) -> str:
    names = {
        "training_instances": "training instances",
        "engineer_tokens": "engineer tokens",
        "probe_rollouts": "probe rollouts",
        "probe_instances": "probe instances",
        "design_seconds": "design, seconds",
        "wall_seconds": "measured, seconds",
    }
    rows = [
        [name, *(_ledger_cell(one["ledger"][key]) for key in names)]
        for name, one in results["engineers"].items()
    ]
    return _markdown_table(["a run of", *names.values()], rows)


def _ledger_cell(spread: Mapping[str, float]) -> str:
    digits = 1 if 0 < spread["mean"] < 100 else 0
    mean, low, high = (f"{spread[key]:,.{digits}f}" for key in ("mean", "low", "high"))
    return mean if low == high else f"{mean} ({low} to {high})"


def _seed_table(results: Results) -> str:
    seeds = [str(seed) for seed in results["study"]["seeds"]]
    rows = []
    for name, one in results["engineers"].items():
        cells = [name]
        for seed in seeds:
            run = one["runs"].get(seed)
            last = run and run["stages"][-1]
            cells.append(f"{100 * last['valid'] / last['count']:.1f}" if last else _NONE)
        rows.append(cells)
    return "Final valid rate, per cent.\n\n" + _markdown_table(
        ["engineer", *(f"seed {seed}" for seed in seeds)], rows
    )


def _worst_slices(results: Results) -> list[str]:
    least = results["study"]["slice_boards"]
    rows = [
        [
            name,
            f"{worst['size']}x{worst['size']}, holes {holes_name(worst['hole_tenth'])}, "
            + ("wait needed" if worst["needs_wait"] else "no wait needed"),
            str(worst["count"]),
            f"{100 * worst['valid']['mean']:.1f}",
            f"{100 * worst['valid']['low']:.1f} to {100 * worst['valid']['high']:.1f}",
        ]
        for name, one in results["engineers"].items()
        if (worst := one["worst_cell"]) is not None
    ]
    if not rows:
        return [f"No cell has {least} boards."]
    return [
        f"The cell of the lowest final valid rate among those of at least {least} boards. It is "
        "picked by the rate that is shown, which is therefore too low on average.",
        _markdown_table(["engineer", "cell", "boards", "valid, %", "range over seeds"], rows),
    ]


def _rate(interval: Mapping[str, float]) -> str:
    return (
        f"{100 * interval['value']:.1f} [{100 * interval['low']:.1f}, {100 * interval['high']:.1f}]"
    )


def _difference(interval: Mapping[str, float]) -> str:
    value, low, high = (_signed(100 * interval[key]) for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def _signed(points: float) -> str:
    words = f"{points:+.1f}"
    return "0.0" if float(words) == 0 else words


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
