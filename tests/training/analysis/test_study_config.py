"""A study's file: errors are named, and a dry run starts nothing."""

import re

import pytest

from jaxlake.command_line.entry import main
from tests.training.analysis.studies import (
    RUNS,
    study_command,
    write_study,
)
from training.analysis.study.config import load_study
from training.errors import UserError


def test_dry_run_lists_the_runs_and_starts_nothing(tmp_path, capsys):
    write_study(tmp_path)
    assert study_command(tmp_path, "--dry-run") == 0
    printed = capsys.readouterr().out
    for run in RUNS:
        assert run.replace("/", ", seed ") in printed
    # Three stages of 160 instances each, four runs.
    assert re.search(r"training instances\D+480\D+1,920", printed)
    assert not (tmp_path / "out").exists()


def test_a_piece_has_seeds_and_engineers_of_its_own(tmp_path, capsys):
    path = write_study(tmp_path)
    piece = load_study(path, seeds=[7, 8], engineers=["steady"])
    assert [str(run) for run in piece.runs] == ["steady, seed 7", "steady, seed 8"]
    with pytest.raises(UserError, match="--engineers: got 'nobody', allowed are steady, lively"):
        load_study(path, engineers=["nobody"])
    assert load_study(path, engineers=["lively"]).config.baseline == "lively"
    assert load_study(path, engineers=["lively", "steady"]).config.baseline == "steady"
    with pytest.raises(UserError, match="seeds"):
        load_study(path, seeds=[-1])
    assert study_command(tmp_path, "--dry-run", "--seeds", "5", "--engineers", "steady") == 0
    printed = capsys.readouterr().out
    assert "steady, seed 5" in printed
    assert "lively" not in printed
    with pytest.raises(SystemExit, match="2"):
        study_command(tmp_path, "--dry-run", "--seeds", "one")
    assert "got 'one', allowed are whole numbers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"colour": "blue"}, ["colour", "unknown key", "baseline"]),
        ({"engineers": [{"name": "a", "kind": "x"}]}, ["engineers.0.kind", "unknown", "name, set"]),
        ({"engineers": [{"name": "a"}, {"name": "a"}]}, ["engineers", "['a', 'a']", "once"]),
        ({"engineers": [{"name": "../a"}]}, ["engineers.0.name", "'../a'"]),
        ({"seeds": [1, 1]}, ["seeds", "[1, 1]", "once"]),
        ({"seeds": [-1]}, ["seeds.0", "got -1", "greater than or equal to 0"]),
        ({"baseline": "nobody"}, ["baseline", "'nobody'", "steady, lively"]),
        ({"set": ["engineer.²=1"]}, ["set", "engineer.²", "unknown key"]),
        ({"set": [f"stages.{'9' * 5000}=1"]}, ["set", "stages.999", "unknown key"]),
        ({"set": ["stages.count=none"]}, ["set", "stages.count", "'none'"]),
        ({"set": ["stages"]}, ["set", "'stages'", "key.sub=value"]),
        ({"base": "nowhere.yaml"}, ["base", "nowhere.yaml", "can't be read"]),
        (
            {"engineers": [{"name": "steady", "set": ["stages.count=9"]}]},
            ["engineers.0.set", "'stages.count=9'", "engineer.*"],
        ),
        (
            {"engineers": [{"name": "steady", "set": ["engineer.kind=nobody"]}]},
            ["engineers.0.set", "engineer.kind", "'nobody'", "learnability"],
        ),
    ],
)
def test_bad_study_is_named_with_what_is_allowed(changes, words, tmp_path):
    with pytest.raises(UserError) as caught:
        load_study(write_study(tmp_path, **changes))
    for word in ["study_pair.yaml", *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize("text", ["", "- a", "{", "\x00"])
def test_file_that_is_no_study_is_named(text, tmp_path, capsys):
    path = tmp_path / "study.yaml"
    path.write_text(text)
    assert main(["study", str(path), "--dry-run"]) == 2
    assert str(path) in capsys.readouterr().err
