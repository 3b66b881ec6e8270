"""Configurations are checked by name, with the value that came and what is allowed."""

from pathlib import Path

import pytest

from training.cli import main
from training.config import dump, load
from training.errors import UserError

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_shipped_configuration_reads_back_from_its_own_dump(path: Path, tmp_path: Path):
    config = load(path)
    copy = tmp_path / "copy.yaml"
    copy.write_text(dump(config))
    assert load(copy) == config


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("grpo.learning_rte=1", ["grpo.learning_rte", "unknown key", "learning_rate"]),
        ("grpo.learning_rate=fast", ["grpo.learning_rate", "'fast'"]),
        ("grpo.completions=1", ["grpo.completions", "got 1", "greater than or equal to 2"]),
        ("stages.rounds=0", ["stages.rounds", "got 0"]),
        ("colour=blue", ["colour", "unknown key", "validation"]),
        ("engineer.kind=oracle", ["engineer.kind", "'oracle'", "'checkpoint'"]),
        ("engineer.kind=endpoint", ["engineer", "needs a model"]),
        ("engineer.blocks=[gossip]", ["engineer.blocks", "gossip", "history"]),
        ("environment.initial.sizes.3.hole_ratio=0.9", ["hole_ratio", "0.9", "0.5"]),
        ("environment.num_agents=6", ["num_agents", "got 6"]),
        ("grpo.micro_batch_size=60", ["grpo.micro_batch_size", "256", "60"]),
        ("reward.valid=2", ["reward", "optimal > valid > parsed"]),
        ("warm_start=null", ["warm_start", "scratch"]),
        ("validation.per_cell=many", ["validation.per_cell", "'many'"]),
        ("grpo", ["--set", "key.sub=value"]),
        ("name.sub=1", ["--set", "not a mapping"]),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(
    override: str, words: list[str], capsys: pytest.CaptureFixture[str]
):
    status = main(["run", str(ROOT / "configs/miniature.yaml"), "--set", override, "--dry-run"])
    error = capsys.readouterr().err
    assert status == 2
    for word in words:
        assert word in error
    assert "Traceback" not in error


def test_an_infeasible_request_says_why(capsys: pytest.CaptureFixture[str]):
    overrides = ["environment.num_agents=3", "environment.initial.sizes.3.hole_ratio=0.5"]
    path = str(ROOT / "configs/miniature.yaml")
    status = main(["run", path, "--dry-run", "--set", *overrides])
    error = capsys.readouterr().err
    assert status == 2
    assert "3x3 board with hole_ratio 0.5" in error
    assert "3 agents need 6" in error


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "\x00", "grpo: 3"])
def test_a_file_that_is_no_configuration_is_a_clear_error(text: str, tmp_path: Path):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=r"bad\.yaml"):
        load(path)


def test_a_missing_file_is_a_clear_error(tmp_path: Path):
    with pytest.raises(UserError, match="can't be read"):
        load(tmp_path / "absent.yaml")


def test_the_dry_run_of_the_paper_prints_the_plan(capsys: pytest.CaptureFixture[str]):
    assert main(["run", str(ROOT / "configs/paper.yaml"), "--dry-run"]) == 0
    output = capsys.readouterr().out
    for word in ("round 3: design", "125 updates", "4,022", "GiB", "trainer in all"):
        assert word in output
