"""All numbers of a study as one JSON value, `results.json`; `docs/how_to/studies.md` defines each.

Shapes: S seeds, M metrics, T validations, B boards. Rates lie in 0..1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from engineer.space import KnobValues
from training.analysis.study.bootstrap import SEED, mean_interval, misses_by_chance, paired_interval
from training.analysis.study.config import Study, StudyConfig
from training.analysis.study.directory import MachineRecord
from training.analysis.study.reading import KINDS, METRICS, FinishedRun, ValidationSet
from training.schema import RunConfig

SCHEMA = 4
"""Grows when a key changes its name or its meaning."""

Results = dict[str, Any]

REVIEWS = ("accepted", "repaired", "rejected", "failed")
"""What the review says of an engineer's answer; `failed`: there was none."""

_VALID = METRICS.index("valid")


class BoardSlice(NamedTuple):
    """The boards that agree in size, in the tenth of holes, and in whether they need a wait."""

    key: Results  # these three, and how many boards there are
    rows: np.ndarray  # int (n,), n > 0: their numbers in the validation set


def build_results(
    study: Study,
    runs: Sequence[FinishedRun],  # at least one, all validated on the same boards
    unfinished: Sequence[Results],  # the others, and why each has no result
    machines: Sequence[MachineRecord],
    seconds: Mapping[str, float],  # that the processes of each run took
) -> Results:
    """Compute everything that the report shows, and each run's own numbers."""
    config = study.config
    slices = slices_of(runs[0].boards)
    there: dict[str, list[FinishedRun]] = {}
    for engineer in config.engineers:
        if rows := [run for run in runs if run.engineer == engineer.name]:
            there[engineer.name] = rows
    baseline = there.get(config.baseline, [])
    engineers = {name: _engineer(config, rows, slices, baseline) for name, rows in there.items()}
    first = np.stack([run.scores[:, 0] for run in runs])
    return {
        "schema": SCHEMA,
        "study": _study(config),
        "start": _start(study.warm_start),
        "budget": _budget(study.warm_start, len(runs[0].boards)),
        "machines": [machine.model_dump() for machine in machines],
        "process_seconds": dict(seconds),
        "missing": list(unfinished),
        "comparisons": _comparisons(config, engineers),
        # What all runs began with, as each of them measured it.
        "warm_start": {"rates": _rates(first), "slices": [_slice(one, first) for one in slices]},
        "engineers": engineers,
    }


def _study(config: StudyConfig) -> Results:
    return {
        "name": config.name,
        "engineers": {one.name: list(one.set) for one in config.engineers},
        "seeds": list(config.seeds),
        "baseline": config.baseline,
        "resamples": config.resamples,
        "bootstrap_seed": SEED,
        "confidence": config.confidence,
        "slice_boards": config.slice_boards,
        "metrics": list(METRICS),
        "kinds": list(KINDS),
    }


def _start(config: RunConfig) -> str:
    """Say what every run starts from."""
    return "one shared warm start" if config.warm_start else f"the model {config.model.pretrained}"


def _budget(config: RunConfig, boards: int) -> Results:
    updates = config.stages.count * config.updates_per_stage
    return {
        "stages": config.stages.count,
        "updates_per_stage": config.updates_per_stage,
        "prompts_per_update": config.grpo.prompts_per_update,
        "completions_per_prompt": config.grpo.completions,
        "training_instances": updates * config.grpo.prompts_per_update,
        "validation_boards": boards,
        "validation_temperature": config.validation.temperature,
    }


def _comparisons(config: StudyConfig, engineers: Mapping[str, Results]) -> Results:
    """How many differences are shown, and how many would leave out 0 by chance alone."""
    differences = [one["difference"] for one in engineers.values() if one["difference"] is not None]
    count = len(differences) * len(METRICS)
    seeds = min((len(one["seeds"]) for one in differences), default=1)
    least, most = misses_by_chance(count, seeds=seeds, confidence=config.confidence)
    return {"count": count, "seeds": seeds, "expected_by_chance": {"least": least, "most": most}}


def _engineer(
    config: StudyConfig,
    runs: Sequence[FinishedRun],
    slices: Sequence[BoardSlice],
    baseline: Sequence[FinishedRun],
) -> Results:
    scores = np.stack([run.scores for run in runs])  # (S, M, T, B)
    final = scores[:, :, -1]
    kinds = np.stack([run.kinds for run in runs])
    large = [one for one in slices if len(one.rows) >= config.slice_boards]
    worst = min(large, key=lambda one: final[:, _VALID, one.rows].mean(), default=None)
    settings: Any = {"resamples": config.resamples, "confidence": config.confidence}
    return {
        "seeds": [run.seed for run in runs],
        "rates": _by_metric(lambda m: asdict(mean_interval(final[:, m], **settings))),
        "isr": spread([run.isr[-1] for run in runs]),
        "difference": _difference(config, runs, baseline, settings),
        "slices": [_slice(one, final) for one in slices],
        "worst_slice": None if worst is None else _slice(worst, final),
        "learning_curve": _by_metric(
            lambda m: [rate_spread(stage) for stage in np.moveaxis(scores[:, m], 1, 0)]
        ),
        "mixture": _mixture([run.configurations for run in runs]),
        "flow": flow(kinds[:, 0], kinds[:, -1], len(KINDS)).tolist(),
        "designs": {
            "trained_on": sum(len(run.designs) for run in runs),
            "by_kind": dict(Counter(kind for run in runs for kind in run.designs)),
            "rolled_back": sum(run.rolled_back for run in runs),
            "answers": {kind: sum(run.reviews.count(kind) for run in runs) for kind in REVIEWS},
        },
        "reading": _reading(runs),
        "ledger": {name: spread([run.ledger[name] for run in runs]) for name in runs[0].ledger},
        "runs": {str(run.seed): _run(run, slices) for run in runs},
    }


def _difference(
    config: StudyConfig, runs: Sequence[FinishedRun], baseline: Sequence[FinishedRun], settings: Any
) -> Results | None:
    """The difference to the baseline over the seeds that both have; None for the baseline."""
    theirs = {run.seed: run for run in baseline}
    pairs = [(run, theirs[run.seed]) for run in runs if run.seed in theirs]
    if not pairs or runs[0].engineer == config.baseline:
        return None
    ours, base = (np.stack([pair[side].scores[:, -1] for pair in pairs]) for side in (0, 1))
    return {
        "seeds": [run.seed for run, _ in pairs],
        **_by_metric(lambda m: asdict(paired_interval(ours[:, m], base[:, m], **settings))),
    }


def _run(run: FinishedRun, slices: Sequence[BoardSlice]) -> Results:
    """One run's own numbers, as counts, so that nothing is rounded."""
    return {
        "stages": [
            {"count": len(run.boards), **_counts(scores)}
            for scores in np.moveaxis(run.scores, 1, 0)
        ],
        "isr": list(run.isr),
        "slices": [{**one.key, **_counts(run.scores[:, -1, one.rows])} for one in slices],
        "configurations": list(run.configurations),
        "flow": flow(run.kinds[0], run.kinds[-1], len(KINDS)).tolist(),
        "ledger": dict(run.ledger),
        "reading": None if run.reads is None else {one.fact: one.flips for one in run.reads.facts},
    }


def _reading(runs: Sequence[FinishedRun]) -> Results:
    """In how many runs reading was measured, in how many all is read, and what is read least.

    Only facts count whose swap changes edits of the rule. Of equal ones the first is the least.
    """
    read = [(run.seed, run.reads) for run in runs if run.reads is not None]
    known = [
        {"fact": fact.fact, "flips": fact.flips, "seed": seed}
        for seed, one in read
        for fact in one.facts
        if fact.flips is not None
    ]
    return {
        "measured": len(read),
        "reads": sum(one.reads for _, one in read),
        "least": min(known, key=lambda one: float(one["flips"]), default=None),
    }


def _mixture(configurations: Sequence[Sequence[KnobValues]]) -> list[Results]:
    """The spread of each knob over the seeds, by stage, size and knob."""
    return [
        {
            size: {knob: spread([one[size][knob] for one in stage]) for knob in stage[0][size]}
            for size in stage[0]
        }
        for stage in zip(*configurations, strict=True)
    ]


def _slice(one: BoardSlice, answers: np.ndarray) -> Results:
    """Rates and learnability of bool (S, M, B) answers in one slice."""
    chosen = answers[:, :, one.rows]
    return {**one.key, **_rates(chosen), "learnability": learnability(chosen[:, _VALID])}


def _counts(answers: np.ndarray) -> Results:
    """Sums of bool (M, B) answers."""
    return _by_metric(lambda m: int(answers[m].sum()))


def _rates(answers: np.ndarray) -> Results:
    """Rates over seeds of bool (S, M, B) answers."""
    return _by_metric(lambda m: rate_spread(answers[:, m]))


def _by_metric(value: Callable[[int], Any]) -> Results:
    return {metric: value(m) for m, metric in enumerate(METRICS)}


def slices_of(boards: ValidationSet) -> list[BoardSlice]:
    """All slices that hold a board, by size, holes and waits."""
    kinds = np.stack([boards.size, boards.hole_tenth, boards.needs_wait], axis=1)
    slices = []
    for kind in np.unique(kinds, axis=0):
        size, tenth, wait = kind.tolist()
        rows = np.flatnonzero((kinds == kind).all(axis=1))
        key = {"size": size, "hole_tenth": tenth, "needs_wait": bool(wait), "count": len(rows)}
        slices.append(BoardSlice(key, rows))
    return slices


def spread(values: Sequence[float]) -> dict[str, float]:
    """The mean, the least and the largest of one value per seed."""
    return {"mean": float(np.mean(values)), "low": float(min(values)), "high": float(max(values))}


def rate_spread(answers: np.ndarray) -> dict[str, float]:
    """The rates of bool (S, n) answers: a rate for each seed."""
    return spread(answers.mean(axis=1).tolist())


def learnability(answers: np.ndarray) -> dict[str, float]:
    """p(1-p) for each seed, where p is the rate of bool (S, n) answers in one slice."""
    rates = answers.mean(axis=1)
    return spread((rates * (1 - rates)).tolist())


def flow(before: np.ndarray, after: np.ndarray, kinds: int) -> np.ndarray:
    """Count how answers of the same seeds and boards moved between kinds, 0 to `kinds` - 1.

    The int (kinds, kinds) table holds at [i, j] the answers of kind i before and j after.
    """
    table = np.zeros((kinds, kinds), np.int64)
    np.add.at(table, (before.ravel(), after.ravel()), 1)
    return table
