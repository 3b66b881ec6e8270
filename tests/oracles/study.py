"""A study's `results.json` worked out a second time, from its runs' plain files.

    python tests/oracles/study.py STUDY_DIR [--results FILE]

`docs/studies.md` defines each number; here it is computed the slow way, by the standard library
alone. Taken from `results.json` as they are: what the study is (`study`), the budget where the
runs' files don't tell it, the machines and the seconds of processes. Ends of intervals are drawn
again, one board after the other, and have to lie where that many resamples let them lie; all else
has to be the same.
"""

import argparse
import json
import math
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

METRICS = ("valid", "optimal_sum_of_costs", "optimal_makespan")
SPENT = ("engineer_tokens", "probe_rollouts", "probe_instances")
APART = ("schema", "study", "budget", "machines", "process_seconds", "missing")
"""Parts that are not compared as a whole."""

DOCUMENTATION = Path(__file__).parents[2] / "docs/studies.md"

STANDARD_ERRORS = 4
"""How far apart two bootstraps' shares of resamples below an end may be."""

Object = dict[str, Any]
Key = tuple[int, int, bool]
Cells = dict[Key, list[int]]


@dataclass(frozen=True)
class Run:
    """One finished run. Stage 0 is the warm start, it has episodes only."""

    engineer: str
    seed: int
    folder: Path
    episodes: list[list[Object]]  # by stage, then board
    configurations: list[Object]  # of stages 1..R, by size
    decisions: list[Object]  # of stages 1..R
    prompts: int  # of one update

    @property
    def rounds(self) -> int:
        """R."""
        return len(self.configurations)

    def rows(self, metric: str) -> list[int]:
        """Board by board, after the last round."""
        return [int(one[metric]) for one in self.episodes[-1]]


@dataclass(frozen=True)
class Resampled:
    """What an interval is of: a row a seed, a column a board."""

    rows: list[list[int]]


@dataclass
class Comparison:
    """Counts what is compared and says in words what differs."""

    resamples: int  # ours
    theirs: int
    confidence: float
    compared: int = 0
    found: list[str] = field(default_factory=list)

    def tree(self, where: str, told: Any, expected: Any) -> None:
        """Compare JSON values down to their leaves; `expected` may hold `Resampled` ones."""
        if isinstance(expected, Resampled):
            self._interval(where, told, expected.rows)
        elif isinstance(expected, dict):
            if self.keys(where, told, expected):
                for key, value in expected.items():
                    self.tree(f"{where}.{key}", told[key], value)
        elif isinstance(expected, list):
            if not isinstance(told, list) or len(told) != len(expected):
                self.found.append(f"{where}: {told!r}, {len(expected)} entries are right")
                return
            for place, (one, other) in enumerate(zip(told, expected, strict=True)):
                self.tree(f"{where}[{place}]", one, other)
        else:
            self._leaf(where, told, expected)

    def keys(self, where: str, told: Any, expected: Object) -> bool:
        """Whether both have the same keys."""
        if isinstance(told, dict) and set(told) == set(expected):
            return True
        keys = sorted(told) if isinstance(told, dict) else told
        self.found.append(f"{where}: {keys!r}, the keys {sorted(expected)} are right")
        return False

    def _leaf(self, where: str, told: Any, expected: Any) -> None:
        if isinstance(expected, float):
            self.compared += 1
            number = isinstance(told, int | float) and not isinstance(told, bool)
            same = number and math.isclose(told, expected, rel_tol=1e-9, abs_tol=1e-9)
        else:
            self.compared += isinstance(expected, int) and not isinstance(expected, bool)
            same = told == expected and isinstance(told, bool) == isinstance(expected, bool)
        if not same:
            self.found.append(f"{where}: {told!r}, {expected!r} is right")

    def _interval(self, where: str, told: Any, rows: list[list[int]]) -> None:
        """Value and `beyond` exactly, the ends by a bootstrap of our own.

        An end may lie between those of our quantiles that are four standard errors of a share
        below and above its own, and one step of the lattice that the means lie on further out.
        """
        if not self.keys(where, told, dict.fromkeys(("value", "low", "high", "beyond"))):
            return
        self._leaf(f"{where}.value", told["value"], mean([x for row in rows for x in row]))
        beyond = int(told["low"] > 0) - int(told["high"] < 0)
        self._leaf(f"{where}.beyond", told["beyond"], beyond)
        means = resampled_means(rows, self.resamples, random.Random(where))
        step = 1 / (len(rows) * len(rows[0])) + 1e-9
        for end, sign in (("low", -1), ("high", 1)):
            self.compared += 1
            share = (1 + sign * self.confidence) / 2
            variance = share * (1 - share) * (1 / self.resamples + 1 / self.theirs)
            slack = STANDARD_ERRORS * math.sqrt(variance)
            least = quantile(means, share - slack) - step
            most = quantile(means, share + slack) + step
            if not least <= told[end] <= most:
                right = f"between {least:.5f} and {most:.5f} is right"
                self.found.append(f"{where}.{end}: {told[end]!r}, {right}")


def disagreements(
    study: Path, results: Path | None = None, *, resamples: int = 4000
) -> tuple[int, list[str]]:
    """Compare what a study's `results.json` tells with what the files of its runs say.

    Args:
        study: the study's directory, which holds `runs/ENGINEER/SEED`.
        results: the file; None: `report/results.json` of the study. Runs that it leaves out as
            not finished don't count; if they are finished by now, that is a disagreement.
        resamples: of our own bootstrap. Fewer leave more room for the ends of intervals, with
            fewer than about 800 the outer sides of 95% intervals go unchecked.

    Returns:
        How many numbers were compared, and those that differ, in words. Files of a run that
        contradict each other are among them.

    Raises:
        OSError, KeyError, ValueError: a file of a finished run is missing or is not what it was.
    """
    told = _json(results or study / "report/results.json")
    settings = told["study"]
    comparison = Comparison(resamples, settings["resamples"], settings["confidence"])
    left_out = {(one["engineer"], one["seed"]) for one in told["missing"]}
    runs = []
    for engineer, seed, folder in _folders(study, settings):
        finished = (folder / "summary.json").exists()
        if finished == ((engineer, seed) in left_out):
            state = "finished, but left out" if finished else "not finished, but not left out"
            comparison.found.append(f"missing: {engineer}/{seed} is {state}")
        elif finished:
            runs.append(_read_run(engineer, seed, folder))
    if not runs:
        return 0, [*comparison.found, "no run to compare"]
    comparison.tree("study.metrics", settings["metrics"], list(METRICS))
    faults = [fault for run in runs for fault in _contradictions(run, runs[0])]
    if faults:
        return comparison.compared, [*comparison.found, *faults]
    for run in runs:
        _compare_tables(comparison, run)
    expected = _expected(settings, runs)
    for name, value in _budget(runs, told["budget"]["updates_a_round"]).items():
        comparison.tree(f"budget.{name}", told["budget"][name], value)
    given = {name: value for name, value in told.items() if name not in APART}
    if comparison.keys("results.json", given, expected):
        for name, value in expected.items():
            comparison.tree(name, given[name], value)
    return comparison.compared, comparison.found


def mean(values: Sequence[float]) -> float:
    """The mean, rounded once."""
    return math.fsum(values) / len(values)


def spread(values: Sequence[float]) -> Object:
    """Of one value a seed."""
    return {"mean": mean(values), "low": float(min(values)), "high": float(max(values))}


def quantile(ordered: Sequence[float], share: float) -> float:
    """Linear between order statistics; without end where no such share exists."""
    if not 0 <= share <= 1:
        return math.copysign(math.inf, share)
    place = share * (len(ordered) - 1)
    before = int(place)
    after = min(before + 1, len(ordered) - 1)
    return ordered[before] + (place - before) * (ordered[after] - ordered[before])


def resampled_means(rows: list[list[int]], resamples: int, rng: random.Random) -> list[float]:
    """Means of resampled seeds that all answer the same resampled boards; in ascending order."""
    boards = len(rows[0])
    means = []
    for _ in range(resamples):
        seeds = rng.choices(rows, k=len(rows))
        by_board = [sum(answers) for answers in zip(*seeds, strict=True)]
        means.append(sum(rng.choices(by_board, k=boards)) / (len(rows) * boards))
    return sorted(means)


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _json_lines(path: Path) -> list[Object]:
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def _folders(study: Path, settings: Object) -> Iterator[tuple[str, int, Path]]:
    """(engineer, seed, directory) of all runs, seeds outermost."""
    for seed in settings["seeds"]:
        for engineer in settings["engineers"]:
            yield engineer, seed, study / "runs" / engineer / str(seed)


def _read_run(engineer: str, seed: int, folder: Path) -> Run:
    rounds = max(int(path.name) for path in (folder / "stages").iterdir())
    stages = [folder / "stages" / str(stage) for stage in range(rounds + 1)]
    config = (folder / "config.yaml").read_text(encoding="utf-8")
    (prompts,) = re.findall(r"^ +prompts_per_update: (\d+)$", config, flags=re.MULTILINE)
    return Run(
        engineer=engineer,
        seed=seed,
        folder=folder,
        episodes=[_json_lines(stage / "episodes.jsonl") for stage in stages],
        configurations=[_json(stage / "configuration.json")["sizes"] for stage in stages[1:]],
        decisions=[_json(stage / "decision.json") for stage in stages[1:]],
        prompts=int(prompts),
    )


def _contradictions(run: Run, first: Run) -> Iterator[str]:
    """What keeps a run from being compared with the first."""
    boards = [one["grid"] for one in first.episodes[0]]
    name = f"{run.engineer}/{run.seed}"
    if run.rounds != first.rounds:
        yield f"{name}: {run.rounds} rounds, {first.rounds} of {first.engineer}/{first.seed}"
    for stage, episodes in enumerate(run.episodes):
        where = f"{name}, stage {stage}"
        if [one["grid"] for one in episodes] != boards:
            yield f"{where}: other boards than {first.engineer}/{first.seed}, stage 0"
        for one in episodes:
            if one["valid"] != (one["failure"] is None):
                yield f"{where}, board {one['id']}: valid and a failure, or neither"
            if not one["valid"] and any(one[metric] for metric in METRICS):
                yield f"{where}, board {one['id']}: optimal, but not valid"


def _compare_tables(comparison: Comparison, run: Run) -> None:
    """A run's own tables with its episodes, and what was trained on with what was decided."""
    name = f"{run.engineer}/{run.seed}"
    for stage, episodes in enumerate(run.episodes):
        total = _json(run.folder / f"stages/{stage}/validation.json")["total"]
        counts = _counts(episodes, range(len(episodes)))
        told = {key: total[key] for key in counts}
        comparison.tree(f"{name}, stage {stage}, validation.json", told, counts)
    for stage, decision in enumerate(run.decisions[:-1], start=1):
        where = f"{name}, stage {stage + 1}, configuration.json"
        comparison.tree(where, run.configurations[stage], decision["configuration"]["sizes"])


def _budget(runs: list[Run], updates: int) -> Object:
    """The part of it that the runs' files tell; the updates of a round are told."""
    first = runs[0]
    return {
        "rounds": first.rounds,
        "prompts_an_update": first.prompts,
        "training_instances": first.rounds * updates * first.prompts,
        "validation_boards": len(first.episodes[0]),
    }


def _expected(settings: Object, runs: list[Run]) -> Object:
    """What is compared as a whole."""
    cells = _cells(runs[0].episodes[0])
    by_engineer = {
        name: [run for run in runs if run.engineer == name] for name in settings["engineers"]
    }
    engineers = {
        name: _engineer(settings, group, by_engineer[settings["baseline"]], cells)
        for name, group in by_engineer.items()
        if group
    }
    differences = [one["difference"] for one in engineers.values() if one["difference"] is not None]
    pairs = len(differences) * len(METRICS)
    seeds = min([len(one["seeds"]) for one in differences], default=1)
    starts = [run.episodes[0] for run in runs]
    return {
        "comparisons": {
            "count": pairs,
            "seeds": seeds,
            "expected_by_chance": _by_chance(pairs, seeds, settings["confidence"]),
        },
        "warm_start": {
            "rates": {metric: _rates(starts, metric) for metric in METRICS},
            "cells": [_cell(key, rows, starts) for key, rows in cells.items()],
        },
        "engineers": engineers,
    }


def _engineer(settings: Object, runs: list[Run], baseline: list[Run], cells: Cells) -> Object:
    final = [run.episodes[-1] for run in runs]
    ledgers = [_ledger(run) for run in runs]
    return {
        "seeds": [run.seed for run in runs],
        "rates": {metric: Resampled([run.rows(metric) for run in runs]) for metric in METRICS},
        "difference": _difference(runs, baseline),
        "cells": [_cell(key, rows, final) for key, rows in cells.items()],
        "worst_cell": _worst_cell(cells, final, settings["slice_boards"]),
        "learning_curve": {
            metric: [
                _rates([run.episodes[stage] for run in runs], metric)
                for stage in range(runs[0].rounds + 1)
            ]
            for metric in METRICS
        },
        "mixture": [
            _mixture([run.configurations[stage] for run in runs]) for stage in range(runs[0].rounds)
        ],
        "flow": _flow(runs, settings["kinds"]),
        "designs": _designs(runs),
        "ledger": {name: spread([one[name] for one in ledgers]) for name in ledgers[0]},
        "runs": {str(run.seed): _run(run, cells, settings["kinds"]) for run in runs},
    }


def _difference(runs: list[Run], baseline: list[Run]) -> Object | None:
    """Paired by seed and board; None of the baseline itself, and where no seed is of both."""
    theirs = {run.seed: run for run in baseline}
    pairs = [(run, theirs[run.seed]) for run in runs if run.seed in theirs]
    if not pairs or runs[0].engineer == baseline[0].engineer:
        return None

    def rows(metric: str) -> list[list[int]]:
        return [
            [a - b for a, b in zip(ours.rows(metric), base.rows(metric), strict=True)]
            for ours, base in pairs
        ]

    seeds = [ours.seed for ours, _ in pairs]
    return {"seeds": seeds, **{metric: Resampled(rows(metric)) for metric in METRICS}}


def _by_chance(pairs: int, seeds: int, confidence: float) -> Object:
    """What the documentation's table says of 95% intervals; others are taken at their word."""
    if confidence != 0.95:
        return dict.fromkeys(("least", "most"), pairs * (1 - confidence))
    text = DOCUMENTATION.read_text(encoding="utf-8")
    (heads,) = re.findall(r"^\|.*\| 1 seed \|.*$", text, flags=re.MULTILINE)
    table = text.split(heads, 1)[1].split("\n\n", 1)[0]
    known = [int(number) for number in re.findall(r"(\d+) seeds?", heads)]
    column = known.index(max(number for number in known if number <= seeds))
    held = [
        int(re.findall(r"(\d+)%", line)[column]) / 100
        for line in table.splitlines()
        if line.endswith("% |")
    ]
    return {"least": pairs * (1 - max(held)), "most": pairs * (1 - min(held))}


def _cells(boards: list[Object]) -> Cells:
    """The places of the boards of each cell; cells by size, tenth of holes and need of a wait."""
    cells: Cells = {}
    for place, board in enumerate(boards):
        letters = "".join(board["grid"]).replace(" ", "")
        tenth = 10 * letters.count("H") // len(letters)
        cells.setdefault((board["size"], tenth, board["needs_wait"]), []).append(place)
    return dict(sorted(cells.items()))


def _key(key: Key, rows: list[int]) -> Object:
    return {"size": key[0], "hole_tenth": key[1], "needs_wait": key[2], "count": len(rows)}


def _cell(key: Key, rows: list[int], answers: list[list[Object]]) -> Object:
    """`answers`: by seed, then board."""
    chosen = [[one[row] for row in rows] for one in answers]
    rates = [mean([one["valid"] for one in seed]) for seed in chosen]
    return {
        **_key(key, rows),
        **{metric: _rates(chosen, metric) for metric in METRICS},
        "learnability": spread([rate * (1 - rate) for rate in rates]),
    }


def _worst_cell(cells: Cells, answers: list[list[Object]], least: int) -> Object | None:
    """Of the cells of enough boards that of the lowest valid rate, the first of equal ones."""

    def rate(key: Key) -> float:
        return mean([seed[row]["valid"] for seed in answers for row in cells[key]])

    large = [key for key, rows in cells.items() if len(rows) >= least]
    worst = min(large, key=rate, default=None)
    return None if worst is None else _cell(worst, cells[worst], answers)


def _rates(answers: list[list[Object]], metric: str) -> Object:
    return spread([mean([one[metric] for one in seed]) for seed in answers])


def _mixture(configurations: list[Object]) -> Object:
    """Of one stage, a configuration a seed."""
    return {
        size: {knob: spread([one[size][knob] for one in configurations]) for knob in knobs}
        for size, knobs in configurations[0].items()
    }


def _flow(runs: list[Run], kinds: list[str]) -> list[list[int]]:
    """How often an answer was of one kind at the start and of another after the last round."""
    moved = Counter(
        (before["failure"] or "valid", after["failure"] or "valid")
        for run in runs
        for before, after in zip(run.episodes[0], run.episodes[-1], strict=True)
    )
    return [[moved[before, after] for after in kinds] for before in kinds]


def _designs(runs: list[Run]) -> Object:
    """What became of the designs that were trained on: of all rounds but the last."""
    gates = [
        run.folder / f"stages/{stage}/gate.json" for run in runs for stage in range(1, run.rounds)
    ]
    kinds = Counter(decision["kind"] for run in runs for decision in run.decisions[:-1])
    return {
        "trained_on": sum(kinds.values()),
        "by_kind": dict(kinds),
        "rolled_back": sum(_json(gate)["restored"] is not None for gate in gates if gate.exists()),
    }


def _ledger(run: Run) -> Object:
    updates = {
        (one["stage"], one["update"])
        for one in _json_lines(run.folder / "metrics.jsonl")
        if one["phase"] == "train"
    }
    seconds = [
        (one["phase"], math.fsum(one["seconds"].values()))
        for one in _json_lines(run.folder / "timings.jsonl")
    ]
    return {
        "training_instances": len(updates) * run.prompts,
        **{name: sum(decision["spent"][name] for decision in run.decisions) for name in SPENT},
        "design_seconds": math.fsum(took for phase, took in seconds if phase == "design"),
        "wall_seconds": math.fsum(took for _, took in seconds),
    }


def _run(run: Run, cells: Cells, kinds: list[str]) -> Object:
    """One run's own numbers, as counts."""
    every = range(len(run.episodes[0]))
    return {
        "stages": [_counts(episodes, every) for episodes in run.episodes],
        "cells": [
            {**_key(key, rows), **_counts(run.episodes[-1], rows)} for key, rows in cells.items()
        ],
        "configurations": run.configurations,
        "flow": _flow([run], kinds),
        "ledger": _ledger(run),
    }


def _counts(episodes: list[Object], rows: Sequence[int]) -> Object:
    sums = {metric: sum(episodes[row][metric] for row in rows) for metric in METRICS}
    return {"count": len(rows), **sums}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print how many numbers were compared and each that differs; 1 if any does."""
    parser = argparse.ArgumentParser(description="Work a study's results.json out a second time.")
    parser.add_argument("study", type=Path, help="the study's directory")
    parser.add_argument("--results", type=Path, help="the file, if not report/results.json there")
    parser.add_argument("--resamples", type=int, default=4000, help="of the bootstrap, ours")
    given = parser.parse_args(arguments)
    compared, found = disagreements(given.study, given.results, resamples=given.resamples)
    print(f"{compared:,} numbers compared, {len(found)} disagreements")
    for line in found:
        print(line)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
