"""All numbers of a study as one JSON value, `results.json`; `docs/studies.md` defines each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from training.config import RunConfig
from training.study.bootstrap import (
    SEED,
    Interval,
    mean_interval,
    misses_by_chance,
    paired_interval,
)
from training.study.config import Study, StudyConfig
from training.study.measures import (
    Cell,
    cells_of,
    flow,
    learnability,
    mixture,
    rate_spread,
    spread,
    worst_cell,
)
from training.study.reading import KINDS, LEDGER, METRICS, Missing, RunData

SCHEMA = 2
"""Grows when a key changes its meaning."""

Results = dict[str, Any]

_VALID = METRICS.index("valid")


def build_results(
    study: Study,
    runs: Sequence[RunData],
    missing: Sequence[Missing],
    machines: Sequence[Results] = (),
    seconds: Mapping[str, float] | None = None,
) -> Results:
    """Everything that the report shows, and each run's own numbers.

    Args:
        study: what was run.
        runs: the finished runs, at least one, all validated on the same boards.
        missing: the others.
        machines: where it was carried out, see `training.study.machine`.
        seconds: of the processes, by run.
    """
    config = study.config
    boards = runs[0].boards
    cells = cells_of(boards)
    by_engineer = {
        engineer.name: [run for run in runs if run.arm.engineer == engineer.name]
        for engineer in config.engineers
    }
    there = {name: rows for name, rows in by_engineer.items() if rows}
    baseline = there.get(config.baseline, [])
    engineers = {name: _engineer(config, rows, cells, baseline) for name, rows in there.items()}
    return {
        "schema": SCHEMA,
        "study": _study(config),
        "budget": _budget(study.run, len(boards)),
        "machines": list(machines),
        "process_seconds": dict(seconds or {}),
        "missing": [
            {"engineer": one.arm.engineer, "seed": one.arm.seed, "reason": one.reason}
            for one in missing
        ],
        "comparisons": _comparisons(config, engineers),
        "warm_start": _warm_start(runs, cells),
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


def _budget(run: RunConfig, boards: int) -> Results:
    """What every run may use."""
    return {
        "rounds": run.stages.rounds,
        "updates_a_round": run.updates_per_round,
        "prompts_an_update": run.grpo.prompts_per_update,
        "completions_a_prompt": run.grpo.completions,
        "training_instances": run.stages.rounds
        * run.updates_per_round
        * run.grpo.prompts_per_update,
        "validation_boards": boards,
        "validation_temperature": run.validation.temperature,
    }


def _comparisons(config: StudyConfig, engineers: Mapping[str, Results]) -> Results:
    """How many differences are shown, and how many of them chance alone sets apart from 0."""
    differences = [one["difference"] for one in engineers.values() if one["difference"] is not None]
    count = len(differences) * len(METRICS)
    seeds = min((len(one["seeds"]) for one in differences), default=1)
    least, most = misses_by_chance(count, seeds=seeds, confidence=config.confidence)
    return {"count": count, "seeds": seeds, "expected_by_chance": {"least": least, "most": most}}


def _warm_start(runs: Sequence[RunData], cells: Sequence[Cell]) -> Results:
    """What all runs began with, as each of them measured it."""
    first = np.stack([run.scores[:, 0] for run in runs])
    return {
        "rates": {metric: asdict(rate_spread(first[:, m])) for m, metric in enumerate(METRICS)},
        "cells": [_cell(cell, first) for cell in cells],
    }


def _engineer(
    config: StudyConfig,
    runs: Sequence[RunData],
    cells: Sequence[Cell],
    baseline: Sequence[RunData],
) -> Results:
    scores = np.stack([run.scores for run in runs])  # (S, metrics, T, B)
    final = scores[:, :, -1]
    kinds = np.stack([run.kinds for run in runs])
    worst = worst_cell(final[:, _VALID], cells, config.slice_boards)
    ledger = {name: [getattr(run.ledger, name) for run in runs] for name in LEDGER}
    return {
        "seeds": [run.arm.seed for run in runs],
        "rates": {
            metric: _interval(
                mean_interval(final[:, m], resamples=config.resamples, confidence=config.confidence)
            )
            for m, metric in enumerate(METRICS)
        },
        "difference": _difference(config, runs, baseline),
        "cells": [_cell(cell, final) for cell in cells],
        "worst_cell": None if worst is None else _cell(worst, final),
        "learning_curve": {
            metric: [asdict(rate_spread(scores[:, m, stage])) for stage in range(scores.shape[2])]
            for m, metric in enumerate(METRICS)
        },
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
        "ledger": {name: asdict(spread(values)) for name, values in ledger.items()},
        "runs": {str(run.arm.seed): _run(run, cells) for run in runs},
    }


def _difference(
    config: StudyConfig, runs: Sequence[RunData], baseline: Sequence[RunData]
) -> Results | None:
    """To the baseline, over the seeds that both have; None of the baseline itself."""
    theirs = {run.arm.seed: run for run in baseline}
    pairs = [(run, theirs[run.arm.seed]) for run in runs if run.arm.seed in theirs]
    if not pairs or runs[0].arm.engineer == config.baseline:
        return None
    ours, base = (np.stack([pair[side].scores[:, -1] for pair in pairs]) for side in (0, 1))
    return {
        "seeds": [run.arm.seed for run, _ in pairs],
        **{
            metric: _interval(
                paired_interval(
                    ours[:, m],
                    base[:, m],
                    resamples=config.resamples,
                    confidence=config.confidence,
                )
            )
            for m, metric in enumerate(METRICS)
        },
    }


def _run(run: RunData, cells: Sequence[Cell]) -> Results:
    """One run's own numbers, as counts, so that nothing is rounded."""
    return {
        "stages": [
            {
                "count": len(run.boards),
                **{m: int(n) for m, n in zip(METRICS, stage.sum(axis=1), strict=True)},
            }
            for stage in run.scores.transpose(1, 0, 2)
        ],
        "cells": [
            {
                **_key(cell),
                **{
                    metric: int(run.scores[m, -1, cell.rows].sum())
                    for m, metric in enumerate(METRICS)
                },
            }
            for cell in cells
        ],
        "configurations": list(run.configurations),
        "flow": flow(run.kinds[0], run.kinds[-1], len(KINDS)).tolist(),
        "ledger": asdict(run.ledger),
    }


def _cell(cell: Cell, answers: np.ndarray) -> Results:
    """Rates and learnability of bool (S, metrics, B) answers in one cell."""
    chosen = answers[:, :, cell.rows]
    return {
        **_key(cell),
        **{metric: asdict(rate_spread(chosen[:, m])) for m, metric in enumerate(METRICS)},
        "learnability": asdict(learnability(chosen[:, _VALID])),
    }


def _key(cell: Cell) -> Results:
    return {
        "size": cell.size,
        "hole_tenth": cell.hole_tenth,
        "needs_wait": cell.needs_wait,
        "count": len(cell.rows),
    }


def _interval(interval: Interval) -> Results:
    return {**asdict(interval), "beyond": interval.beyond}
