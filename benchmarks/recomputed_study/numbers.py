"""Every number of a study's results, from the files of its runs, the slow way."""

import math
import re
from collections import Counter
from pathlib import Path

from benchmarks.recomputed_study.comparison import Object, Resampled, mean, spread
from benchmarks.recomputed_study.plans import individual
from benchmarks.recomputed_study.runs import METRICS, Run, counts, json_lines, read_json

SPENT = ("rehearsed_designs", "engineer_tokens", "probe_rollouts", "probe_instances")
DOCUMENTATION = Path(__file__).parents[2] / "docs/how_to/studies.md"

READS_FROM = 0.9
"""The least share of edits that change with every fact, if a policy reads."""

Key = tuple[int, int, bool]
Slices = dict[Key, list[int]]
"""By size, tenth of holes and need of a wait: the places of the boards in the files."""


def budget(runs: list[Run], updates: int) -> Object:
    """Return what the runs' files say of the budget; the updates per stage are given."""
    first = runs[0]
    return {
        "stages": first.stage_count,
        "prompts_per_update": first.prompts,
        "training_instances": first.stage_count * updates * first.prompts,
        "validation_boards": len(first.episodes[0]),
    }


def expected(settings: Object, runs: list[Run]) -> Object:
    """Recompute everything that is compared as a whole.

    Of runs whose answers alone are kept that is what follows from answers and configurations.
    """
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
    found: Object = {
        "seeds": [run.seed for run in runs],
        "rates": {metric: Resampled([run.rows(metric) for run in runs]) for metric in METRICS},
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
        "runs": {str(run.seed): _run(run, slices, settings["kinds"]) for run in runs},
    }
    if any(run.answers_alone for run in runs):
        return found
    ledgers = [_ledger(run) for run in runs]
    return found | {
        "isr": spread([individual(episodes) for episodes in final]),
        "designs": _designs(runs),
        "reading": _reading(runs),
        "ledger": {name: spread([one[name] for one in ledgers]) for name in ledgers[0]},
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
        for answer in json_lines(run.folder / f"stages/{stage}/answers.jsonl")
    )
    return {
        "trained_on": sum(kinds.values()),
        "by_kind": dict(kinds),
        "rolled_back": sum(
            read_json(gate)["restored"] is not None for gate in gates if gate.exists()
        ),
        "answers": {kind: reviews[kind] for kind in ("accepted", "repaired", "rejected", "failed")},
    }


def _flips(run: Run) -> Object | None:
    """Return the share of the rule's edits that the policy follows, by fact; None: not measured."""
    file = run.folder / f"stages/{run.stage_count}/reading.json"
    if not file.exists():
        return None
    return {one["fact"]: one["flips"] for one in read_json(file)["facts"]}


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
        (one["stage"], one["update"]): one.get("resampled_boards") or 0
        for one in json_lines(run.folder / "metrics.jsonl")
        if one["phase"] == "train"
    }
    seconds = [
        (one["phase"], math.fsum(one["seconds"].values()))
        for one in json_lines(run.folder / "timings.jsonl")
    ]
    return {
        "training_instances": len(updates) * run.prompts + sum(updates.values()),
        **{name: sum(decision["spent"][name] for decision in run.decisions) for name in SPENT},
        "design_seconds": math.fsum(took for phase, took in seconds if phase == "design"),
        "wall_seconds": math.fsum(took for _, took in seconds),
    }


def _run(run: Run, slices: Slices, kinds: list[str]) -> Object:
    """Recompute one run's own numbers, as counts."""
    every = range(len(run.episodes[0]))
    found: Object = {
        "stages": [counts(episodes, every) for episodes in run.episodes],
        "slices": [
            {**_key(key, rows), **counts(run.episodes[-1], rows)} for key, rows in slices.items()
        ],
        "configurations": run.configurations,
        "flow": _flow([run], kinds),
    }
    if run.answers_alone:
        return found
    plans = [individual(episodes) for episodes in run.episodes]
    return found | {"isr": plans, "ledger": _ledger(run), "reading": _flips(run)}
