"""Answers to the stage's own instances stand beside those to the validation set, if there are."""

from dataclasses import replace

import pytest

from engineer import StageView, build_context
from engineer.engineers.controls import shuffle
from engineer.evidence import Tally

ROLLOUTS = {
    "3": Tally(count=40, valid=31, scores={"optimal_sum_of_costs": 22}, failures={"hole": 9}),
    "4": Tally(count=24, valid=6, failures={"parse_error": 2, "goal_not_reached": 16}),
}


@pytest.fixture
def shown(view: StageView) -> StageView:
    assert view.evidence.training is not None
    read = {"rollouts": ROLLOUTS, "rollout_updates": 5}
    training = view.evidence.training.model_copy(update=read)
    return replace(view, evidence=view.evidence.model_copy(update={"training": training}))


def test_training_answers_stand_below_the_failed_cases_and_change_nothing_else(view, shown):
    plain, more = (build_context(one).text for one in (view, shown))
    lines = [line for line in more.splitlines() if line not in plain.splitlines()]
    assert lines == [
        "Answers to the stage's own training instances, several for each, drawn while it trained,"
        " in its last 5 updates:",
        "- 3x3: 31 of 40 valid, 78%, optimal by sum of costs 55%. First failures: hole 9.",
        "- 4x4: 6 of 24 valid, 25%. First failures: unparsable answer 2, goal not reached 16.",
    ]
    assert more.replace("\n".join(lines) + "\n", "") == plain
    assert more.index(lines[0]) > more.index("Some failed answers")


def test_training_answers_are_shown_for_other_groups_on_shuffled_evidence(shown):
    for seed in range(20):
        training = shuffle(shown, seed).evidence.training
        assert training is not None
        assert training.rollouts.get("3") != ROLLOUTS["3"]
        assert training.rollouts.get("4") != ROLLOUTS["4"]
        assert sorted(one.count for one in training.rollouts.values()) == [24, 40]
