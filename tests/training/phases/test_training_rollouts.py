"""What the engineer reads of training answers: those of the stage's last updates, by map size."""

from typing import Any

from tests.paths import TINY
from tests.training.update_records import update_record
from training.phases.stage_results import _training_evidence
from training.run.records import GroupMetrics
from training.schema import load


def size(valid: int, failures: dict[str, int]) -> GroupMetrics:
    scores = {"optimal_sum_of_costs": valid - 1}
    counts: dict[str, Any] = {"count": 10, "valid": valid, "scores": scores, "failures": failures}
    return GroupMetrics(**counts, reward=0.5, learnability=0.1)


UPDATES = [
    update_record(1, 1, by_group={"2": size(9, {"hole": 1}), "3": size(1, {"hole": 9})}),
    update_record(1, 2, by_group={"3": size(4, {"hole": 2, "off_board": 4})}),
    update_record(1, 3, by_group={"2": size(10, {}), "3": size(5, {"parse_error": 5})}),
]


def test_the_answers_of_the_last_updates_are_added_up_by_map_size():
    config = load(TINY, ["engineer.style=full", "engineer.training_rollouts=2"])
    evidence = _training_evidence(config, UPDATES)
    assert evidence.rollout_updates == 2
    assert {group: tally.model_dump() for group, tally in evidence.rollouts.items()} == {
        "2": {"count": 10, "valid": 10, "scores": {"optimal_sum_of_costs": 9}, "failures": {}},
        "3": {
            "count": 20,
            "valid": 9,
            "scores": {"optimal_sum_of_costs": 7},
            "failures": {"hole": 2, "off_board": 4, "parse_error": 5},
        },
    }


def test_without_the_option_there_are_none():
    assert _training_evidence(load(TINY), UPDATES).rollouts == {}
