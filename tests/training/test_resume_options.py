"""With a reference, replaced boards and other options a run that is killed ends the same, too."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from engineer import Spent
from tests.paths import TINY
from tests.training.killed_run import dying_at
from tests.training.stand_in_sampler import without_vllm
from tests.training.test_resume import KilledError, files_of, stop
from training import loop
from training.analysis.study.reading import _ledger
from training.audit import audit_run
from training.errors import UserError
from training.phases import stage_results, train
from training.run.checkpoints import Checkpoints
from training.run.directory import RunDirectory
from training.run.records import UpdateMetrics
from training.run.typed_files import JsonLog
from training.schema import load

OPTIONS = [
    "grpo.kl_coefficient=0.1",
    "grpo.ratio=sequence",
    "grpo.aggregation=sequence_mean",
    "grpo.resamples=2",
    "grpo.schedule=linear",
    "reward.overlong_buffer=8",
]


# The second stage falls behind the first, and is taken back: its adapters are read again.
ADAPTERS = [
    "model.lora={rank: 4, targets: [q_proj, v_proj, down_proj]}",
    "grpo.kl_coefficient=0.1",
    "engineer.gate={rollback: checkpoint, z: 0.001}",
]


@pytest.mark.slow
def test_a_run_of_adapters_that_is_stopped_leaves_the_same_files(tmp_path: Path) -> None:
    config = load(TINY, ADAPTERS)
    with without_vllm():
        loop.run(config, tmp_path / "whole")
        for point in ("warm_start", "rollout", "update"):
            with pytest.raises(KilledError), dying_at(point, stop):
                loop.run(config, tmp_path / "run")
        loop.run(config, tmp_path / "run")
        expected, found = files_of(tmp_path / "whole"), files_of(tmp_path / "run")
        assert sorted(found) == sorted(expected)
        assert "stages/2/adapters/adapter_model.safetensors" in found
        assert [name for name in expected if found[name] != expected[name]] == []
        assert all(check.holds for check in audit_run(tmp_path / "whole"))

        # Adapters in which a bit has changed since are refused.
        adapters = tmp_path / "run/stages/0/adapters/adapter_model.safetensors"
        intact = adapters.read_bytes()
        adapters.write_bytes(intact[:-1] + bytes([intact[-1] ^ 1]))
        (tmp_path / "run/summary.json").unlink()
        with pytest.raises(UserError, match=r"stages/0/adapters: its weights have the digest"):
            loop.run(config, tmp_path / "run")
        adapters.write_bytes(intact)

        # So are adapters of other weights than those that the run began with.
        shutil.rmtree(tmp_path / "run/initial")
        shutil.copytree(tmp_path / "run/stages/1/policy", tmp_path / "run/initial")
        with pytest.raises(UserError, match=r"stages/0/adapters: its adapters belong to weights"):
            loop.run(config, tmp_path / "run")


@pytest.mark.slow
def test_a_run_with_options_that_is_stopped_leaves_the_same_files(tmp_path: Path) -> None:
    config = load(TINY, OPTIONS)
    with without_vllm():
        loop.run(config, tmp_path / "whole")
        for point in ("rollout", "update"):
            with pytest.raises(KilledError), dying_at(point, stop):
                loop.run(config, tmp_path / "run")
        loop.run(config, tmp_path / "run")
    expected, found = files_of(tmp_path / "whole"), files_of(tmp_path / "run")
    assert sorted(found) == sorted(expected)
    assert [name for name in expected if found[name] != expected[name]] == []
    metrics = RunDirectory(tmp_path / "whole").metrics.read()
    updates = [one for one in metrics if isinstance(one, UpdateMetrics)]
    assert updates[0].kl == pytest.approx(0, abs=1e-6)
    assert min(one.kl for one in updates[1:]) > 1e-5
    assert max(one.resampled_boards for one in updates) > 0
    assert all(one.replaced_boards <= one.resampled_boards for one in updates)
    assert all(check.holds for check in audit_run(tmp_path / "whole"))
    ledger = _ledger(RunDirectory(tmp_path / "whole"), config, Spent())
    answered = sum(8 + one.resampled_boards for one in updates)
    assert ledger["training_instances"] == answered
    decided = [RunDirectory(tmp_path / "whole").stage(stage).decision.read() for stage in (1, 2)]
    assert sum(one.spent.training_instances for one in decided) == answered


@pytest.mark.slow
def test_a_falling_rate_follows_the_run_also_after_a_rollback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, taken = [], train.take_update

    def noted(*args: Any, step: int, **others: Any) -> Any:
        steps.append(step)
        return taken(*args, step=step, **others)

    monkeypatch.setattr(train, "take_update", noted)
    monkeypatch.setattr(stage_results, "has_fallen", lambda *_: True)
    options = ["grpo.schedule=linear", "grpo.minibatches=2", "engineer.gate.rollback=checkpoint"]
    with without_vllm():
        loop.run(load(TINY, options), tmp_path)
    assert RunDirectory(tmp_path).stage(1).gate.read().restored == "checkpoint"
    assert steps == list(range(0, 16, 2))


@pytest.mark.slow
def test_a_checkpoint_is_saved_once_its_lines_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    sync, save = JsonLog.sync, Checkpoints.save
    monkeypatch.setattr(JsonLog, "sync", lambda log: (calls.append("sync"), sync(log)))
    monkeypatch.setattr(
        Checkpoints, "save", lambda self, *args: (calls.append("save"), save(self, *args))
    )
    with without_vllm():
        loop.run(load(TINY), tmp_path, stop_after=1)
    assert calls == ["sync", "save"] * 5  # three of the warm start, two of the stage
