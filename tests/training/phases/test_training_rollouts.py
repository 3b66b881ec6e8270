"""The engineer's evidence from training: the answers to the stage's instances by map size."""

from typing import Any

import pytest

from tests.paths import TINY
from tests.training.update_records import make_update
from training.phases.stage_results import _training_evidence
from training.run.records import GroupMetrics
from training.schema import load


def make_metrics(valid: int, failures: dict[str, int], **changes: Any) -> GroupMetrics:
    scores = {"optimal_sum_of_costs": valid - 1}
    counts: dict[str, Any] = {"count": 10, "valid": valid, "scores": scores, "failures": failures}
    defaults = {"readable": 10, "truncated": 0, "tokens": 20.0, "prompts": 5, "without_success": 0}
    return GroupMetrics(**counts, reward=0.5, learnability=0.1, **(defaults | changes))


GROUPS = [
    {"2": make_metrics(9, {"hole": 1}), "3": make_metrics(1, {"hole": 9})},
    {"3": make_metrics(4, {"hole": 2, "off_board": 4}, without_success=1)},
    {"2": make_metrics(10, {}), "3": make_metrics(5, {"parse_error": 5}, readable=5, tokens=50)},
]
UPDATES = [make_update(1, number, by_group=groups) for number, groups in enumerate(GROUPS, 1)]


def test_training_evidence_adds_up_the_updates_by_map_size():
    evidence = _training_evidence(load(TINY), UPDATES)
    assert evidence.rollouts["2"].model_dump() == {
        "count": 20,
        "valid": 19,
        "scores": {"optimal_sum_of_costs": 17},
        "failures": {"hole": 1},
    }
    assert evidence.rollouts["3"].failures == {"hole": 11, "off_board": 4, "parse_error": 5}
    assert evidence.answer_statistics["3"].model_dump() == {
        "readable": pytest.approx(25 / 30),
        "truncated": 0.0,
        "tokens": 30.0,
        "without_success": pytest.approx(1 / 15),
    }


def test_training_evidence_smooths_rewards():
    updates = [make_update(1, n, reward_mean=n / 100) for n in range(1, 41)]
    evidence = _training_evidence(load(TINY), updates)
    assert evidence.reward_first == pytest.approx(0.025)
    assert evidence.reward_last == pytest.approx(0.385)
