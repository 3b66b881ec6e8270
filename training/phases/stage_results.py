"""The results of stages, and the records and views that later phases derive from them.

The loop keeps a list of `StageResult`, in which `results[S]` is stage S. Stage 0 is the state
before the first stage.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from engineer import (
    AnswerStatistics,
    Configuration,
    DesignSettings,
    FailedCase,
    StageEvidence,
    StageHistory,
    StageView,
    StepLimit,
    Tally,
    TrainingEvidence,
)
from engineer.evidence import DecisionKind
from engineer.gate import has_fallen, rollback_notice
from jaxlake.statistics.paired import PairedComparison, compare
from training.environments.catalogue import get_domain
from training.environments.failure_facts import failure_facts
from training.errors import UserError
from training.run.answer_records import compute_validation_rates, make_stage_evidence
from training.run.directory import RunDirectory
from training.run.records import (
    DecisionRecord,
    EpisodeRecord,
    GateRecord,
    GroupMetrics,
    StartRecord,
    StoredHistory,
    UpdateMetrics,
    ValidationRecord,
)
from training.schema import RunConfig

FAILED_CASES = 8
"""Number of failed answers in the evidence of a stage; the context shows the first of them."""


@dataclass(frozen=True)
class StageResult:
    """The result of one stage; optional fields are None for stage 0."""

    stage: int
    configuration: Configuration | None  # of the training instances
    episodes: tuple[EpisodeRecord, ...]  # answers to the validation set, in its order
    # For the engineer: rates, some failed answers, statistics of updates and training instances.
    evidence: StageEvidence
    start: StartRecord | None = None  # stage 0 only, if the run started from another run
    gate: GateRecord | None = None  # whether the stage was rolled back; None before the gate
    decision: DecisionRecord | None = None  # configuration of the next stage
    notes: str = ""  # the engineer's notes for the next stage; often empty

    @cached_property
    def validation(self) -> ValidationRecord:
        """The rates on the validation set, by group."""
        return compute_validation_rates(self.stage, self.episodes)


def read_stage_results(directory: RunDirectory, config: RunConfig) -> list[StageResult]:
    """Return the results of stage 0 and all validated stages from disk."""
    updates = directory.updates()
    results: list[StageResult] = []
    while (files := directory.stage(len(results))).episodes.exists():
        stage = len(results)
        result = make_stage_result(
            config,
            stage,
            files.configuration.read() if stage else None,
            tuple(files.episodes.read()),
            [update for update in updates if update.stage == stage],
            files.environment.read() if files.environment.exists() else {},
        )
        results.append(
            replace(
                result,
                start=files.start.read() if files.start.exists() else None,
                gate=files.gate.read() if files.gate.exists() else None,
                decision=files.decision.read() if files.decision.exists() else None,
                notes=files.notes.read() if files.notes.exists() else "",
            )
        )
    return results


def make_stage_result(
    config: RunConfig,
    stage: int,
    configuration: Configuration | None,
    episodes: tuple[EpisodeRecord, ...],
    updates: Sequence[UpdateMetrics],
    statistics: dict[str, dict[str, float]],
) -> StageResult:
    """Return the result of a stage after its validation; stage 0 has no updates."""
    failures = _select_typical_failures(episodes)[:FAILED_CASES]
    evidence = make_stage_evidence(stage, episodes).model_copy(
        update={
            "training": _training_evidence(config, updates) if updates else None,
            "environment": statistics,
            "failed_cases": tuple(
                FailedCase(
                    group=episode.group,
                    failure=failure,
                    time=episode.time,
                    instance=episode.lines,
                    completion="" if episode.parsed else episode.text,
                    facts=failure_facts(episode),
                )
                for failure, episode in failures
            ),
        }
    )
    return StageResult(stage, configuration, episodes, evidence)


def get_configuration(
    config: RunConfig, results: Sequence[StageResult], stage: int
) -> Configuration:
    """Return the configuration of a stage: the initial one, or the engineer's last decision."""
    if stage == 1:
        return config.environment.initial
    return get_decision(results, stage - 1).configuration


def get_decision(results: Sequence[StageResult], stage: int) -> DecisionRecord:
    """Return the engineer's decision after a stage; raise a `UserError` if there is none yet."""
    decision = results[stage].decision if stage < len(results) else None
    if decision is None:
        raise UserError(f"stage {stage}: has no decision yet")
    return decision


def get_reference_stage(results: Sequence[StageResult], stage: int) -> int:
    """Return the stage whose final weights a stage starts with; rollbacks skip stages."""
    gate = results[stage - 1].gate
    return gate.reference if gate is not None and gate.restored == "checkpoint" else stage - 1


def _compare(reference: StageResult, result: StageResult) -> PairedComparison:
    """Return the paired comparison of two stages on the validation set."""
    if len(reference.episodes) != len(result.episodes):
        raise UserError(
            f"stages {reference.stage} and {result.stage} must have the same number of episodes, "
            f"got {len(reference.episodes)} and {len(result.episodes)}"
        )
    return compare(
        [episode.valid for episode in reference.episodes],
        [episode.valid for episode in result.episodes],
    )


def make_gate_record(config: RunConfig, results: Sequence[StageResult], stage: int) -> GateRecord:
    """Decide from the validations whether to roll back a stage.

    A rollback restores the configuration that was in force when the stage was designed. The first
    stage keeps its configuration.
    """
    settings = config.engineer.gate
    reference = get_reference_stage(results, stage)
    comparison = _compare(results[reference], results[stage])
    restored = None
    if settings.rollback != "off" and has_fallen(comparison, settings.z):
        restored = settings.rollback
    previous_configuration = _get_previous_configuration(results, stage) if restored else None
    trained = get_configuration(config, results, stage)
    current = trained if previous_configuration is None else previous_configuration
    notice = ""
    if restored:
        notice = rollback_notice(comparison, restored, trained=trained, current=current)
    return GateRecord(
        reference=reference,
        comparison=comparison,
        restored=restored,
        configuration=current,
        notice=notice,
    )


def make_stage_view(config: RunConfig, results: Sequence[StageResult], stage: int) -> StageView:
    """Return the information that the engineer gets after a stage, before or after the gate."""
    gate = results[stage].gate or make_gate_record(config, results, stage)
    evidence = results[stage].evidence
    rolled_back_validation = evidence.validation if gate.restored == "checkpoint" else {}
    if gate.restored == "checkpoint":
        source = results[gate.reference].evidence
        fields = ("validation", "failed_cases")
        evidence = evidence.model_copy(update={name: getattr(source, name) for name in fields})
    reference = results[get_reference_stage(results, stage)] if stage else results[0]
    return StageView(
        domain=get_domain(config),
        evidence=evidence,
        current=gate.configuration,
        history=tuple(_make_history(config, results, stage)),
        notice=gate.notice,
        trained=get_configuration(config, results, stage),
        stages_left=config.stages.count - stage,
        reasoning_tokens=config.engineer.reasoning_tokens,
        designed_from=_get_previous_configuration(results, stage) if stage else None,
        valid_before=reference.evidence.valid_rates() if stage else {},
        rolled_back_validation=rolled_back_validation,
    )


def _get_previous_configuration(results: Sequence[StageResult], stage: int) -> Configuration | None:
    """Return the configuration in force when a stage was designed; None for the first stage."""
    previous_result = results[stage - 1]
    if previous_result.gate is not None:
        return previous_result.gate.configuration
    return None if previous_result.start is None else previous_result.start.designed_from


def make_start_record(config: RunConfig, results: Sequence[StageResult]) -> StartRecord:
    """Return the history of `results` for the engineer of a run that starts after them."""
    next_stage = len(results)
    history = _make_history(config, results, next_stage)
    entries = [dict(entry) | {"stage": entry.stage - results[-1].stage} for entry in history]
    return StartRecord(
        history=tuple(map(StoredHistory.model_validate, entries)),
        decision=_get_decision_kind(results, next_stage),
        designed_from=_get_previous_configuration(results, next_stage),
    )


def make_design_settings(config: RunConfig) -> DesignSettings:
    """Return the settings of the Design phase in the configuration."""
    settings = config.engineer
    return DesignSettings(
        blocks=settings.blocks,
        style=settings.style,
        max_context_tokens=settings.max_context_tokens,
        step_limit=StepLimit(max_step=settings.max_step),
    )


def _make_history(
    config: RunConfig, results: Sequence[StageResult], stage: int
) -> list[StageHistory]:
    """Return the history of earlier stages for the engineer, oldest first."""
    start = results[0].start
    history: list[StageHistory] = [] if start is None else list(start.history)
    for result in results[1:stage]:
        reference = results[get_reference_stage(results, result.stage)]
        if result.gate is not None and result.gate.restored:
            kind: DecisionKind = "rolled_back"
        else:
            kind = _get_decision_kind(results, result.stage)
        configuration = get_configuration(config, results, result.stage)
        entry = StageHistory.from_evidence(reference.evidence, result.evidence, configuration, kind)
        history.append(entry.model_copy(update={"summary": result.notes}))
    return history


def _get_decision_kind(results: Sequence[StageResult], stage: int) -> DecisionKind:
    """Return the origin of a stage's configuration."""
    if stage > 1:
        return get_decision(results, stage - 1).kind
    start = results[0].start
    return "initial" if start is None else start.decision


def _training_evidence(config: RunConfig, updates: Sequence[UpdateMetrics]) -> TrainingEvidence:
    """Return statistics of a stage's updates for the engineer."""
    tenth = max(1, len(updates) // 10)
    metrics = _group_metrics(config, updates)
    return TrainingEvidence(
        updates=len(updates),
        instances=len(updates) * config.grpo.prompts_per_update,
        resampled=sum(update.resampled_boards or 0 for update in updates),
        reward_first=_mean([update.reward_mean for update in updates[:tenth]]),
        reward_last=_mean([update.reward_mean for update in updates[-tenth:]]),
        zero_variance_share=_mean([update.zero_variance_share for update in updates]),
        clip_share=_mean([update.clip_share for update in updates]),
        entropy=_mean([update.entropy for update in updates]),
        completion_length=_mean([update.completion_length for update in updates]),
        learnability={
            group: _mean([row.learnability for row in rows]) for group, rows in metrics.items()
        },
        rollouts={group: _sum_tallies(rows) for group, rows in metrics.items()},
        answer_statistics={group: _answer_statistics(rows) for group, rows in metrics.items()},
    )


def _group_metrics(
    config: RunConfig, updates: Sequence[UpdateMetrics]
) -> dict[str, list[GroupMetrics]]:
    """Return the metrics of each group over all updates, in the order of the space."""
    metrics = {
        group: [update.by_group[group] for update in updates if group in update.by_group]
        for group in get_domain(config).space.groups
    }
    return {group: rows for group, rows in metrics.items() if rows}


def _answer_statistics(rows: Sequence[GroupMetrics]) -> AnswerStatistics:
    """Return the statistics of the answers to one group's training instances."""
    count = sum(row.count for row in rows)
    return AnswerStatistics(
        readable=sum(row.readable for row in rows) / count,
        truncated=sum(row.truncated for row in rows) / count,
        tokens=sum(row.tokens * row.count for row in rows) / count,
        without_success=sum(row.without_success for row in rows) / sum(row.prompts for row in rows),
    )


def _sum_tallies(rows: Sequence[Tally]) -> Tally:
    """Return the sum of counts of one group."""
    scores: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    for row in rows:
        scores.update(row.scores)
        failures.update(row.failures)
    return Tally(
        count=sum(row.count for row in rows),
        valid=sum(row.valid for row in rows),
        scores=dict(scores),
        failures=dict(sorted(failures.items())),
    )


def _select_typical_failures(episodes: Sequence[EpisodeRecord]) -> list[tuple[str, EpisodeRecord]]:
    """Return one case per group and kind of failure, most frequent kinds first."""
    episodes_by_failure: dict[tuple[str, str], list[EpisodeRecord]] = defaultdict(list)
    for episode in episodes:
        if episode.failure is not None:
            episodes_by_failure[episode.group, episode.failure].append(episode)
    return [
        (failure, cases[len(cases) // 2])
        for (_, failure), cases in sorted(
            episodes_by_failure.items(), key=lambda item: -len(item[1])
        )
    ]


def _mean(values: Sequence[float]) -> float:
    # fmean rounds differently, and contexts must be reproducible byte for byte.
    return sum(values) / len(values)
