"""Which stage a command is about."""

import pytest

from training.commands.runs import known_stage
from training.errors import UserError


@pytest.fixture
def run_dir(tmp_path):
    """A run whose stages 0 to 2 are validated, and whose third is being trained."""
    (tmp_path / "config.yaml").touch()
    for stage in ("0", "1", "2", "3"):
        (tmp_path / "stages" / stage).mkdir(parents=True)
        if stage != "3":
            (tmp_path / "stages" / stage / "episodes.jsonl").touch()
    return tmp_path


def test_without_a_stage_the_last_that_was_validated_is_meant(run_dir):
    assert known_stage(run_dir, None) == 2
    assert known_stage(run_dir, 1) == 1
    assert known_stage(run_dir, 0, first=0) == 0


@pytest.mark.parametrize("stage", [3, -1])
def test_another_stage_is_refused_with_those_there_are(stage, run_dir):
    for first, there in ((1, " from 1 on: 1, 2"), (0, ": 0, 1, 2")):
        said = f"got {stage}, allowed are the stages with a validation{there}$"
        with pytest.raises(UserError, match=said):
            known_stage(run_dir, stage, first=first)


@pytest.mark.parametrize("action", ["context", "reading"])
def test_who_asks_for_the_engineer_of_stage_0_is_told_where_there_is_one(action, cli, run_dir):
    told = cli("engineer", action, run_dir, "--stage", "0")
    assert (told.status, told.out) == (2, "")
    assert "got 0, allowed are the stages with a validation from 1 on: 1, 2; after" in told.err
    assert told.err.endswith("after stage 0, with which a run begins, nothing is designed\n")


def test_a_run_that_validated_nothing_has_no_last_stage(tmp_path):
    (tmp_path / "config.yaml").touch()
    with pytest.raises(UserError, match=r"got none, allowed are the .* on: none yet"):
        known_stage(tmp_path, None)
