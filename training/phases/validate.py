"""Validate: the policy answers the fixed validation set, and every answer is verified."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from engineer.lake import lake_evidence
from jaxlake import Action, Failure, Statistics, statistics_rows, tabulate
from training.phases.stage_results import (
    StageResult,
    VerifiedAnswers,
    read_answers,
    validated_stage,
)
from training.phases.train import TrainedStage
from training.policy.policy import Policy
from training.rollout.instances import InstanceSet, draw_validation_cells
from training.rollout.judging import Verdict, judge
from training.rollout.sampler import Sampler
from training.run.active_run import ActiveRun
from training.run.directory import StageDirectory
from training.run.progress import console, track
from training.run.records import EpisodeRecord, Rates, ValidationRecord
from training.schema import RunConfig

CHUNK = 512
"""How many prompts the engine is given at a time, so that there is progress to show."""

_tabulate = jax.jit(tabulate)


def validation_set(config: RunConfig) -> InstanceSet:
    """Draw the fixed validation set; it depends on `validation` and the number of agents alone."""
    key = jax.random.key(config.validation.seed)
    boards, outcomes = draw_validation_cells(key, config, config.validation.per_cell)
    for outcome in outcomes:
        if outcome.missing:
            console.print(f"validation set: {outcome}", style="yellow")
    return boards


def validate(run: ActiveRun, sampler: Sampler, trained: TrainedStage | None = None) -> StageResult:
    """Answer the validation set with the weights that a stage ended with, and verify the answers.

    A result that is there, whole, is read back. Without `trained` it is that of stage 0.
    """
    stage = 0 if trained is None else trained.stage
    files = run.directory.stage(stage)
    if files.validation.exists():
        answers = read_answers(files)
    else:
        with run.timed("validate", stage):
            title = f"stage {stage}: validate"
            texts = answer(run.config, run.policy, sampler, run.validation, title=title)
            answers = verify_answers(run.config, stage, run.validation, texts)
            run.checkpoints.wait()  # what is said of the weights must not outlive them
            write_answers(files, answers)
        run.trackers.validation(run.step(stage, run.config.updates_per_stage), answers.rates)
    if trained is None:
        return validated_stage(run.config, stage, None, answers, (), {})
    environment = trained.boards.environment
    return validated_stage(
        run.config, stage, trained.configuration, answers, trained.updates, environment
    )


def answer(
    config: RunConfig, policy: Policy, sampler: Sampler, boards: InstanceSet, *, title: str
) -> list[str]:
    """Let the policy answer each board once, at the validation temperature."""
    prompts = [policy.encode_board(board) for board in boards]
    texts: list[str] = []
    with track(title, len(prompts)) as advance:
        for first in range(0, len(prompts), CHUNK):
            groups = sampler.sample(
                prompts[first : first + CHUNK],
                n=1,
                temperature=config.validation.temperature,
                max_tokens=config.prompt.max_tokens,
                stop_token_ids=policy.stop_ids,
                seed=config.validation.seed + first,
            )
            texts += [policy.decode(completion.token_ids) for (completion,) in groups]
            advance(len(texts))
    return texts


def verify_answers(
    config: RunConfig, stage: int, boards: InstanceSet, texts: Sequence[str]
) -> VerifiedAnswers:
    """Verify one answer per board."""
    verdict = judge(boards, texts, config.prompt)
    instances, outcomes, solutions = jax.tree.map(
        jnp.asarray, (boards.instances, verdict.outcomes, boards.solutions)
    )
    table: Statistics = jax.device_get(
        _tabulate(instances, solutions.needs_wait, outcomes, solutions=solutions)
    )
    return VerifiedAnswers(
        episodes=tuple(_episode(boards, row, text, verdict) for row, text in enumerate(texts)),
        evidence=lake_evidence(stage, table),
        rates=ValidationRecord(
            stage=stage,
            rows=tuple(_rates(row) for row in statistics_rows(table, by=("size",))),
            total=_rates(statistics_rows(table, by=())[0]),
        ),
    )


def write_answers(files: StageDirectory, answers: VerifiedAnswers) -> None:
    """Write the files of the Validate phase; `validation.json`, the last one, says it is done."""
    files.episodes.write(answers.episodes)
    files.failures.write(episode for episode in answers.episodes if not episode.valid)
    files.evidence.write(answers.evidence)
    files.validation.write(answers.rates)


def _episode(boards: InstanceSet, row: int, text: str, verdict: Verdict) -> EpisodeRecord:
    outcomes = verdict.outcomes
    answer = verdict.answers[row]
    plan = None
    if answer.plan is not None:
        plan = tuple(tuple(Action(one).name for one in actions) for actions in answer.plan)
    return EpisodeRecord(
        id=row,
        size=int(boards.instances.size[row]),
        grid=tuple(boards.grid(row)),
        needs_wait=bool(boards.solutions.needs_wait[row]),
        optimum=int(boards.solutions.sum_of_costs[row]),
        text=text,
        plan=plan,
        valid=bool(outcomes.valid[row]),
        optimal_sum_of_costs=bool(outcomes.optimal_sum_of_costs[row]),
        optimal_makespan=bool(outcomes.optimal_makespan[row]),
        failure=None if outcomes.valid[row] else Failure(int(outcomes.failure[row])).label,
        agent=_known(outcomes.agent[row]),
        time=_known(outcomes.time[row]),
        sum_of_costs=_known(outcomes.sum_of_costs[row]),
        reason=answer.reason,
    )


def _known(value: Any) -> int | None:
    return None if value < 0 else int(value)


def _rates(row: dict[str, Any]) -> Rates:
    row["count"] = row.pop("total")
    failures = {kind.label: row.pop(kind.label) for kind in Failure if kind is not Failure.NONE}
    return Rates(**row, failures=failures)
