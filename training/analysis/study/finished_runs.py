"""Read the finished runs of a study as arrays."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from engineer import Costs
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
"""The fields of the compared rates."""

_VALID = METRICS.index("valid")

_MIN_P_VALUE = 1e-6
"""If the initial rates of two runs differ with a smaller p-value, their initial models differ."""

KINDS = ("valid", *(kind.label for kind in Failure if kind is not Failure.NONE))
"""The kinds of answers: valid, or the kind of the first failure."""


@dataclass(frozen=True)
class FinishedRun:
    """A run of T stages, with a validation before the first stage and after each stage."""

    engineer: str
    seed: int
    boards: tuple[tuple[str, ...], ...]  # rows of each of the B validation boards
    scores: np.ndarray  # bool (len(METRICS), T + 1, B)
    kinds: np.ndarray  # int (T + 1, B), index into KINDS
    isr: float  # the individual success rate, 0..1, of the last validation
    configurations: tuple[KnobValues, ...]  # of stages 1 to T, by map size and knob
    ledger: Mapping[str, float]  # costs
    designs: tuple[str, ...]  # kinds of the decisions after stages 1 to T - 1
    rolled_back: int  # number of stages among 1 to T - 1 that the gate rolled back
    reviews: tuple[str, ...]  # kinds of all answers of the engineer in stages 1 to T


def read_study(
    study: Study, directory: StudyDirectory
) -> tuple[list[FinishedRun], list[dict[str, Any]]]:
    """Return the finished runs in the study's order, and the reasons why others have no result.

    Raises:
        UserError: A file is damaged, or the runs have different boards or initial models.
    """
    runs: list[FinishedRun] = []
    unfinished_runs = []
    for run in study.runs:
        run_directory = directory.run_directory(run)
        if run_directory.finished():
            config = study.make_run_config(run, directory.policy)
            runs.append(read_run(run_directory, run, config))
        else:
            reason = "not finished" if run_directory.path.exists() else "not started"
            unfinished_runs.append({"engineer": run.engineer, "seed": run.seed, "reason": reason})
    for finished_run in runs[1:]:
        _check_comparable(runs[0], finished_run, directory)
    return runs, unfinished_runs


def _check_comparable(first_run: FinishedRun, run: FinishedRun, directory: StudyDirectory) -> None:
    """Raise a `UserError` if two runs have different validation boards or initial models."""
    name, first_name = (f"{row.engineer}, seed {row.seed}" for row in (run, first_run))
    if run.boards != first_run.boards:
        raise UserError(
            f"{directory.path}: {name} was validated on other boards than {first_name}, so they "
            "can't be compared"
        )
    # Rounding on different hardware may change single answers, but not the rate significantly.
    first_valid, valid = first_run.scores[_VALID, 0], run.scores[_VALID, 0]
    if compare(first_valid.tolist(), valid.tolist()).p_value < _MIN_P_VALUE:
        raise UserError(
            f"{directory.path}: {name} began with another model than {first_name}: their valid "
            f"rates before training are {valid.mean():.1%} and {first_valid.mean():.1%}"
        )


def read_run(directory: RunDirectory, run: StudyRun, expected: RunConfig) -> FinishedRun:
    """Return a finished run; raise a `UserError` if its configuration is not the expected one."""
    config = check_configuration(directory, run, expected)
    stages = [directory.stage(stage) for stage in range(config.stages.count + 1)]
    answers = [stage.episodes.read() for stage in stages]
    boards = tuple(episode.lines for episode in answers[0])
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
            [[[row.succeeds(m) for row in episodes] for episodes in answers] for m in METRICS]
        ),
        kinds=np.array(
            [[KINDS.index(row.failure or "valid") for row in episodes] for episodes in answers]
        ),
        isr=compute_validation_rates(0, answers[-1]).total.isr or 0.0,
        configurations=tuple(stage.configuration.read().values() for stage in stages[1:]),
        ledger=_compute_ledger(
            directory, config, sum((decision.spent for decision in decisions), Costs())
        ),
        designs=tuple(decision.kind for decision in decisions[:-1]),
        rolled_back=sum(
            stage.gate.exists() and stage.gate.read().restored is not None for stage in stages[1:-1]
        ),
        reviews=tuple(answer.kind for stage in stages[1:] for answer in stage.answers.read()),
    )


def _compute_ledger(directory: RunDirectory, config: RunConfig, costs: Costs) -> dict[str, float]:
    metrics = directory.metrics.read()
    updates = {
        (record.stage, record.update): record.resampled_boards or 0
        for record in metrics
        if isinstance(record, UpdateMetrics)
    }
    timings = [(timing.phase, sum(timing.seconds.values())) for timing in directory.timings.read()]
    return {
        # Training boards: all prompts of each update, including the resampled ones.
        "training_instances": len(updates) * config.grpo.prompts_per_update + sum(updates.values()),
        "rehearsed_designs": costs.rehearsed_designs,
        "engineer_tokens": costs.engineer_tokens,
        "probe_rollouts": costs.probe_rollouts,
        "design_seconds": sum(seconds for phase, seconds in timings if phase == "design"),
        "wall_seconds": sum(float(seconds) for _, seconds in timings),
    }
