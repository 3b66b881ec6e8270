"""The card of a base model says how good it is, and where it falls short of its goal."""

from pathlib import Path

import pytest

from training.pretraining.card import shortfalls, write_card
from training.pretraining.files import Evaluation
from training.pretraining.schema import PretrainConfig

CELLS = {"3x3_hr0_go": 0.5, "3x3_hr0_wait": 0.25, "4x4_hr0.3_go": 0.125, "4x4_hr0.3_wait": 0.0625}


def evaluation(**changes: object) -> Evaluation:
    good = {"step": 40, "edits_right": 0.99, "flips": {"valid": 0.97, "trend": 0.96}}
    return Evaluation.model_validate(good | {"valid": CELLS} | changes)


def test_what_is_below_the_goal_is_named_with_both_numbers(tiny: PretrainConfig):
    goal = tiny.goal.model_copy(update={"least_valid": 0.05})
    assert shortfalls(evaluation(), goal) == []
    assert shortfalls(evaluation(valid=None), goal) == []
    weak = evaluation(edits_right=0.9, flips={"valid": 0.97, "trend": 0.5})
    assert shortfalls(weak, goal) == [
        "edits right 90.0% (goal 97%)",
        "flips with trend 50.0% (goal 95%)",
    ]
    dead = evaluation(valid=CELLS | {"4x4_hr0.3_wait": 0.0})
    assert shortfalls(dead, goal) == ["valid in 4x4_hr0.3_wait 0.0% (goal 5%)"]


@pytest.mark.parametrize("met", [True, False])
def test_the_card_shows_every_cell_and_the_verdict(tiny: PretrainConfig, tmp_path: Path, met: bool):
    config = tiny.model_copy(update={"goal": tiny.goal.model_copy(update={"least_valid": 0.05})})
    shown = evaluation() if met else evaluation(edits_right=0.9)
    write_card(tmp_path, config, shown)
    text = (tmp_path / "README.md").read_text()
    assert "| 0% | 50 / 25 | - / - |" in text
    assert "| 30% | - / - | 12 / 6 |" in text
    assert ("It meets the goal" in text) == met
    assert ("falls short of the goal of its pretraining: edits right 90.0%" in text) != met


def test_the_card_says_how_edits_were_predicted_and_of_how_many_flips_are_shares(
    tiny: PretrainConfig, tmp_path: Path
):
    write_card(tmp_path, tiny, evaluation(turned={"valid": 59, "trend": 7}))
    text = (tmp_path / "README.md").read_text()
    assert "valid 97.0% of 59, trend 96.0% of 7." in text
    assert "predicted after the rule's edits before it" in text
    write_card(tmp_path, tiny, evaluation())
    assert "valid 97.0%, trend 96.0%." in (tmp_path / "README.md").read_text()
