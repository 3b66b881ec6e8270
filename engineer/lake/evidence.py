"""Turns the lake's failure statistics into evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engineer.evidence import (
    FailedCase,
    FailureTime,
    GroupEvidence,
    StageEvidence,
    Tally,
    TrainingEvidence,
)
from engineer.lake.domain import FAILURES, SCORES

if TYPE_CHECKING:
    from jaxlake import Statistics

# What is imported in functions brings JAX along, without which a configuration is read and refused.


def lake_evidence(
    stage: int,
    statistics: Statistics,
    *,
    training: TrainingEvidence | None = None,
    environment: Mapping[str, Mapping[str, float]] | None = None,
    failed_cases: Sequence[FailedCase] = (),
) -> StageEvidence:
    """Fetch the counts of a validation from the device.

    `statistics` are sums over the whole validation set, as `jaxlake.tabulate` makes them, after the
    training of `stage` (0: the warm start); a ValueError if they are empty. The rest is passed on
    to `StageEvidence`.
    """
    from jaxlake import statistics_rows

    slices: dict[int, dict[str, dict[str, Tally]]] = {}
    for factor, axis in (("holes", "hole_tenth"), ("waits", "needs_wait")):
        for row in statistics_rows(statistics, by=("size", axis)):
            levels = slices.setdefault(row["size"], {}).setdefault(factor, {})
            levels[_level(axis, row[axis])] = Tally(**_counts(row))
    validation = {
        str(row["size"]): GroupEvidence(**_counts(row), slices=slices[row["size"]])
        for row in statistics_rows(statistics, by=("size",))
    }
    if not validation:
        raise ValueError(f"statistics of stage {stage} hold no validation answers")
    return StageEvidence(
        stage=stage,
        validation=validation,
        failure_times=_failure_times(np.asarray(statistics.first_failure_time)),
        training=training,
        environment={size: dict(values) for size, values in (environment or {}).items()},
        failed_cases=tuple(failed_cases),
    )


def _level(axis: str, value: int) -> str:
    if axis == "hole_tenth":
        return f"{10 * value}-{10 * value + 9}%"
    return "wait needed" if value else "no wait needed"


def _counts(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "count": row["total"],
        "valid": row["valid"],
        "scores": {score.key: row[score.key] for score in SCORES},
        "failures": {kind.key: row[kind.key] for kind in FAILURES if row[kind.key]},
    }


def _failure_times(histogram: np.ndarray) -> dict[str, FailureTime]:
    """Return the times of the kinds that have one, from counts by step: int (F, bins)."""
    from jaxlake import Failure

    times = {}
    for kind in Failure:
        counts = histogram[kind]
        if kind in (Failure.NONE, Failure.PARSE_ERROR) or not counts.sum():
            continue
        steps = np.repeat(np.arange(len(counts)), counts)
        median, latest = np.quantile(steps, (0.5, 0.9), method="lower").tolist()
        times[kind.label] = FailureTime(median=median, latest=latest)
    return times
