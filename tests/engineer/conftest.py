"""Shared fixtures of the engineer's tests."""

import pytest

from engineer import (
    AnswerStatistics,
    Domain,
    FailedCase,
    GroupEvidence,
    StageEvidence,
    StageHistory,
    StageView,
    Tally,
    TrainingEvidence,
)
from engineer.lake import Bounds, LakeConfiguration, lake_domain
from tests.engineer.builders import BOUNDS, CURRENT, from_rows


@pytest.fixture
def bounds() -> Bounds:
    return BOUNDS


@pytest.fixture
def domain(bounds: Bounds) -> Domain:
    return lake_domain(bounds)


@pytest.fixture
def current() -> LakeConfiguration:
    return CURRENT


def make_tally(tally_class, counts, failures, **fields):
    """Return a tally from the counts: all, valid, optimal sum of costs, optimal makespan."""
    count, valid, *optimal_counts = counts
    scores = dict(zip(("optimal_sum_of_costs", "optimal_makespan"), optimal_counts, strict=True))
    return tally_class(count=count, valid=valid, scores=scores, failures=failures, **fields)


@pytest.fixture
def evidence() -> StageEvidence:
    return StageEvidence(
        stage=3,
        validation={
            "3": make_tally(
                GroupEvidence,
                (50, 41, 30, 33),
                {"hole": 5, "swapping_conflict": 4},
                answer_statistics=AnswerStatistics(readable=0.98, truncated=0.02, tokens=25),
                slices={
                    "hole_ratio": {"0.2": make_tally(Tally, (20, 19, 15, 16), {"hole": 1})},
                    "waits": {
                        "wait needed": make_tally(Tally, (7, 3, 2, 3), {"swapping_conflict": 4})
                    },
                },
            ),
            "4": make_tally(
                GroupEvidence, (50, 25, 11, 12), {"parse_error": 1, "goal_not_reached": 24}
            ),
            "5": make_tally(GroupEvidence, (50, 4, 1, 1), {"off_board": 6, "vertex_conflict": 40}),
        },
        training=TrainingEvidence(
            updates=40,
            instances=1280,
            reward_first=0.31,
            reward_last=0.48,
            zero_variance_share=0.35,
            clip_share=0.02,
            entropy=0.44,
            completion_length=21.3,
            learnability={"3": 0.11, "4": 0.23, "5": 0.02},
            rollouts={"3": Tally(count=40, valid=28, failures={"hole": 12})},
            answer_statistics={
                "3": AnswerStatistics(readable=1.0, truncated=0.0, tokens=20, without_success=0.12)
            },
        ),
        environment={
            "3": {
                "acceptance": 0.41,
                "mean_sum_of_costs": 5.27,
                "conflict_density": 0.3,
                "missing": 0,
            },
            "5": {"acceptance": 0.0125, "mean_sum_of_costs": 9.5},
        },
        failed_cases=(
            FailedCase(
                group="3",
                failure="hole",
                time=2,
                instance=("S F G", "s H F", "g F F"),
                completion="RIGHT DOWN",
                facts=("optimal cost 6", "read as Agent 0: RIGHT DOWN"),
            ),
            FailedCase(group="4", failure="parse_error", completion="I would rather not"),
        ),
    )


@pytest.fixture
def history(current: LakeConfiguration) -> list[StageHistory]:
    return [
        StageHistory(
            stage=stage,
            configuration=current,
            decision=decision,
            valid_before={"3": 0.6, "4": 0.3, "5": 0.0},
            valid_after={"3": 0.7, "4": 0.4, "5": 0.04},
            failures_before={"3": {"hole": 0.25, "off_board": 0.15}, "4": {}, "5": {"hole": 0.0}},
            summary=summary,
        )
        for stage, decision, summary in (
            (1, "initial", "Old notes."),
            (2, "accepted", "Waits were too many on small boards."),
        )
    ]


@pytest.fixture
def view(
    domain: Domain, evidence: StageEvidence, current: LakeConfiguration, history: list[StageHistory]
) -> StageView:
    previous = from_rows((0.45, 0.25, 0.25), (0.3, 0.1, 0.5), (0.25, 0.0, 1.0))
    return StageView(
        domain, evidence, current, history, designed_from=previous, valid_before={"3": 0.6}
    )
