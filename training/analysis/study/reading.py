"""Read the finished runs of a study as arrays; damaged or inconsistent files are errors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from engineer import Spent
from engineer.space import KnobValues
from jaxlake import Failure
from jaxlake.statistics.paired import compare
from training.analysis import METRIC_NAMES
from training.analysis.study.config import Study, StudyRun
from training.analysis.study.directory import StudyDirectory, check_configuration
from training.errors import UserError
from training.run.answer_records import compute_validation_rates
from training.run.directory import RunDirectory
from training.run.records import UpdateMetrics
from training.schema import RunConfig

METRICS = tuple(METRIC_NAMES)
"""The compared rates, by field."""

_VALID = METRICS.index("valid")

_MIN_P_VALUE = 1e-6
"""Minimum p-value at which two runs may have the same initial model."""

KINDS = ("valid", *(kind.label for kind in Failure if kind is not Failure.NONE))
"""The kinds of answers: valid, or the first failure."""


@dataclass(frozen=True)
class FinishedRun:
    """One run: T stages of training, with a validation before the first and after each."""

    engineer: str
    seed: int
    boards: tuple[tuple[str, ...], ...]  # the rows of the B boards that every run answers
    scores: np.ndarray  # bool (len(METRICS), T + 1, B)
    kinds: np.ndarray  # int (T + 1, B), index into KINDS
    isr: float  # the individual success rate, 0..1, of the last validation
    configurations: tuple[KnobValues, ...]  # of stages 1 to T, by map size and knob
    ledger: Mapping[str, float]  # costs
    designs: tuple[str, ...]  # kinds of the decisions that were trained on, of stages 1 to T - 1
    rolled_back: int  # number of stages 1 to T - 1 that the gate rolled back
    reviews: tuple[str, ...]  # kinds of all answers of the engineer, retries and stage T included


def read_study(
    study: Study, directory: StudyDirectory
) -> tuple[list[FinishedRun], list[dict[str, Any]]]:
    """Return the finished runs in the study's order, and why the others have no result."""
    runs: list[FinishedRun] = []
    unfinished = []
    for run in study.runs:
        files = directory.run(run)
        if files.finished():
            runs.append(read_run(files, run, study.config_of(run, directory.policy)))
        else:
            reason = "not finished" if files.path.exists() else "not started"
            unfinished.append({"engineer": run.engineer, "seed": run.seed, "reason": reason})
    for one in runs[1:]:
        if one.boards != runs[0].boards:
            raise UserError(
                f"{directory.path}: {one.engineer}, seed {one.seed} was validated on other boards "
                f"than {runs[0].engineer}, seed {runs[0].seed}; they can't be paired"
            )
        # Rounding on different hardware may change single answers, but not the rate significantly.
        began, first = one.scores[_VALID, 0], runs[0].scores[_VALID, 0]
        if compare(first.tolist(), began.tolist()).p_value < _MIN_P_VALUE:
            raise UserError(
                f"{directory.path}: {one.engineer}, seed {one.seed} began with another model than "
                f"{runs[0].engineer}, seed {runs[0].seed}: before training {began.mean():.1%} of "
                f"its answers are valid, {first.mean():.1%} of the other one's"
            )
    return runs, unfinished


def read_run(directory: RunDirectory, run: StudyRun, expected: RunConfig) -> FinishedRun:
    """Return one finished run; raise a `UserError` if its configuration is not as expected."""
    config = check_configuration(directory, run, expected)
    stages = [directory.stage(stage) for stage in range(config.stages.count + 1)]
    answers = [stage.episodes.read() for stage in stages]
    boards = tuple(answer.lines for answer in answers[0])
    for stage, episodes in zip(stages, answers, strict=True):
        if not episodes:
            raise UserError(f"{stage.episodes.path}: holds no answers")
        if tuple(episode.lines for episode in episodes) != boards:
            raise UserError(f"{stage.path}: was validated on other boards than {stages[0].path}")
    decisions = [stage.decision.read() for stage in stages[1:]]
    return FinishedRun(
        engineer=run.engineer,
        seed=run.seed,
        boards=boards,
        scores=np.array(
            [[[one.succeeds(m) for one in episodes] for episodes in answers] for m in METRICS]
        ),
        kinds=np.array([[KINDS.index(one.failure or "valid") for one in row] for row in answers]),
        isr=compute_validation_rates(0, answers[-1]).total.isr or 0.0,
        configurations=tuple(stage.configuration.read().values() for stage in stages[1:]),
        ledger=_compute_ledger(
            directory, config, sum((decision.spent for decision in decisions), Spent())
        ),
        designs=tuple(decision.kind for decision in decisions[:-1]),
        rolled_back=sum(
            stage.gate.exists() and stage.gate.read().restored is not None for stage in stages[1:-1]
        ),
        reviews=tuple(answer.kind for stage in stages[1:] for answer in stage.answers.read()),
    )


def _compute_ledger(directory: RunDirectory, config: RunConfig, spent: Spent) -> dict[str, float]:
    metrics = directory.metrics.read()
    updates = {
        (record.stage, record.update): record.resampled_boards or 0
        for record in metrics
        if isinstance(record, UpdateMetrics)
    }
    seconds = [(timing.phase, sum(timing.seconds.values())) for timing in directory.timings.read()]
    return {
        # Training boards: all prompts of each update, including the resampled ones.
        "training_instances": len(updates) * config.grpo.prompts_per_update + sum(updates.values()),
        "rehearsed_designs": spent.rehearsed_designs,
        "engineer_tokens": spent.engineer_tokens,
        "probe_rollouts": spent.probe_rollouts,
        "design_seconds": sum(took for phase, took in seconds if phase == "design"),
        "wall_seconds": sum(float(took) for _, took in seconds),
    }
