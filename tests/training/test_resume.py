"""A run killed in the middle of any phase ends like an uninterrupted run."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT, TINY
from tests.training.fake_run import (
    POINTS,
    KilledError,
    StandInSampler,
    assert_same_files,
    interrupt_at,
    raise_killed,
    without_vllm,
)
from training import loop
from training.audit import audit_run
from training.errors import UserError
from training.phases import stage_results, train
from training.run.checkpoints import Checkpoints
from training.run.directory import RunDirectory
from training.run.typed_files import JsonLog
from training.schema import load

PARITY = Path(__file__).parent / "environments/parity.yaml"
# With a policy that knows no boards, all rewards of a real engine's few answers are 0.
SETTINGS = ("model.pretrained=jaxlake-base", "warm_start.learning_rate=1e-4")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

CASES: dict[str, tuple[Path, list[str]]] = {
    "plain": (TINY, []),
    "options": (
        TINY,
        [
            "grpo.kl_coefficient=0.1",
            "grpo.ratio=sequence",
            "grpo.aggregation=sequence_mean",
            "grpo.resamples=2",
            "grpo.schedule=linear",
            "reward.overlong_buffer=8",
        ],
    ),
    # The second stage falls behind the first and is rolled back: the adapters are read again.
    "adapters": (
        TINY,
        [
            "model.lora={rank: 4, targets: [q_proj, v_proj, down_proj]}",
            "grpo.kl_coefficient=0.1",
            "engineer.gate={rollback: checkpoint, z: 0.001}",
        ],
    ),
    "prefetch": (TINY, ["grpo.prefetch=1", "stages.instances=48"]),
    "sfl": (
        TINY,
        [
            "engineer.kind=fixed",
            "engineer.picking={method: sfl, pool: 32}",
            "engineer.atlas.answers=4",
        ],
    ),
    "plr": (TINY, ["engineer.kind=fixed", "engineer.picking={method: plr, pool: 32}"]),
    "designs": (
        TINY,
        [
            "engineer.style=compact",
            "engineer.atlas={levels: 2, boards_per_cell: 4, answers: 4}",
            "engineer.learning={updates: 2, designs: 4}",
        ],
    ),
    "environment": (PARITY, []),
}


@pytest.mark.parametrize("case", CASES)
def test_killed_run_leaves_the_same_files(case: str, tmp_path: Path) -> None:
    path, options = CASES[case]
    config = load(path, options)
    with without_vllm():
        loop.run(config, tmp_path / "whole")
        for point in POINTS:
            with pytest.raises(KilledError), interrupt_at(point, raise_killed):
                loop.run(config, tmp_path / "run")
            assert StandInSampler.num_open == 0
        for stage in (0, 1, None):
            loop.run(config, tmp_path / "run", stop_after=stage)
    assert_same_files(tmp_path / "whole", tmp_path / "run")
    assert [stage.problems for stage in audit_run(tmp_path / "run") if stage.problems] == []
    updates = RunDirectory(tmp_path / "run").updates()
    if case != "environment":  # whose answers are worth nothing; elsewhere a lost update is seen
        assert sum(update.grad_norm > 0 for update in updates) >= len(updates) // 2
        files = [tmp_path / f"run/stages/{stage}/policy/model.safetensors" for stage in (0, 1, 2)]
        assert len({file.read_bytes() for file in files}) == 3
    if case == "options":
        assert min(update.kl for update in updates[1:]) > 1e-5
        assert max(update.resampled_boards for update in updates) > 0
    if case == "prefetch":
        assert [update.rollout_lag for update in updates] == [0, 1, 1, 1, 1, 1] * 2


@pytest.fixture(scope="module")
def run_tiny() -> Iterator[Callable[..., None]]:
    """Run the tiny configuration in this process, without vLLM."""

    def run(run_dir: Path, point: str = "none") -> None:
        with interrupt_at(point, raise_killed):
            loop.run(load(TINY), run_dir)

    with without_vllm():
        yield run


@pytest.fixture(scope="module")
def finished_run(run_tiny: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("runs") / "uninterrupted"
    run_tiny(run_dir)
    return run_dir


def test_finished_run_is_shown_and_not_repeated(
    run_tiny: Callable[..., None], finished_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    modified_ns = (finished_run / "metrics.jsonl").stat().st_mtime_ns
    run_tiny(finished_run)
    assert "finished" in capsys.readouterr().out
    assert (finished_run / "metrics.jsonl").stat().st_mtime_ns == modified_ns


@pytest.mark.parametrize("stage", [0, 1])
def test_missing_episodes_file_is_reported(
    stage: int, run_tiny: Callable[..., None], finished_run: Path, tmp_path: Path
) -> None:
    run_dir = shutil.copytree(finished_run, tmp_path / "run")
    (run_dir / "summary.json").unlink()
    episodes_file = run_dir / f"stages/{stage}/episodes.jsonl"
    episodes_file.unlink()
    with pytest.raises(UserError, match=rf"^{episodes_file}: is missing but listed in SHA256SUMS"):
        run_tiny(run_dir)


def test_files_after_a_lost_checkpoint_are_rebuilt(
    run_tiny: Callable[..., None], finished_run: Path, tmp_path: Path
) -> None:
    run_dir = shutil.copytree(finished_run, tmp_path / "run")
    (run_dir / "summary.json").unlink()
    *_, checkpoint = sorted((run_dir / "checkpoints").iterdir(), key=lambda path: int(path.name))
    (checkpoint / "progress/metadata").unlink()
    # As updates that are taken again where sums have no fixed order, these differ from the first.
    for name in ("episodes.jsonl", "decision.json", "digests.json"):
        shutil.copyfile(run_dir / "stages/1" / name, run_dir / "stages/2" / name)
    RunDirectory(run_dir).write_digest_list()
    run_tiny(run_dir)
    assert_same_files(finished_run, run_dir)


def test_sigterm_releases_the_directory(tmp_path: Path) -> None:
    def start_run(run_dir: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "jaxlake", "run", str(TINY), "--run-dir", str(run_dir)]
        command += ["--set", "sampling.engine=jax", "stages.count=1"]
        return subprocess.Popen(command, cwd=ROOT)

    uninterrupted_dir, terminated_dir = tmp_path / "whole", tmp_path / "ended"
    assert start_run(uninterrupted_dir).wait() == 0
    process = start_run(terminated_dir)
    while not (terminated_dir / "stages/0").exists():  # the first update is next
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert (terminated_dir / ".lock").read_bytes() == b""
    assert not RunDirectory(terminated_dir).finished()
    assert start_run(terminated_dir).wait() == 0
    assert_same_files(uninterrupted_dir, terminated_dir)


@pytest.mark.vllm
@pytest.mark.timeout(3000)
def test_killed_vllm_run_resumes_identically(tmp_path: Path) -> None:
    def run(run_dir: Path, point: str = "none") -> int:
        command = [sys.executable, "-m", "tests.training.fake_run", str(TINY), str(run_dir), point]
        return subprocess.run([*command, *SETTINGS], cwd=ROOT, timeout=1200, check=False).returncode

    uninterrupted_dir = tmp_path / "uninterrupted"
    assert run(uninterrupted_dir) == 0
    for point in POINTS:
        assert run(tmp_path / "killed", point) == -signal.SIGKILL, point
    assert run(tmp_path / "killed") == 0
    assert_same_files(uninterrupted_dir, tmp_path / "killed")
    # What a real engine answers, and so whether all rewards are equal, depends on the processor.
    assert sum(update.grad_norm > 0 for update in RunDirectory(uninterrupted_dir).updates()) >= 5
    # The checkpoint that is loaded again answers as it did in the run.
    scores_file = tmp_path / "scores.json"
    command = [sys.executable, "-m", "jaxlake", "engineer", "replay", str(uninterrupted_dir)]
    options = ["--stage", "1", "--engineers", "checkpoint", "--json", str(scores_file)]
    subprocess.run([*command, *options], cwd=ROOT, timeout=600, check=True)
    (score,) = json.loads(scores_file.read_text())
    decision = json.loads((uninterrupted_dir / "stages/1/decision.json").read_text())
    assert score["configuration"] == decision["configuration"]
    assert score["kind"] == decision["kind"]
    assert score["spent"]["engineer_tokens"] == decision["spent"]["engineer_tokens"]


def test_linear_schedule_spans_a_rollback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, take_update = [], train.take_update

    def record_step(*args: Any, step: int, **options: Any) -> Any:
        steps.append(step)
        return take_update(*args, step=step, **options)

    monkeypatch.setattr(train, "take_update", record_step)
    monkeypatch.setattr(stage_results, "has_fallen", lambda *_: True)
    options = ["grpo.schedule=linear", "grpo.minibatches=2", "engineer.gate.rollback=checkpoint"]
    with without_vllm():
        loop.run(load(TINY, options), tmp_path)
    assert RunDirectory(tmp_path).stage(1).gate.read().restored == "checkpoint"
    assert steps == list(range(0, 16, 2))


def test_logs_are_synced_before_each_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    sync, save = JsonLog.sync, Checkpoints.save
    monkeypatch.setattr(JsonLog, "sync", lambda log: (calls.append("sync"), sync(log)))
    monkeypatch.setattr(
        Checkpoints, "save", lambda self, *args: (calls.append("save"), save(self, *args))
    )
    with without_vllm():
        loop.run(load(TINY), tmp_path, stop_after=1)
    assert calls == ["sync", "save"] * 5  # three of the warm start, two of the stage


def test_adapters_of_other_weights_are_rejected(tmp_path: Path) -> None:
    config = load(TINY, CASES["adapters"][1])
    with without_vllm():
        loop.run(config, tmp_path / "run", stop_after=1)
        shutil.rmtree(tmp_path / "run/initial")
        shutil.copytree(tmp_path / "run/stages/0/policy", tmp_path / "run/initial")
        RunDirectory(tmp_path / "run").write_digest_list()
        with pytest.raises(UserError, match=r"stages/0/adapters: its adapters belong to weights"):
            loop.run(config, tmp_path / "run")
