"""A study's file and its directory: what is wrong is named, and nobody else's files are touched."""

import re
from pathlib import Path

import pytest
import yaml

from jaxlake.command_line.entry import main
from tests.paths import ROOT
from tests.training.analysis.studies import (
    RUNS,
    STUDY,
    report_only,
    study_command,
    write_study,
)
from tests.training.sample_run import CONFIG
from training.analysis.study.config import load_study
from training.analysis.study.directory import StudyDirectory
from training.errors import UserError


def test_directory_belongs_to_the_study_that_claimed_it(tmp_path):
    directory = StudyDirectory(tmp_path / "out")
    study = load_study(write_study(tmp_path))
    assert [directory.claim(study), directory.claim(study)] == [False, True]
    for changes, problem in (
        ({"seeds": [4]}, r"seeds .*\[1, 2\] there, \[4\] here"),
        ({"set": ["stages.instances=240"]}, r"base.stages.instances \(160 there, 240 here\)"),
        ({"engineers": STUDY["engineers"][:1]}, "engineers.lively"),
    ):
        other = load_study(write_study(tmp_path, **changes))
        for use in (directory.claim, directory.check):
            with pytest.raises(UserError, match=f"holds another study.*{problem}"):
                use(other)


def test_study_does_not_go_on_with_other_weights_of_the_same_name(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"first")
    path = write_study(tmp_path / "study")
    base = {**CONFIG, "warm_start": None, "model": {"pretrained": str(model)}}
    (path.parent / "base.yaml").write_text(yaml.safe_dump(base))
    study, directory = load_study(path), StudyDirectory(tmp_path / "out")
    assert [directory.claim(study), directory.claim(study)] == [False, True]
    (model / "model.safetensors").write_bytes(b"other")
    with pytest.raises(UserError, match=r"its runs began with other weights of .*/model \("):
        directory.claim(study)
    directory.check(study)  # a report needs no model
    (model / "model.safetensors").unlink()
    model.rename(tmp_path / "moved")
    assert directory.claim(study)  # a run that begins says that the model is missing
    written = yaml.safe_load(directory.claim_file.read_text())
    del written["weights"]  # as of a study that an earlier version began
    directory.claim_file.write_text(yaml.safe_dump(written))
    assert directory.claim(study)


def test_directory_that_holds_something_else_is_left_alone(tmp_path, capsys):
    write_study(tmp_path)
    assert report_only(tmp_path) == 2
    assert "holds no study" in capsys.readouterr().err
    (tmp_path / "out").mkdir()
    (tmp_path / "out/diary.txt").write_text("mine")
    assert study_command(tmp_path) == 2
    assert "is not empty and holds no study" in capsys.readouterr().err


def test_study_that_was_killed_while_it_claimed_its_directory_can_start_again(tmp_path):
    study, out = load_study(write_study(tmp_path)), tmp_path / "out"
    out.mkdir()
    (out / ".study.yaml.4711.tmp").write_text("name: pa")
    assert StudyDirectory(out).claim(study) is False
    assert [child.name for child in out.iterdir()] == ["study.yaml"]


@pytest.mark.parametrize("text", [b"", b"- a", b"{", b"3", b"\x00", b"\xff\xfe"])
def test_damaged_claim_is_named(text, tmp_path):
    study, directory = load_study(write_study(tmp_path)), StudyDirectory(tmp_path / "out")
    directory.claim(study)
    directory.claim_file.write_bytes(text)
    for use in (directory.claim, directory.check):
        with pytest.raises(UserError, match=r"/out/study\.yaml: (is not YAML|must hold a mapping)"):
            use(study)


def test_dry_run_lists_the_runs_and_starts_nothing(tmp_path, capsys):
    write_study(tmp_path)
    assert study_command(tmp_path, "--dry-run") == 0
    printed = capsys.readouterr().out
    for run in RUNS:
        assert run.replace("/", ", seed ") in printed
    # Three stages of 160 instances each, four runs.
    assert re.search(r"training instances\D+480\D+1,920", printed)
    # At most 3 * 3 answers of one engineer and 3 * 2 of the other, for each of two seeds.
    assert re.search(r"engineer's answers, at most\D+9\D+30", printed)
    assert not (tmp_path / "out").exists()


def test_a_dry_run_shows_overrides_as_they_were_written(tmp_path, capsys):
    override = "engineer.blocks=[history]"
    engineers = [{"name": "a", "set": ["engineer.kind=fixed", override]}]
    write_study(tmp_path, engineers=engineers, baseline="a")
    assert study_command(tmp_path, "--dry-run") == 0
    assert override in re.sub(r"[\s│]+", "", capsys.readouterr().out)


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
        ({"engineers": []}, ["engineers", "got []", "at least 1"]),
        ({"engineers": [{"name": "a"}, {"name": "a"}]}, ["engineers", "['a', 'a']", "once"]),
        ({"engineers": [{"name": "../a"}]}, ["engineers.0.name", "'../a'"]),
        ({"seeds": []}, ["seeds", "got []"]),
        ({"seeds": [1, 1]}, ["seeds", "[1, 1]", "once"]),
        ({"seeds": [-1]}, ["seeds.0", "got -1", "greater than or equal to 0"]),
        ({"seeds": ["one"]}, ["seeds.0", "'one'"]),
        ({"baseline": "nobody"}, ["baseline", "'nobody'", "steady, lively"]),
        ({"resamples": 5}, ["resamples", "got 5", "100"]),
        ({"resamples": 10**10}, ["resamples", "got 10000000000", "1000000"]),
        ({"set": ["engineer.²=1"]}, ["set", "engineer.²", "unknown key"]),
        ({"set": [f"stages.{'9' * 5000}=1"]}, ["set", "stages.999", "unknown key"]),
        ({"confidence": 1.0}, ["confidence", "got 1.0", "less than 1"]),
        ({"slice_boards": 0}, ["slice_boards", "got 0"]),
        ({"set": "stages.count=1"}, ["set", "'stages.count=1'", "tuple"]),
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


def test_shipped_study_compares_six_engineers_over_three_seeds():
    study = load_study(ROOT / "configs/study_miniature.yaml")
    names = ["fixed", "random", "failure_proportional", "learnability", "rule", "checkpoint"]
    runs = [(run.engineer, run.seed) for run in study.runs]
    assert runs == [(name, seed) for seed in (1, 2, 3) for name in names]
    kinds = [study.config_of(run, Path("p")).engineer.kind for run in study.runs[:6]]
    assert kinds == names
