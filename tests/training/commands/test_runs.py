"""The stage that a command selects."""

import pytest

from training.commands.runs import require_stage
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


def test_default_stage_is_the_last_validated_one(run_dir):
    assert require_stage(run_dir, None) == 2
    assert require_stage(run_dir, 1) == 1


@pytest.mark.parametrize("stage", [3, 0, -1])
def test_unknown_stage_error_lists_stages(stage, run_dir):
    message = rf"--stage must be a validated stage .1, 2., got {stage}$"
    with pytest.raises(UserError, match=message):
        require_stage(run_dir, stage)


def test_run_without_validation_has_no_last_stage(tmp_path):
    (tmp_path / "config.yaml").touch()
    with pytest.raises(UserError, match=r"--stage must be a validated stage .none yet., got none"):
        require_stage(tmp_path, None)
