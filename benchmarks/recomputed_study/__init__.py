"""Recompute every number of a study's `results.json` independently, from its runs' plain files.

    python -m benchmarks.recomputed_study STUDY_DIR [--results FILE]
    python -m benchmarks.recomputed_study OUTCOMES [OUTCOMES ...] --results FILE

`docs/how_to/studies.md` defines each number; here it is computed the slow way, by the standard
library alone and without any code of the packages. Some parts are taken from `results.json` as they
are: what the study is (`study`), the budget as far as the runs' files do not contain it, the
machines and the seconds of processes. Ends of intervals are drawn again, one board after the other,
and must lie within the range that so many resamples allow; all else must be equal.

Where answers alone are kept (`outcomes.json.gz`), what follows from these is recomputed: all but
plans, designs, reading and ledger.
"""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

from benchmarks.recomputed_study.comparison import Comparison, Object
from benchmarks.recomputed_study.numbers import budget, expected
from benchmarks.recomputed_study.runs import (
    METRICS,
    Run,
    contradictions,
    counts,
    folders,
    read_json,
    read_outcomes,
    read_run,
)

NOT_RECOMPUTED = ("schema", "study", "start", "budget", "machines", "process_seconds", "missing")
"""Parts of `results.json` that are not compared as a whole."""

FROM_OTHER_FILES = ("isr", "designs", "reading", "ledger")
"""Numbers of an engineer and of its runs that don't follow from answers and configurations."""


def disagreements(
    study: Path, results: Path | None = None, *, resamples: int = 4000
) -> tuple[int, list[str]]:
    """Compare a study's `results.json` with what the files of its runs say.

    Args:
        study: The study's directory, which contains `runs/ENGINEER/SEED`.
        results: The file; None: `report/results.json` of the study. Runs that it names as missing
            are left out; if one of them is finished by now, that is a disagreement.
        resamples: Of our own bootstrap. Fewer allow the ends of intervals to lie further apart;
            with fewer than about 800 the outer sides of 95% intervals are not checked at all.

    Returns:
        How many numbers were compared, and one sentence for each that differs. Files of a run that
        contradict each other are among these.

    Raises:
        OSError: A file of a finished run is missing.
        KeyError: A file of a finished run lacks a field.
        ValueError: A file of a finished run is damaged.
    """
    told = read_json(results or study / "report/results.json")
    settings = told["study"]
    comparison = Comparison(resamples, settings["resamples"], settings["confidence"])
    left_out = {(one["engineer"], one["seed"]) for one in told["missing"]}
    runs = []
    for engineer, seed, folder in folders(study, settings):
        finished = (folder / "summary.json").exists()
        if finished == ((engineer, seed) in left_out):
            state = "finished, but named" if finished else "not finished, but not named"
            comparison.found.append(f"missing: {engineer}/{seed} is {state}")
        elif finished:
            runs.append(read_run(engineer, seed, folder))
    if not runs:
        return 0, [*comparison.found, "no run to compare"]
    comparison.tree("study.metrics", settings["metrics"], list(METRICS))
    faults = [fault for run in runs for fault in contradictions(run, runs[0])]
    if faults:
        return comparison.compared, [*comparison.found, *faults]
    for run in runs:
        _compare_tables(comparison, run)
    for name, value in budget(runs, told["budget"]["updates_per_stage"]).items():
        comparison.tree(f"budget.{name}", told["budget"][name], value)
    _compare_whole(comparison, told, expected(settings, runs))
    return comparison.compared, comparison.found


def disagreements_with_answers(
    outcomes: Sequence[Path], results: Path, *, resamples: int = 4000
) -> tuple[int, list[str]]:
    """Compare `results.json` with the answers of its runs alone, in one or several files.

    Runs of the files that `results` does not speak of are left out. What is returned and raised is
    that of `disagreements`.
    """
    told = read_json(results)
    settings = told["study"]
    comparison = Comparison(resamples, settings["resamples"], settings["confidence"])
    kept = {(run.engineer, run.seed): run for run in read_outcomes(outcomes)}
    left_out = {(one["engineer"], one["seed"]) for one in told["missing"]}
    runs = []
    for seed, engineer in product(settings["seeds"], settings["engineers"]):
        if (engineer, seed) in left_out:
            continue
        if (engineer, seed) in kept:
            runs.append(kept[engineer, seed])
        else:
            comparison.found.append(f"{engineer}/{seed}: its answers are in none of the files")
    faults = [fault for run in runs for fault in contradictions(run, runs[0])]
    if comparison.found or faults or not runs:
        return 0, [*comparison.found, *faults] or ["no run to compare"]
    known = {"stages": runs[0].stage_count, "validation_boards": len(runs[0].episodes[0])}
    for name, value in known.items():
        comparison.tree(f"budget.{name}", told["budget"][name], value)
    for engineer in told["engineers"].values():
        for one in (engineer, *engineer["runs"].values()):
            for name in FROM_OTHER_FILES:
                one.pop(name, None)
    _compare_whole(comparison, told, expected(settings, runs))
    return comparison.compared, comparison.found


def _compare_whole(comparison: Comparison, told: Object, whole: Object) -> None:
    given = {name: value for name, value in told.items() if name not in NOT_RECOMPUTED}
    if comparison.keys("results.json", given, whole):
        for name, value in whole.items():
            comparison.tree(name, given[name], value)


def _compare_tables(comparison: Comparison, run: Run) -> None:
    """Compare a run's tables with its episodes, and what it trained on with what was decided."""
    name = f"{run.engineer}/{run.seed}"
    for stage, episodes in enumerate(run.episodes):
        total = read_json(run.folder / f"stages/{stage}/validation.json")["total"]
        sums = counts(episodes, range(len(episodes)))
        told = {key: total[key] for key in sums}
        comparison.tree(f"{name}, stage {stage}, validation.json", told, sums)
    for stage, decision in enumerate(run.decisions[:-1], start=1):
        where = f"{name}, stage {stage + 1}, configuration.json"
        comparison.tree(where, run.configurations[stage], decision["configuration"]["sizes"])
