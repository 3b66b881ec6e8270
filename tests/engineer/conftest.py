"""Values that several tests of the engineer start from."""

import pytest

from engineer import (
    Domain,
    FailedCase,
    FailureTime,
    GroupEvidence,
    StageEvidence,
    StageHistory,
    StageView,
    Tally,
    TrainingEvidence,
)
from engineer.lake import Bounds, LakeConfiguration, lake_domain
from tests.engineer.builders import BOUNDS, CURRENT


@pytest.fixture
def bounds() -> Bounds:
    return BOUNDS


@pytest.fixture
def domain(bounds: Bounds) -> Domain:
    return lake_domain(bounds)


@pytest.fixture
def current() -> LakeConfiguration:
    return CURRENT


@pytest.fixture
def evidence() -> StageEvidence:
    return StageEvidence(
        stage=3,
        validation={
            "3": GroupEvidence(
                count=50,
                valid=41,
                scores={"optimal_sum_of_costs": 30, "optimal_makespan": 33},
                failures={"hole": 5, "swapping_conflict": 4},
                slices={
                    "holes": {
                        "10-19%": Tally(
                            count=20,
                            valid=19,
                            scores={"optimal_sum_of_costs": 15, "optimal_makespan": 16},
                            failures={"hole": 1},
                        )
                    },
                    "waits": {
                        "wait needed": Tally(
                            count=7,
                            valid=3,
                            scores={"optimal_sum_of_costs": 2, "optimal_makespan": 3},
                            failures={"swapping_conflict": 4},
                        )
                    },
                },
            ),
            "4": GroupEvidence(
                count=50,
                valid=25,
                scores={"optimal_sum_of_costs": 11, "optimal_makespan": 12},
                failures={"parse_error": 1, "goal_not_reached": 24},
            ),
            "5": GroupEvidence(
                count=50,
                valid=4,
                scores={"optimal_sum_of_costs": 1, "optimal_makespan": 1},
                failures={"off_board": 6, "vertex_conflict": 40},
            ),
        },
        failure_times={
            "hole": FailureTime(median=2, latest=5),
            "vertex_conflict": FailureTime(median=3, latest=11),
        },
        training=TrainingEvidence(
            updates=40,
            instances=1280,
            reward_first=0.31,
            reward_last=0.48,
            groups_without_variance=0.35,
            clip_share=0.02,
            entropy=0.44,
            completion_length=21.3,
            learnability={"3": 0.11, "4": 0.23, "5": 0.02},
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
    return StageView(domain, evidence, current, history)
