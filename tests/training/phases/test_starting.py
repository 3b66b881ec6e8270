"""Starting from another run: the copied parts, and independence afterwards."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from jaxlake.command_line.entry import main
from tests.paths import TINY
from tests.training.fake_run import (
    POINTS,
    KilledError,
    assert_same_files,
    interrupt_at,
    raise_killed,
    without_vllm,
)
from tests.training.sample_run import write_sample_run_with_tokenizer
from training import loop
from training.audit import audit_run
from training.commands.runs import policy_folder
from training.errors import UserError
from training.phases.stage_results import (
    make_gate_record,
    make_stage_view,
    make_start_record,
    read_stage_results,
)
from training.phases.starting import create_started_run, make_started_config
from training.run.digest_list import DigestList
from training.run.digests import folder_digest
from training.run.directory import RunDirectory
from training.schema import RunConfig, load

OPTIONS = ["name=second", "seed=9", "stages.count=1", "grpo.learning_rate=5e-4"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two stages."""
    path = tmp_path_factory.mktemp("runs") / "first"
    with without_vllm():
        loop.run(load(TINY), path)
    return path


def make_config(source: Path, target: Path) -> RunConfig:
    return make_started_config(load(TINY, OPTIONS), source, target)


@pytest.fixture(scope="module")
def rolled_back_run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Return a finished run whose last stage, the third, was rolled back with its weights."""
    settings = {"gate": {"rollback": "checkpoint"}, "style": "full"}
    path = tmp_path_factory.mktemp("runs") / "fallen"
    run = RunDirectory(write_sample_run_with_tokenizer(path, settings, skills=(0.3, 0.5, 0.9, 0.1)))
    assert run.stage(3).gate.read().restored == "checkpoint"
    return run


def test_run_from_another_takes_weights_design_history(source: Path, tmp_path: Path) -> None:
    run_copy = shutil.copytree(source, tmp_path / "first")
    new_run = RunDirectory(tmp_path / "second")
    command = ["run", str(TINY), "--from", str(run_copy), "--run-dir", str(new_run.path), "--set"]
    with without_vllm():
        assert main([*command, *OPTIONS, "--stop-after", "0"]) == 0
        shutil.rmtree(run_copy)
        assert main([command[0], *command[1:], *OPTIONS]) == 0
    first_run, new_config = RunDirectory(source), new_run.config()
    for name in ("policy/model.safetensors", "episodes.jsonl"):
        source_file, new_file = first_run.stage(2).path / name, new_run.stage(0).path / name
        assert source_file.read_bytes() == new_file.read_bytes(), name
    assert new_run.stage(1).configuration.read() == first_run.stage(2).decision.read().configuration
    first_results = read_stage_results(first_run, first_run.config())
    results = read_stage_results(new_run, new_config)
    view = make_stage_view(new_config, results, 1)
    assert [entry.stage for entry in view.history] == [-1, 0]
    assert view.history[0].configuration == first_results[1].configuration
    assert view.history[1].valid_after == first_results[2].evidence.valid_rates()
    assert view.history[1].decision == first_results[1].decision.kind
    assert view.designed_from == first_results[2].gate.configuration
    assert [stage.problems for stage in audit_run(new_run.path) if stage.problems] == []
    report = new_run.report.read_text(encoding="utf-8").replace("<wbr>", "")
    assert f"of {tmp_path / 'first'} after stage 2" in report
    assert new_run.updates()[0].step == 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("options", [[], ["model.lora={rank: 4}", "grpo.kl_coefficient=0.1"]])
def test_killed_run_from_another_leaves_the_same_files(
    source: Path, tmp_path: Path, options: list[str]
) -> None:
    config = make_started_config(load(TINY, [*OPTIONS, *options]), source, tmp_path / "whole")
    with without_vllm():
        loop.run(config, tmp_path / "whole")
        for point in [name for name in POINTS if name != "warm_start"]:
            with pytest.raises(KilledError), interrupt_at(point, raise_killed):
                loop.run(config, tmp_path / "run")
        loop.run(config, tmp_path / "run")
    assert_same_files(tmp_path / "whole", tmp_path / "run")
    third_config = make_started_config(load(TINY, OPTIONS), tmp_path / "run", tmp_path / "third")
    create_started_run(third_config, tmp_path / "third")
    record = RunDirectory(tmp_path / "third").stage(0).start.read()
    assert [entry.stage for entry in record.history] == [-2, -1, 0]


def test_unchanged_weights_are_required(source: Path, tmp_path: Path) -> None:
    config = make_config(source, tmp_path / "run")
    create_started_run(config, tmp_path / "run")
    (tmp_path / "run/initial/config.json").write_text("{}")
    with without_vllm(), pytest.raises(UserError, match=r"config\.json: "):
        loop.run(config, tmp_path / "run")


def test_from_rejects_another_or_changed_run(source: Path, tmp_path: Path) -> None:
    target, changed_source = tmp_path / "run", shutil.copytree(source, tmp_path / "other")
    config = make_config(changed_source, target)
    (changed_source / "stages/2/digests.json").unlink()
    DigestList(changed_source).forget(changed_source / "stages/2/digests.json")
    with pytest.raises(UserError, match=r"other: has changed since this run's configuration"):
        create_started_run(config, target)
    assert not target.exists()
    create_started_run(make_config(changed_source, target), target)
    with pytest.raises(UserError, match=r"--from: got .*first, but the run in .*/run started from"):
        make_config(source, target)
    assert RunDirectory(target).config().started_from.stage == 1
    with pytest.raises(UserError, match=r"first started without --from; choose another"):
        make_config(changed_source, source)


def test_from_rejects_designs_beyond_the_bounds(source: Path, tmp_path: Path) -> None:
    bounds = "environment.bounds={sizes: [3], max_hole_ratio: 0.2, max_wait_ratio: 0.2}"
    initial = "environment.initial.sizes={3: {data_ratio: 1, hole_ratio: 0, wait_ratio: 0}}"
    config = load(TINY, [bounds, initial])
    with pytest.raises(
        UserError, match=r"its last design is not allowed in environment\.kind lake"
    ):
        make_started_config(config, source, tmp_path / "run")


def test_from_rejects_runs_without_a_complete_stage(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere: is not a run's directory: it does not exist"):
        make_config(tmp_path / "nowhere", tmp_path / "run")
    (tmp_path / "config.yaml").write_text(TINY.read_text())
    with pytest.raises(UserError, match="has no complete stage to start from"):
        make_config(tmp_path, tmp_path / "run")


def test_dry_run_from_another_shows_its_shape(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", str(TINY), "--run-dir", str(tmp_path / "run"), "--dry-run"]
    overrides = ["--set", "model.scratch.hidden_size=512"]
    assert main([*command, *overrides, "--from", str(source)]) == 0
    stdout = capsys.readouterr().out
    assert "The policy has 0.1 million parameters" in " ".join(stdout.split())
    assert "warm start" not in stdout
    assert not (tmp_path / "run").exists()


def test_start_after_a_rollback_takes_restored_weights(
    rolled_back_run: RunDirectory, tmp_path: Path
) -> None:
    run = rolled_back_run
    started_from = make_started_config(run.config(), run.path, tmp_path / "second").started_from
    assert (started_from.stage, started_from.weights) == (3, folder_digest(run.stage(2).policy))
    assert policy_folder(run.path, None) == run.stage(2).policy
    assert policy_folder(run.path, 3) == run.stage(3).policy


def test_first_rollback_restores_the_previous_design(rolled_back_run: RunDirectory) -> None:
    config = rolled_back_run.config()
    *_, good_result, bad_result = results = read_stage_results(rolled_back_run, config)
    start_record = make_start_record(config, results)
    first_result = replace(good_result, stage=0, start=start_record, gate=None)
    gate = make_gate_record(config, [first_result, bad_result], 1)
    assert gate.restored == "checkpoint"
    assert gate.configuration == start_record.designed_from == bad_result.gate.configuration
    assert gate.configuration != config.environment.initial
