"""All numbers of a study as one JSON value, `results.json`; `docs/how_to/studies.md` defines each.

Shapes: S seeds, M metrics, T validations, B boards. Rates lie in 0..1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from engineer.space import KnobValues
from training.analysis.study.bootstrap import mean_interval
from training.analysis.study.config import Study
from training.analysis.study.contrasts import Contrast, contrast
from training.analysis.study.reading import KINDS, METRICS, FinishedRun, ValidationSet
from training.schema import RunConfig

Results = dict[str, Any]

REVIEWS = ("accepted", "repaired", "rejected", "failed")
"""Kinds of reviews of an engineer's answer; `failed`: there was none."""


class BoardSlice(NamedTuple):
    """The boards that agree in size, in the tenth of holes, and in whether they need a wait."""

    key: Results  # these three, and how many boards there are
    rows: np.ndarray  # int (n,), n > 0: their numbers in the validation set


def build_results(
    study: Study,
    runs: Sequence[FinishedRun],  # at least one, all validated on the same boards
    unfinished: Sequence[Results],  # the others, and why each has no result
) -> Results:
    """Compute everything that the report shows, and each run's own numbers."""
    config = study.config
    slices = slices_of(runs[0].boards)
    by_engineer: dict[str, list[FinishedRun]] = {}
    for engineer in config.engineers:
        if rows := [run for run in runs if run.engineer == engineer.name]:
            by_engineer[engineer.name] = rows
    baseline = by_engineer.get(config.baseline, [])
    first = np.stack([run.scores[:, 0] for run in runs])
    return {
        "study": {
            "name": config.name,
            "engineers": {one.name: list(one.set) for one in config.engineers},
            "seeds": list(config.seeds),
            "baseline": config.baseline,
            "kinds": list(KINDS),
        },
        "budget": _budget(study.warm_start, len(runs[0].boards)),
        "missing": list(unfinished),
        # The rates that all runs began with, as each of them measured them.
        "start": {"rates": _rates(first), "slices": [_slice(one, first) for one in slices]},
        "engineers": {
            name: _engineer(rows, slices, [] if name == config.baseline else baseline)
            for name, rows in by_engineer.items()
        },
    }


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


def _engineer(
    runs: Sequence[FinishedRun], slices: Sequence[BoardSlice], baseline: Sequence[FinishedRun]
) -> Results:
    scores = np.stack([run.scores for run in runs])  # (S, M, T, B)
    final = scores[:, :, -1]
    return {
        "seeds": [run.seed for run in runs],
        "rates": _by_metric(lambda m: asdict(mean_interval(final[:, m].astype(int)))),
        "isr": spread([run.isr[-1] for run in runs]),
        "difference": _difference(runs, baseline),
        "slices": [_slice(one, final) for one in slices],
        "learning_curve": _by_metric(
            lambda m: [rate_spread(stage) for stage in np.moveaxis(scores[:, m], 1, 0)]
        ),
        "mixture": _mixture([run.configurations for run in runs]),
        "kinds": [_kinds([run.kinds[stage] for run in runs]) for stage in (0, -1)],
        "designs": {
            "trained_on": sum(len(run.designs) for run in runs),
            "by_kind": dict(Counter(kind for run in runs for kind in run.designs)),
            "rolled_back": sum(run.rolled_back for run in runs),
            "answers": {kind: sum(run.reviews.count(kind) for run in runs) for kind in REVIEWS},
        },
        "reading": _reading(runs),
        "ledger": {name: spread([run.ledger[name] for run in runs]) for name in runs[0].ledger},
        "runs": {str(run.seed): _run(run) for run in runs},
    }


def _difference(runs: Sequence[FinishedRun], baseline: Sequence[FinishedRun]) -> Results | None:
    """Return the differences to the baseline over the seeds that both have, if there are any."""
    if not {run.seed for run in runs} & {run.seed for run in baseline}:
        return None
    by_metric = {
        metric: contrast(
            {run.seed: run.scores[m, -1] for run in runs},
            {run.seed: run.scores[m, -1] for run in baseline},
        )
        for m, metric in enumerate(METRICS)
    }
    seeds = list(by_metric["valid"].seeds)
    return {"seeds": seeds, **{name: _contrast(one) for name, one in by_metric.items()}}


def _contrast(one: Contrast) -> Results:
    low, high = one.over_seeds
    over_seeds = {"low": low, "high": high, "deviation": one.deviation}
    over_seeds["detectable"] = one.detectable
    finite = {key: None if math.isnan(value) else value for key, value in over_seeds.items()}
    return {**asdict(one.difference), "over_seeds": finite}


def _run(run: FinishedRun) -> Results:
    """Return one run's own numbers, as counts."""
    return {
        "count": len(run.boards),
        "stages": [_counts(scores) for scores in np.moveaxis(run.scores, 1, 0)],
        "isr": list(run.isr),
        "configurations": list(run.configurations),
        "ledger": dict(run.ledger),
    }


def _reading(runs: Sequence[FinishedRun]) -> Results:
    """Count the runs in which reading was measured and complete; also the fact read least.

    Only facts count whose swap changes edits of the rule.
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
    """Return the spread of each knob over the seeds, by stage, size and knob."""
    return [
        {
            size: {knob: spread([one[size][knob] for one in stage]) for knob in stage[0][size]}
            for size in stage[0]
        }
        for stage in zip(*configurations, strict=True)
    ]


def _kinds(answers: Sequence[np.ndarray]) -> dict[str, float]:
    """Return the share of each kind of answer that occurs."""
    counts = np.bincount(np.concatenate(answers), minlength=len(KINDS))
    return {kind: count / counts.sum() for kind, count in zip(KINDS, counts.tolist(), strict=True)}


def _slice(one: BoardSlice, answers: np.ndarray) -> Results:
    """Return the rates of bool (S, M, B) answers in one slice."""
    return {**one.key, **_rates(answers[:, :, one.rows])}


def _counts(answers: np.ndarray) -> Results:
    """Return the sums of bool (M, B) answers."""
    return _by_metric(lambda m: int(answers[m].sum()))


def _rates(answers: np.ndarray) -> Results:
    """Return the rates over seeds of bool (S, M, B) answers."""
    return _by_metric(lambda m: rate_spread(answers[:, m]))


def _by_metric(value: Callable[[int], Any]) -> Results:
    return {metric: value(m) for m, metric in enumerate(METRICS)}


def slices_of(boards: ValidationSet) -> list[BoardSlice]:
    """Return all slices that hold a board, by size, holes and waits."""
    kinds = np.stack([boards.size, boards.hole_tenth, boards.needs_wait], axis=1)
    slices = []
    for kind in np.unique(kinds, axis=0):
        size, tenth, wait = kind.tolist()
        rows = np.flatnonzero((kinds == kind).all(axis=1))
        key = {"size": size, "hole_tenth": tenth, "needs_wait": bool(wait), "count": len(rows)}
        slices.append(BoardSlice(key, rows))
    return slices


def spread(values: Sequence[float]) -> Mapping[str, float]:
    """Return the mean, the least and the largest of one value per seed."""
    return {"mean": float(np.mean(values)), "low": float(min(values)), "high": float(max(values))}


def rate_spread(answers: np.ndarray) -> Mapping[str, float]:
    """Return the spread of the rates of bool (S, n) answers: a rate for each seed."""
    return spread(answers.mean(axis=1).tolist())
