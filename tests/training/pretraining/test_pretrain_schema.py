"""What a pretraining's configuration refuses, and with which words."""

import pytest
import yaml

from tests.paths import ROOT
from training.errors import UserError
from training.pretraining.schema import load_pretrain

BASE = ROOT / "configs/base.yaml"


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("boards.shares={3: 0.5, 4: 0.4}", ["boards", "shares: must sum to 1, they sum to 0.9"]),
        ("boards.shares={11: 1.0}", ["boards.shares", "11"]),
        ("boards.num_agents=1", ["boards.num_agents", "1"]),
        ("boards.hole_ratios={0.6: 1.0}", ["boards.hole_ratios", "0.6"]),
        ("boards.hole_ratios={0.2: 0.6}", ["hole_ratios: must sum to 1, they sum to 0.6"]),
        ("boards.shares={2: 1.0}; boards.hole_ratios={0.5: 1.0}", ["hole_ratios: ", "2x2"]),
        ("designs.first_share=1.5", ["designs.first_share", "1.5"]),
        ("designs.groups=[3, 2]", ["designs", "groups: got 3 to 2", "up to 4"]),
        ("designs.groups=[2, 10]", ["designs", "groups: got 2 to 10", "up to 4"]),
        ("optimization.most_steps=2000", ["most_steps: got 2000", "3100"]),
        ("goal.validate_every=800", ["goal.validate_every: got 800", "multiples", "250"]),
        ("goal.least_valid=1.5", ["goal.least_valid", "1.5"]),
        ("name=a/b", ["name", "a/b"]),
        ("optimization.learning_rte=1", ["optimization.learning_rte", "learning_rate"]),
        ("engineer={}", ["engineer", "unknown key", "designs"]),
    ],
)
def test_a_configuration_that_cannot_be_is_refused_by_key_value_and_what_is_allowed(
    override, words
):
    with pytest.raises(UserError) as refused:
        load_pretrain(BASE, override.split("; "))
    for word in words:
        assert word in str(refused.value)


def test_what_is_missing_is_named(tmp_path):
    path = tmp_path / "some.yaml"
    path.write_text("name: some\n")
    with pytest.raises(UserError, match=r"some\.yaml: boards: required, but missing"):
        load_pretrain(path)


def test_sizes_ascend_however_they_are_written(tmp_path):
    tree = yaml.safe_load(BASE.read_text())
    tree["boards"]["shares"] = {6: 0.5, 3: 0.25, 4: 0.25}
    path = tmp_path / "some.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    assert load_pretrain(path).boards.sizes == (3, 4, 6)
