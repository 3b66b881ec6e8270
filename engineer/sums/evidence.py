"""Answers to a validation set of sums as evidence."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from engineer.evidence import (
    FailedCase,
    FailureTime,
    GroupEvidence,
    StageEvidence,
    Tally,
    TrainingEvidence,
)
from engineer.sums.domain import FAILURES
from engineer.sums.instance import Sum
from engineer.sums.verifier import Verdict, verify

_Row = tuple[Sum, str, Verdict]

_SLICES: dict[str, Callable[[Sum], str]] = {
    "carries": lambda one: f"{one.carries} column{'s' * (one.carries != 1)}",
    "operands": lambda one: f"{len(one.operands)} operands",
}


def sums_evidence(
    stage: int,
    instances: Sequence[Sum],
    answers: Sequence[str],
    *,
    training: TrainingEvidence | None = None,
    environment: Mapping[str, Mapping[str, float]] | None = None,
    failed_cases: int = 4,
) -> StageEvidence:
    """Verify the answers and count.

    Args:
        stage: the stage that was just trained, 0 for the warm start.
        instances: the validation set.
        answers: one text for each of them.
        training: the stage's training details, None if it had no training.
        environment: by group, what `engineer.sums.statistics` says of the stage's instances.
        failed_cases: the most failed answers to show: one of each group and kind of failure, the
            most frequent ones first.

    Raises:
        ValueError: if there are no instances, or not one answer for each.
    """
    if not instances or len(instances) != len(answers):
        raise ValueError(
            f"stage {stage} needs one answer for each of at least one instance, got"
            f" {len(answers)} answers to {len(instances)} instances"
        )
    rows = [
        (one, answer, verify(one, answer)) for one, answer in zip(instances, answers, strict=True)
    ]
    validation = {}
    for digits in sorted({one.digits for one in instances}):
        group = [row for row in rows if row[0].digits == digits]
        slices = {factor: _slice(group, level) for factor, level in _SLICES.items()}
        validation[str(digits)] = GroupEvidence(**dict(_tally(group)), slices=slices)
    return StageEvidence(
        stage=stage,
        validation=validation,
        failure_times=_failure_times(rows),
        training=training,
        environment={group: dict(values) for group, values in (environment or {}).items()},
        failed_cases=_failed_cases(rows)[:failed_cases],
    )


def _tally(rows: Sequence[_Row]) -> Tally:
    failures: Counter[str] = Counter(verdict.failure for *_, verdict in rows if verdict.failure)
    return Tally(
        count=len(rows),
        valid=len(rows) - failures.total(),
        failures={term.key: failures[term.key] for term in FAILURES if failures[term.key]},
    )


def _slice(rows: Sequence[_Row], level: Callable[[Sum], str]) -> dict[str, Tally]:
    levels = sorted({level(one) for one, _, _ in rows})
    return {name: _tally([row for row in rows if level(row[0]) == name]) for name in levels}


def _failure_times(rows: Sequence[_Row]) -> dict[str, FailureTime]:
    times = {}
    for term in FAILURES:
        columns = [
            verdict.time
            for _, _, verdict in rows
            if verdict.failure == term.key and verdict.time is not None
        ]
        if columns:
            times[term.key] = FailureTime(
                median=float(np.quantile(columns, 0.5, method="lower")),
                latest=float(np.quantile(columns, 0.9, method="lower")),
            )
    return times


def _failed_cases(rows: Sequence[_Row]) -> tuple[FailedCase, ...]:
    first: dict[tuple[int, str], FailedCase] = {}
    counts: Counter[tuple[int, str]] = Counter()
    for one, answer, verdict in rows:
        if verdict.failure is None:
            continue
        place = (one.digits, verdict.failure)
        counts[place] += 1
        if place not in first:
            first[place] = FailedCase(
                group=str(one.digits),
                failure=verdict.failure,
                time=verdict.time,
                instance=(one.question.strip(),),
                completion=answer,
            )
    return tuple(first[place] for place, _ in counts.most_common())
