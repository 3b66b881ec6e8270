"""All numbers of a study as one JSON value, `results.json`; `docs/studies.md` defines each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from training.analysis.study.bootstrap import (
    SEED,
    Interval,
    mean_interval,
    misses_by_chance,
    paired_interval,
)
from training.analysis.study.config import Study, StudyConfig
from training.analysis.study.machine import MachineRecord
from training.analysis.study.measures import (
    BoardSlice,
    flow,
    learnability,
    mixture,
    rate_spread,
    slices_of,
    spread,
    worst_slice,
)
from training.analysis.study.reading import COSTS, KINDS, METRICS, FinishedRun, UnfinishedRun
from training.schema import RunConfig

SCHEMA = 3
"""Grows when a key changes its name or its meaning."""

Results = dict[str, Any]

_VALID = METRICS.index("valid")


def build_results(
    study: Study,
    runs: Sequence[FinishedRun],
    unfinished: Sequence[UnfinishedRun],
    machines: Sequence[MachineRecord],
    seconds: Mapping[str, float],
) -> Results:
    """Compute everything that the report shows, and each run's own numbers.

    Args:
        study: What was run.
        runs: The finished runs, at least one, all validated on the same boards.
        unfinished: The others.
        machines: Where they ran.
        seconds: What the processes of each run took.
    """
    config = study.config
    slices = slices_of(runs[0].boards)
    by_engineer = {
        engineer.name: [run for run in runs if run.engineer == engineer.name]
        for engineer in config.engineers
    }
    there = {name: rows for name, rows in by_engineer.items() if rows}
    baseline = there.get(config.baseline, [])
    engineers = {name: _engineer(config, rows, slices, baseline) for name, rows in there.items()}
    return {
        "schema": SCHEMA,
        "study": _study(config),
        "budget": _budget(study.warm_start, len(runs[0].boards)),
        "machines": [machine.model_dump() for machine in machines],
        "process_seconds": dict(seconds),
        "missing": [asdict(one) for one in unfinished],
        "comparisons": _comparisons(config, engineers),
        "warm_start": _warm_start(runs, slices),
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


def _budget(config: RunConfig, boards: int) -> Results:
    """What every run may use."""
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


def _warm_start(runs: Sequence[FinishedRun], slices: Sequence[BoardSlice]) -> Results:
    """What all runs began with, as each of them measured it."""
    first = np.stack([run.scores[:, 0] for run in runs])
    return {"rates": _rates(first), "slices": [_slice(one, first) for one in slices]}


def _engineer(
    config: StudyConfig,
    runs: Sequence[FinishedRun],
    slices: Sequence[BoardSlice],
    baseline: Sequence[FinishedRun],
) -> Results:
    scores = np.stack([run.scores for run in runs])  # (S, metrics, T, B)
    final = scores[:, :, -1]
    kinds = np.stack([run.kinds for run in runs])
    worst = worst_slice(final[:, _VALID], slices, config.slice_boards)
    settings: Any = {"resamples": config.resamples, "confidence": config.confidence}
    return {
        "seeds": [run.seed for run in runs],
        "rates": _by_metric(lambda m: _interval(mean_interval(final[:, m], **settings))),
        "difference": _difference(config, runs, baseline),
        "slices": [_slice(one, final) for one in slices],
        "worst_slice": None if worst is None else _slice(worst, final),
        "learning_curve": _by_metric(
            lambda m: [asdict(rate_spread(stage)) for stage in np.moveaxis(scores[:, m], 1, 0)]
        ),
        "mixture": [
            {
                size: {knob: asdict(value) for knob, value in knobs.items()}
                for size, knobs in stage.items()
            }
            for stage in mixture([run.configurations for run in runs])
        ],
        "flow": flow(kinds[:, 0], kinds[:, -1], len(KINDS)).tolist(),
        "designs": {
            "trained_on": sum(len(run.designs) for run in runs),
            "by_kind": dict(Counter(kind for run in runs for kind in run.designs)),
            "rolled_back": sum(run.rolled_back for run in runs),
        },
        "ledger": {
            name: asdict(spread([getattr(run.ledger, name) for run in runs])) for name in COSTS
        },
        "runs": {str(run.seed): _run(run, slices) for run in runs},
    }


def _difference(
    config: StudyConfig, runs: Sequence[FinishedRun], baseline: Sequence[FinishedRun]
) -> Results | None:
    """The difference to the baseline over the seeds that both have; None for the baseline."""
    theirs = {run.seed: run for run in baseline}
    pairs = [(run, theirs[run.seed]) for run in runs if run.seed in theirs]
    if not pairs or runs[0].engineer == config.baseline:
        return None
    ours, base = (np.stack([pair[side].scores[:, -1] for pair in pairs]) for side in (0, 1))
    settings: Any = {"resamples": config.resamples, "confidence": config.confidence}
    return {
        "seeds": [run.seed for run, _ in pairs],
        **_by_metric(lambda m: _interval(paired_interval(ours[:, m], base[:, m], **settings))),
    }


def _run(run: FinishedRun, slices: Sequence[BoardSlice]) -> Results:
    """One run's own numbers, as counts, so that nothing is rounded."""
    return {
        "stages": [
            {"count": len(run.boards), **_counts(scores)}
            for scores in np.moveaxis(run.scores, 1, 0)
        ],
        "slices": [{**_key(one), **_counts(run.scores[:, -1, one.rows])} for one in slices],
        "configurations": list(run.configurations),
        "flow": flow(run.kinds[0], run.kinds[-1], len(KINDS)).tolist(),
        "ledger": asdict(run.ledger),
    }


def _counts(answers: np.ndarray) -> Results:
    """Sums of bool (metrics, B) answers."""
    return _by_metric(lambda m: int(answers[m].sum()))


def _slice(one: BoardSlice, answers: np.ndarray) -> Results:
    """Rates and learnability of bool (S, metrics, B) answers in one slice."""
    chosen = answers[:, :, one.rows]
    return {
        **_key(one),
        **_rates(chosen),
        "learnability": asdict(learnability(chosen[:, _VALID])),
    }


def _key(one: BoardSlice) -> Results:
    return {
        "size": one.size,
        "hole_tenth": one.hole_tenth,
        "needs_wait": one.needs_wait,
        "count": len(one.rows),
    }


def _rates(answers: np.ndarray) -> Results:
    """Rates over seeds of bool (S, metrics, B) answers."""
    return _by_metric(lambda m: asdict(rate_spread(answers[:, m])))


def _by_metric(value: Callable[[int], Any]) -> Results:
    return {metric: value(m) for m, metric in enumerate(METRICS)}


def _interval(interval: Interval) -> Results:
    return {**asdict(interval), "beyond": interval.beyond}
