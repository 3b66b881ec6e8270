"""A study's file: errors are named, and a dry run starts nothing."""

import re
from pathlib import Path
from typing import Any

import pytest

from engineer.design import build_stage_context
from jaxlake.command_line.entry import main
from tests.paths import ROOT
from tests.training.analysis.studies import RUNS, run_study_command, write_study
from training.analysis.study.config import load_study
from training.analysis.study.contexts import make_longest_view, require_equal_contexts
from training.errors import UserError
from training.phases.stage_results import make_design_settings
from training.schema import load


def test_dry_run_lists_the_runs_and_starts_nothing(tmp_path, capsys):
    write_study(tmp_path)
    assert run_study_command(tmp_path, "--dry-run", "--jobs", "2") == 0
    stdout = capsys.readouterr().out
    for run in RUNS:
        assert run.replace("/", ", seed ") in stdout
    # Three stages of 160 instances each, four runs.
    assert re.search(r"training instances\D+480\D+1,920", stdout)
    assert not (tmp_path / "out").exists()


def test_study_options_select_seeds_and_engineers(tmp_path, capsys):
    path = write_study(tmp_path)
    partial_study = load_study(path, seeds=[7, 8], engineers=["steady"])
    assert [str(run) for run in partial_study.runs] == ["steady, seed 7", "steady, seed 8"]
    with pytest.raises(
        UserError, match="--engineers is 'nobody'; it must be one of steady, lively"
    ):
        load_study(path, engineers=["nobody"])
    assert load_study(path, engineers=["lively"]).config.baseline == "lively"
    assert load_study(path, engineers=["lively", "steady"]).config.baseline == "steady"
    with pytest.raises(UserError, match="seeds"):
        load_study(path, seeds=[-1])
    assert run_study_command(tmp_path, "--dry-run", "--seeds", "5", "--engineers", "steady") == 0
    stdout = capsys.readouterr().out
    assert "steady, seed 5" in stdout
    assert "lively" not in stdout
    with pytest.raises(SystemExit, match="2"):
        run_study_command(tmp_path, "--dry-run", "--seeds", "one")
    assert "must be whole numbers separated by commas, got 'one'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"colour": "blue"}, ["colour", "unknown key", "baseline"]),
        ({"engineers": [{"name": "a", "kind": "x"}]}, ["engineers.0.kind", "unknown", "name, set"]),
        ({"engineers": [{"name": "a"}, {"name": "a"}]}, ["engineers", "['a', 'a']", "distinct"]),
        ({"engineers": [{"name": "../a"}]}, ["engineers.0.name", "'../a'"]),
        ({"seeds": [1, 1]}, ["seeds", "[1, 1]", "distinct"]),
        ({"seeds": [-1]}, ["seeds.0", "got -1", "greater than or equal to 0"]),
        (
            {"engineers": [{"name": "steady", "against": "nobody"}]},
            ["engineers.0.against", "'nobody'", "steady"],
        ),
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
def test_invalid_study_field_names_allowed_values(changes, words, tmp_path):
    with pytest.raises(UserError) as error:
        load_study(write_study(tmp_path, **changes))
    for word in ["study_pair.yaml", *words]:
        assert word in str(error.value)


@pytest.mark.parametrize("text", ["", "- a", "{", "\x00"])
def test_invalid_study_file_is_named(text, tmp_path, capsys):
    path = tmp_path / "study.yaml"
    path.write_text(text)
    assert main(["study", str(path), "--dry-run"]) == 2
    assert str(path) in capsys.readouterr().err


def test_study_inherits_the_keys_of_its_base(tmp_path):
    write_study(tmp_path)
    path = tmp_path / "small.yaml"
    path.write_text("name: small\nbase: study_pair.yaml\nset: [stages.instances=96]\n")
    base_study, study = load_study(tmp_path / "study_pair.yaml"), load_study(path)
    assert study.config.name == "small"
    assert study.config.engineers == base_study.config.engineers
    assert study.config.set == (*base_study.config.set, "stages.instances=96")
    assert study.warm_start.stages.instances == 96
    assert study.base == tmp_path / "base.yaml"
    path.write_text("name: small\nbase: small.yaml\n")
    with pytest.raises(UserError, match=r"base must not lead back to this study, got small\.yaml"):
        load_study(path)


BLOCKS = ("[failure_breakdown]", "[failure_breakdown, training_details, history]")
READERS: list[dict[str, Any]] = [
    {"name": f"reader{number}", "set": [f"engineer.blocks={blocks}"]}
    for number, blocks in enumerate(BLOCKS)
]


def write_reading_study(folder: Path, max_tokens: str, engineers: list[dict[str, Any]]) -> None:
    settings = ["engineer.kind=base", "engineer.style=full", "stages.instances=160"]
    settings += [f"engineer.max_context_tokens={max_tokens}", "sampling.max_model_len=8000"]
    write_study(folder, set=settings, engineers=engineers, baseline=engineers[0]["name"])


def test_study_rejects_differently_cut_contexts(tmp_path, capsys):
    write_reading_study(tmp_path, "3500", READERS)
    assert run_study_command(tmp_path, "--dry-run") == 2
    error = capsys.readouterr().err
    assert "max_context_tokens is 3500; it must be at least" in error
    assert "reader1 would lose failed cases" in error
    match = re.search(r"it must be at least (\d+)", error)
    assert match
    write_reading_study(tmp_path, match[1], READERS)
    assert run_study_command(tmp_path, "--dry-run") == 0
    write_reading_study(tmp_path, str(int(match[1]) - 1), READERS)
    assert run_study_command(tmp_path, "--dry-run") == 2


def test_study_of_one_style_may_cut_contexts(tmp_path):
    same_style_engineers = [{"name": "a"}, {"name": "b", "set": ["engineer.kind=shuffled:base"]}]
    scripted_engineer = {"name": "c", "set": ["engineer.kind=rule", "engineer.blocks=[]"]}
    write_reading_study(tmp_path, "2500", [*same_style_engineers, scripted_engineer])
    assert run_study_command(tmp_path, "--dry-run") == 0


@pytest.mark.parametrize("name", ["study_paper", "study_paper_small"])
def test_paper_contexts_fit_the_limit(name):
    require_equal_contexts(load_study(ROOT / f"configs/{name}.yaml"))


@pytest.mark.parametrize("name", ["paper", "paper_smoke"])
def test_longest_paper_context_is_not_cut(name):
    config = load(ROOT / f"configs/{name}.yaml")
    context = build_stage_context(make_longest_view(config), make_design_settings(config))
    assert context.cut == ()
    assert 0.9 * 8000 < context.tokens <= 8000
