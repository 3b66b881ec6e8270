"""Recompute every number of a study's `results.json` independently, from its runs' plain files.

    python -m benchmarks.oracles.study STUDY_DIR [--results FILE]

`docs/studies.md` defines each number; here it is computed the slow way, by the standard library
alone and without any code of the packages. Some parts are taken from `results.json` as they are:
what the study is (`study`), the budget as far as the runs' files do not contain it, the machines
and the seconds of processes. Ends of intervals are drawn again, one board after the other, and must
lie within the range that so many resamples allow; all else must be equal.
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
SPENT = ("rehearsed_designs", "engineer_tokens", "probe_rollouts", "probe_instances")
NOT_RECOMPUTED = ("schema", "study", "start", "budget", "machines", "process_seconds", "missing")
"""Parts of `results.json` that are not compared as a whole."""

DOCUMENTATION = Path(__file__).parents[2] / "docs/studies.md"

READS_FROM = 0.9
"""The least share of edits that change with every fact, if a policy reads."""

STANDARD_ERRORS = 4
"""How far apart the shares of resamples below an end of an interval may be in two bootstraps."""

MOVES = {"UP": (-1, 0), "DOWN": (1, 0), "LEFT": (0, -1), "RIGHT": (0, 1), "WAIT": (0, 0)}
STARTS, GOALS = "SsABC", "Ggabc"
"""Symbols of agents 0 to 4 on a board."""

Object = dict[str, Any]
Key = tuple[int, int, bool]
Slices = dict[Key, list[int]]
"""By size, tenth of holes and need of a wait: the places of the boards in the files."""


@dataclass(frozen=True)
class Run:
    """One finished run; stage 0 is the warm start and has only episodes."""

    engineer: str
    seed: int
    folder: Path
    episodes: list[list[Object]]  # by stage, then board
    configurations: list[Object]  # of stages 1..R, by size
    decisions: list[Object]  # of stages 1..R
    prompts: int  # of one update

    @property
    def stage_count(self) -> int:
        """R."""
        return len(self.configurations)

    def rows(self, metric: str) -> list[int]:
        """What each board scored after the last stage."""
        return [int(one[metric]) for one in self.episodes[-1]]


@dataclass(frozen=True)
class Resampled:
    """The values that an interval belongs to: one row per seed, one column per board."""

    rows: list[list[int]]


@dataclass
class Comparison:
    """Counts what is compared and says in words what differs."""

    resamples: int  # of our bootstrap
    theirs: int  # of the study's
    confidence: float
    compared: int = 0
    found: list[str] = field(default_factory=list)

    def tree(self, where: str, told: Any, expected: Any) -> None:
        """Compare JSON values down to their leaves; `expected` may contain `Resampled` values."""
        if isinstance(expected, Resampled):
            self._interval(where, told, expected.rows)
        elif isinstance(expected, dict):
            if self.keys(where, told, expected):
                for key, value in expected.items():
                    self.tree(f"{where}.{key}", told[key], value)
        elif isinstance(expected, list):
            if not isinstance(told, list) or len(told) != len(expected):
                self.found.append(f"{where}: got {told!r}, expected {len(expected)} entries")
                return
            for place, (one, other) in enumerate(zip(told, expected, strict=True)):
                self.tree(f"{where}[{place}]", one, other)
        else:
            self._leaf(where, told, expected)

    def keys(self, where: str, told: Any, expected: Object) -> bool:
        """Say whether both have the same keys."""
        if isinstance(told, dict) and set(told) == set(expected):
            return True
        keys = sorted(told) if isinstance(told, dict) else told
        self.found.append(f"{where}: got {keys!r}, expected the keys {sorted(expected)}")
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
            self.found.append(f"{where}: got {told!r}, expected {expected!r}")

    def _interval(self, where: str, told: Any, rows: list[list[int]]) -> None:
        """Compare the value and `beyond` exactly, and the ends with a bootstrap of our own.

        An end must lie between two of our quantiles: those four standard errors of a share below
        and above its own. One step of the lattice on which the means lie is allowed in addition.
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
                expected = f"expected a value from {least:.5f} to {most:.5f}"
                self.found.append(f"{where}.{end}: got {told[end]!r}, {expected}")


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
    told = _json(results or study / "report/results.json")
    settings = told["study"]
    comparison = Comparison(resamples, settings["resamples"], settings["confidence"])
    left_out = {(one["engineer"], one["seed"]) for one in told["missing"]}
    runs = []
    for engineer, seed, folder in _folders(study, settings):
        finished = (folder / "summary.json").exists()
        if finished == ((engineer, seed) in left_out):
            state = "finished, but named" if finished else "not finished, but not named"
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
    for name, value in _budget(runs, told["budget"]["updates_per_stage"]).items():
        comparison.tree(f"budget.{name}", told["budget"][name], value)
    given = {name: value for name, value in told.items() if name not in NOT_RECOMPUTED}
    if comparison.keys("results.json", given, expected):
        for name, value in expected.items():
            comparison.tree(name, given[name], value)
    return comparison.compared, comparison.found


def mean(values: Sequence[float]) -> float:
    """Return the mean, rounded once."""
    return math.fsum(values) / len(values)


def spread(values: Sequence[float]) -> Object:
    """Return mean, least and largest of one value per seed."""
    return {"mean": mean(values), "low": float(min(values)), "high": float(max(values))}


def quantile(ordered: Sequence[float], share: float) -> float:
    """Interpolate linearly between order statistics; shares outside 0..1 give infinity."""
    if not 0 <= share <= 1:
        return math.copysign(math.inf, share)
    place = share * (len(ordered) - 1)
    before = int(place)
    after = min(before + 1, len(ordered) - 1)
    return ordered[before] + (place - before) * (ordered[after] - ordered[before])


def resampled_means(rows: list[list[int]], resamples: int, rng: random.Random) -> list[float]:
    """Return the ascending means of resampled seeds that all answer the same resampled boards."""
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
    """Yield engineer, seed and directory of every run; seeds are the outer loop."""
    for seed in settings["seeds"]:
        for engineer in settings["engineers"]:
            yield engineer, seed, study / "runs" / engineer / str(seed)


def _read_run(engineer: str, seed: int, folder: Path) -> Run:
    count = max(int(path.name) for path in (folder / "stages").iterdir())
    stages = [folder / "stages" / str(stage) for stage in range(count + 1)]
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
    """Yield what keeps a run from being compared with the first one."""
    boards = [one["grid"] for one in first.episodes[0]]
    name = f"{run.engineer}/{run.seed}"
    if run.stage_count != first.stage_count:
        other = f"{first.engineer}/{first.seed}"
        yield f"{name}: {run.stage_count} stages, {first.stage_count} of {other}"
    for stage, episodes in enumerate(run.episodes):
        where = f"{name}, stage {stage}"
        if [one["grid"] for one in episodes] != boards:
            yield f"{where}: not the boards of {first.engineer}/{first.seed}, stage 0"
        for one in episodes:
            if one["valid"] != (one["failure"] is None):
                yield f"{where}, board {one['id']}: both valid and a failure, or neither"
            if not one["valid"] and any(one[metric] for metric in METRICS):
                yield f"{where}, board {one['id']}: optimal, but not valid"


def _compare_tables(comparison: Comparison, run: Run) -> None:
    """Compare a run's tables with its episodes, and what it trained on with what was decided."""
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
    """Return what the runs' files say of the budget; the updates per stage are given."""
    first = runs[0]
    return {
        "stages": first.stage_count,
        "prompts_per_update": first.prompts,
        "training_instances": first.stage_count * updates * first.prompts,
        "validation_boards": len(first.episodes[0]),
    }


def _expected(settings: Object, runs: list[Run]) -> Object:
    """Recompute everything that is compared as a whole."""
    slices = _slices(runs[0].episodes[0])
    by_engineer = {
        name: [run for run in runs if run.engineer == name] for name in settings["engineers"]
    }
    engineers = {
        name: _engineer(settings, group, by_engineer[settings["baseline"]], slices)
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
            "slices": [_slice(key, rows, starts) for key, rows in slices.items()],
        },
        "engineers": engineers,
    }


def _engineer(settings: Object, runs: list[Run], baseline: list[Run], slices: Slices) -> Object:
    final = [run.episodes[-1] for run in runs]
    ledgers = [_ledger(run) for run in runs]
    return {
        "seeds": [run.seed for run in runs],
        "rates": {metric: Resampled([run.rows(metric) for run in runs]) for metric in METRICS},
        "isr": spread([_individual(episodes) for episodes in final]),
        "difference": _difference(runs, baseline),
        "slices": [_slice(key, rows, final) for key, rows in slices.items()],
        "worst_slice": _worst_slice(slices, final, settings["slice_boards"]),
        "learning_curve": {
            metric: [
                _rates([run.episodes[stage] for run in runs], metric)
                for stage in range(runs[0].stage_count + 1)
            ]
            for metric in METRICS
        },
        "mixture": [
            _mixture([run.configurations[stage] for run in runs])
            for stage in range(runs[0].stage_count)
        ],
        "flow": _flow(runs, settings["kinds"]),
        "designs": _designs(runs),
        "reading": _reading(runs),
        "ledger": {name: spread([one[name] for one in ledgers]) for name in ledgers[0]},
        "runs": {str(run.seed): _run(run, slices, settings["kinds"]) for run in runs},
    }


def _difference(runs: list[Run], baseline: list[Run]) -> Object | None:
    """Pair by seed and board; None for the baseline itself, and if the two share no seed."""
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
    """Read the documentation's table for 95% intervals; others are trusted to be right."""
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


def _slices(boards: list[Object]) -> Slices:
    """Group the places of the boards by slice, in the order of the slices."""
    slices: Slices = {}
    for place, board in enumerate(boards):
        letters = "".join(board["grid"]).replace(" ", "")
        tenth = 10 * letters.count("H") // len(letters)
        slices.setdefault((board["size"], tenth, board["needs_wait"]), []).append(place)
    return dict(sorted(slices.items()))


def _key(key: Key, rows: list[int]) -> Object:
    return {"size": key[0], "hole_tenth": key[1], "needs_wait": key[2], "count": len(rows)}


def _slice(key: Key, rows: list[int], answers: list[list[Object]]) -> Object:
    """Recompute one slice; `answers` are by seed, then board."""
    chosen = [[one[row] for row in rows] for one in answers]
    rates = [mean([one["valid"] for one in seed]) for seed in chosen]
    return {
        **_key(key, rows),
        **{metric: _rates(chosen, metric) for metric in METRICS},
        "learnability": spread([rate * (1 - rate) for rate in rates]),
    }


def _worst_slice(slices: Slices, answers: list[list[Object]], least: int) -> Object | None:
    """Return the slice of the lowest valid rate among those of enough boards, or the first one."""

    def rate(key: Key) -> float:
        return mean([seed[row]["valid"] for seed in answers for row in slices[key]])

    large = [key for key, rows in slices.items() if len(rows) >= least]
    worst = min(large, key=rate, default=None)
    return None if worst is None else _slice(worst, slices[worst], answers)


def _rates(answers: list[list[Object]], metric: str) -> Object:
    return spread([mean([one[metric] for one in seed]) for seed in answers])


def _mixture(configurations: list[Object]) -> Object:
    """Summarise one stage over its configurations, one per seed."""
    return {
        size: {knob: spread([one[size][knob] for one in configurations]) for knob in knobs}
        for size, knobs in configurations[0].items()
    }


def _flow(runs: list[Run], kinds: list[str]) -> list[list[int]]:
    """Count by board how answers moved between kinds from the start to the last stage."""
    moved = Counter(
        (before["failure"] or "valid", after["failure"] or "valid")
        for run in runs
        for before, after in zip(run.episodes[0], run.episodes[-1], strict=True)
    )
    return [[moved[before, after] for after in kinds] for before in kinds]


def _designs(runs: list[Run]) -> Object:
    """Count what became of the designs that were trained on: those of all stages but the last."""
    gates = [
        run.folder / f"stages/{stage}/gate.json"
        for run in runs
        for stage in range(1, run.stage_count)
    ]
    kinds = Counter(decision["kind"] for run in runs for decision in run.decisions[:-1])
    reviews = Counter(
        answer["kind"]
        for run in runs
        for stage in range(1, run.stage_count + 1)
        for answer in _json_lines(run.folder / f"stages/{stage}/answers.jsonl")
    )
    return {
        "trained_on": sum(kinds.values()),
        "by_kind": dict(kinds),
        "rolled_back": sum(_json(gate)["restored"] is not None for gate in gates if gate.exists()),
        "answers": {kind: reviews[kind] for kind in ("accepted", "repaired", "rejected", "failed")},
    }


def _flips(run: Run) -> Object | None:
    """Return the share of the rule's edits that the policy follows, by fact; None: not measured."""
    file = run.folder / f"stages/{run.stage_count}/reading.json"
    if not file.exists():
        return None
    return {one["fact"]: one["flips"] for one in _json(file)["facts"]}


def _reading(runs: list[Run]) -> Object:
    measured = [(run.seed, flips) for run in runs if (flips := _flips(run)) is not None]
    least: Object | None = None
    reads = 0
    for seed, flips in measured:
        known = {fact: share for fact, share in flips.items() if share is not None}
        reads += bool(known) and min(known.values()) >= READS_FROM
        for fact, share in known.items():
            if least is None or share < least["flips"]:
                least = {"fact": fact, "flips": share, "seed": seed}
    return {"measured": len(measured), "reads": reads, "least": least}


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


def _run(run: Run, slices: Slices, kinds: list[str]) -> Object:
    """Recompute one run's own numbers, as counts."""
    every = range(len(run.episodes[0]))
    return {
        "stages": [_counts(episodes, every) for episodes in run.episodes],
        "isr": [_individual(episodes) for episodes in run.episodes],
        "slices": [
            {**_key(key, rows), **_counts(run.episodes[-1], rows)} for key, rows in slices.items()
        ],
        "configurations": run.configurations,
        "flow": _flow([run], kinds),
        "ledger": _ledger(run),
        "reading": _flips(run),
    }


def _individual(episodes: list[Object]) -> float:
    """Play all plans, and return the mean share of agents that end at their goals."""
    return mean([_share_at_goal(one) for one in episodes])


def _share_at_goal(episode: Object) -> float:
    """Play a plan up to the step that breaks a rule; an answer that can't be read moves nobody."""
    if episode["plan"] is None:
        return 0.0
    places = {
        symbol: (row, column)
        for row, line in enumerate(episode["grid"])
        for column, symbol in enumerate(line.split())
    }
    broken = episode["failure"] not in (None, "goal_not_reached")
    arrived = 0
    for agent, moves in enumerate(episode["plan"]):
        row, column = places[STARTS[agent]]
        for move in moves[: episode["time"] if broken else None]:
            down, right = MOVES[move]
            row, column = row + down, column + right
        arrived += places[GOALS[agent]] == (row, column)
    return arrived / len(episode["plan"])


def _counts(episodes: list[Object], rows: Sequence[int]) -> Object:
    sums = {metric: sum(episodes[row][metric] for row in rows) for metric in METRICS}
    return {"count": len(rows), **sums}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print how many numbers were compared, and each one that differs; return 1 if any does."""
    parser = argparse.ArgumentParser(description="Recompute a study's results.json independently.")
    parser.add_argument("study", type=Path, help="the study's directory")
    parser.add_argument(
        "--results", type=Path, help="the file to check, if it is not report/results.json there"
    )
    parser.add_argument("--resamples", type=int, default=4000, help="of the bootstrap (4000)")
    given = parser.parse_args(arguments)
    compared, found = disagreements(given.study, given.results, resamples=given.resamples)
    print(f"{compared:,} numbers compared, {len(found)} disagreements")
    for line in found:
        print(line)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
