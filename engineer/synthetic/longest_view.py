"""The longest possible context, to check token limits before a run."""

from collections.abc import Sequence

from engineer.context.blocks import CASE_LIMIT, SUMMARY_LIMIT
from engineer.context.view import FULL_DETAIL, StageView
from engineer.domain import Domain
from engineer.evidence import (
    AnswerStatistics,
    FailedCase,
    GroupEvidence,
    StageEvidence,
    StageHistory,
    Tally,
    TrainingEvidence,
)
from engineer.space import Configuration, answer_text

_LEVELS = 5
"""Number of levels per slice of the validation set, as in the paper's benchmark."""

_NOTES = "On 10x10 boards holes cause 41% of the failures, so hole_ratio goes from 0.35 to 0.2. "
"""A typical sentence, which fills texts of engineers and reviews to their maximum length."""


def longest_view(
    domain: Domain,
    current: Configuration,
    stages: int,
    instance: Sequence[str],
    *,
    answers: tuple[int, int] = (1_000, 10_000),
    reasoning_tokens: int = 0,
    can_roll_back: bool = True,
) -> StageView:
    """Return a view in which every block has its maximum length.

    The view shows the last stage after a rejected answer, with a full history. All groups have all
    kinds of failures, and failed cases and texts of models have their maximum length.

    Args:
        domain: The environment.
        current: A configuration of its space.
        stages: Number of stages of the run.
        instance: The lines of one of the largest instances.
        answers: Numbers of answers per group in validation and in a stage's training.
        reasoning_tokens: Maximum length of the engineer's reasoning.
        can_roll_back: Whether stages can be rolled back.
    """
    groups = domain.space.groups
    validation_tally, training_tally = (_make_tally(domain, count) for count in answers)
    evidence_of_group = GroupEvidence(
        **validation_tally.model_dump(),
        answer_statistics=_make_answer_statistics(),
        slices=_make_slices(domain, validation_tally),
    )
    case = FailedCase(
        group=groups[-1],
        failure=max(domain.failures, key=lambda label: len(label.name)).key,
        time=99,
        instance=tuple(instance),
        completion="",
        facts=(
            "optimal cost 99",
            _repeat("read as agent 0 RIGHT DOWN WAIT ", CASE_LIMIT),
            _repeat("from (10, 9) to (10, 9), ", CASE_LIMIT // 4),
        ),
    )
    evidence = StageEvidence(
        stage=stages,
        validation=dict.fromkeys(groups, evidence_of_group),
        training=_make_training_evidence(domain, training_tally),
        environment={group: {label.key: 0.123 for label in domain.statistics} for group in groups},
        failed_cases=(case,) * FULL_DETAIL.failed_cases,
    )
    rates = dict.fromkeys(groups, 1.0)
    history = tuple(
        StageHistory(
            stage=stage,
            configuration=current,
            decision="rolled_back",
            valid_before=rates,
            valid_after=rates,
            failures_before={group: {case.failure: 1.0} for group in groups},
            summary=_repeat(_NOTES, SUMMARY_LIMIT // 2),
        )
        for stage in range(1, stages)
    )
    return StageView(
        domain=domain,
        evidence=evidence,
        current=current,
        history=history,
        stages_left=0,
        reasoning_tokens=reasoning_tokens,
        notice=f"{_repeat(_NOTES, 250)} {answer_text(current)}" if can_roll_back else "",
        refusal=_repeat(_NOTES, CASE_LIMIT),
        refused_answer=_repeat('{"10":{"hole_ratio":0.15},', SUMMARY_LIMIT),
        valid_before=rates,
    )


def _make_tally(domain: Domain, num_answers: int) -> Tally:
    num_kinds = len(domain.failures) + 1
    count = num_answers // num_kinds
    return Tally(
        count=count * num_kinds,
        valid=count,
        scores={label.key: count for label in domain.scores},
        failures={label.key: count for label in domain.failures},
    )


def _make_slices(domain: Domain, tally: Tally) -> dict[str, dict[str, Tally]]:
    return {
        factor.name: dict.fromkeys(sorted(factor.levels, key=len)[-_LEVELS:], tally)
        for factor in domain.factors.values()
    }


def _make_answer_statistics() -> AnswerStatistics:
    return AnswerStatistics(readable=1.0, truncated=1.0, tokens=9_999.0, without_success=1.0)


def _make_training_evidence(domain: Domain, tally: Tally) -> TrainingEvidence:
    groups = domain.space.groups
    return TrainingEvidence(
        updates=1_000,
        instances=tally.count,
        reward_first=0.12,
        reward_last=0.12,
        zero_variance_share=1.0,
        clip_share=1.0,
        entropy=0.12,
        completion_length=9_999.0,
        learnability=dict.fromkeys(groups, 0.12),
        rollouts=dict.fromkeys(groups, tally),
        answer_statistics=dict.fromkeys(groups, _make_answer_statistics()),
    )


def _repeat(text: str, length: int) -> str:
    return (text * length)[:length]
