"""A run that is killed in the middle of any phase ends as if it had not been."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from tests.paths import ROOT, TINY
from tests.training.killed_run import POINTS, dying_at
from tests.training.stand_in_sampler import StandInSampler, without_vllm
from training import loop
from training.errors import UserError
from training.run.directory import RunDirectory
from training.run.records import UpdateMetrics
from training.schema import load

HERE = Path(__file__).parent
# With a policy that knows no boards, all rewards of a real engine's few answers are 0.
LEARNS = ("model.pretrained=jaxlake-base", "warm_start.learning_rate=1e-4")
NOT_COMPARED = ("timings.jsonl", "report.html", "checkpoints", "engine")


class KilledError(BaseException):
    """Ends a run in this process; nothing catches it."""


def run_with_vllm(run_dir: Path, point: str = "none") -> int:
    """Run the tiny configuration in a process of its own, and return its exit status."""
    command = [sys.executable, str(HERE / "killed_run.py"), str(TINY), str(run_dir), point]
    command += LEARNS
    return subprocess.run(command, cwd=ROOT, timeout=1200, check=False).returncode


def start_run(run_dir: Path) -> subprocess.Popen[bytes]:
    """Start `jaxlake run` on the tiny configuration, without vLLM, in a process of its own."""
    command = [sys.executable, "-m", "jaxlake", "run", str(TINY), "--run-dir", str(run_dir)]
    command += ["--set", "sampling.engine=jax", "stages.count=1"]
    return subprocess.Popen(command, cwd=ROOT)


def files_of(run_dir: Path) -> dict[str, bytes]:
    """Everything that a run leaves and that must be equal for equal runs."""
    found = {str(path.relative_to(run_dir)): path for path in run_dir.rglob("*") if path.is_file()}
    return {
        name: re.sub(rb'"seconds": [0-9.e-]+', b"", path.read_bytes())
        for name, path in found.items()
        if not name.startswith(NOT_COMPARED)
    }


def assert_updates_learn(run_dir: Path, least: int = 8) -> None:
    """Otherwise a lost update would not be seen: so many of the eight have a gradient."""
    metrics = RunDirectory(run_dir).metrics.read()
    updates = [one for one in metrics if isinstance(one, UpdateMetrics)]
    assert len(updates) == 8
    assert sum(one.grad_norm > 0 for one in updates) >= least


def stop() -> NoReturn:
    raise KilledError


@pytest.fixture(scope="module")
def run_here() -> Iterator[Callable[..., None]]:
    """Run the tiny configuration in this process, without vLLM."""
    config = load(TINY)
    boards = loop.validation_set(config)

    def run(run_dir: Path, point: str = "none", stop_after: int | None = None) -> None:
        with dying_at(point, stop):
            loop.run(config, run_dir, stop_after=stop_after)

    with without_vllm(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "validation_set", lambda config: boards)
        yield run


@pytest.fixture(scope="module")
def uninterrupted(run_here: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("runs") / "uninterrupted"
    run_here(run_dir)
    return run_dir


@pytest.mark.slow
def test_a_run_stopped_in_every_phase_leaves_the_same_files(
    run_here: Callable[..., None], uninterrupted: Path, tmp_path: Path
) -> None:
    for point in POINTS:
        with pytest.raises(KilledError):
            run_here(tmp_path / "run", point)
        assert StandInSampler.open_ones == 0
    for stage in (0, 1, None):
        run_here(tmp_path / "run", stop_after=stage)
    expected, found = files_of(uninterrupted), files_of(tmp_path / "run")
    assert sorted(found) == sorted(expected)
    assert [name for name in expected if found[name] != expected[name]] == []
    assert {"stages/2/policy/model.safetensors", "chain.jsonl", "summary.json"} < set(expected)
    weights = {expected[f"stages/{stage}/policy/model.safetensors"] for stage in (0, 1, 2)}
    assert len(weights) == 3
    assert_updates_learn(uninterrupted)


@pytest.mark.slow
def test_a_finished_run_is_shown_again_and_not_run_again(
    run_here: Callable[..., None], uninterrupted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (uninterrupted / "metrics.jsonl").stat().st_mtime_ns
    run_here(uninterrupted)
    assert "finished" in capsys.readouterr().out
    assert (uninterrupted / "metrics.jsonl").stat().st_mtime_ns == before


@pytest.mark.slow
@pytest.mark.parametrize("stage", [0, 1])
def test_a_stage_that_lost_its_results_is_not_trained_again_with_later_weights(
    stage: int, run_here: Callable[..., None], uninterrupted: Path, tmp_path: Path
) -> None:
    run_dir = shutil.copytree(uninterrupted, tmp_path / "run")
    (run_dir / "summary.json").unlink()
    lost = run_dir / f"stages/{stage}/episodes.jsonl"
    lost.unlink()
    with pytest.raises(UserError, match=rf"^{lost}: is missing, but the checkpoint is of stage 2$"):
        run_here(run_dir)


@pytest.mark.slow
def test_what_was_written_of_weights_after_a_lost_checkpoint_is_made_again(
    run_here: Callable[..., None], uninterrupted: Path, tmp_path: Path
) -> None:
    run_dir = shutil.copytree(uninterrupted, tmp_path / "run")
    (run_dir / "summary.json").unlink()
    *_, last = sorted((run_dir / "checkpoints").iterdir(), key=lambda one: int(one.name))
    (last / "progress/metadata").unlink()
    # As updates that are taken again where sums have no fixed order, these differ from the first.
    for name in ("episodes.jsonl", "decision.json"):
        shutil.copyfile(run_dir / "stages/1" / name, run_dir / "stages/2" / name)
    chain = (run_dir / "chain.jsonl").read_text().splitlines()
    (run_dir / "chain.jsonl").write_text("\n".join([*chain[:2], chain[2].replace("a", "b"), ""]))
    run_here(run_dir)
    expected, found = files_of(uninterrupted), files_of(run_dir)
    assert [name for name in expected if found[name] != expected[name]] == []


@pytest.mark.slow
def test_a_run_whose_last_updates_are_not_logged_goes_on_from_the_checkpoint_before(
    run_here: Callable[..., None],
    uninterrupted: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_dir = tmp_path / "run"
    monkeypatch.setitem(POINTS, "update", (POINTS["update"][0], 7))
    with pytest.raises(KilledError):
        run_here(run_dir, "update")
    metrics = RunDirectory(run_dir).metrics
    numbers = [one.update for one in metrics.read() if isinstance(one, UpdateMetrics)]
    assert numbers == [1, 2, 3, 4, 1, 2]  # and a checkpoint of the last one
    # A power cut may take lines that were not yet on the disk, and leave a later checkpoint.
    metrics.write(metrics.read()[:-2])
    run_here(run_dir)
    expected, found = files_of(uninterrupted), files_of(run_dir)
    assert [name for name in expected if found[name] != expected[name]] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_ended_by_sigterm_releases_its_directory_and_the_same_command_goes_on(
    tmp_path: Path,
) -> None:
    whole, ended = tmp_path / "whole", tmp_path / "ended"
    assert start_run(whole).wait() == 0
    process = start_run(ended)
    while not (ended / "stages/0").exists():  # the first update is next
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert (ended / ".lock").read_bytes() == b""
    assert not RunDirectory(ended).finished()
    assert start_run(ended).wait() == 0
    expected, found = files_of(whole), files_of(ended)
    assert sorted(found) == sorted(expected)
    assert [name for name in expected if found[name] != expected[name]] == []


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.timeout(3000)
def test_a_run_with_vllm_killed_in_every_phase_leaves_the_same_files(tmp_path: Path) -> None:
    assert run_with_vllm(tmp_path / "uninterrupted") == 0
    for point in POINTS:
        assert run_with_vllm(tmp_path / "killed", point) == -signal.SIGKILL, point
    assert run_with_vllm(tmp_path / "killed") == 0
    assert files_of(tmp_path / "killed") == files_of(tmp_path / "uninterrupted")
    # What a real engine answers, and so whether all rewards are equal, depends on the processor.
    assert_updates_learn(tmp_path / "uninterrupted", least=5)
    # The checkpoint that is loaded again answers as it did in the run.
    run_dir, scores = tmp_path / "uninterrupted", tmp_path / "scores.json"
    command = [sys.executable, "-m", "jaxlake", "engineer", "replay", str(run_dir)]
    options = ["--stage", "1", "--engineers", "checkpoint", "--json", str(scores)]
    subprocess.run([*command, *options], cwd=ROOT, timeout=600, check=True)
    (row,) = json.loads(scores.read_text())
    decision = json.loads((run_dir / "stages/1/decision.json").read_text())
    assert row["configuration"] == decision["configuration"]
    assert row["kind"] == decision["kind"]
    assert row["tokens"] == decision["spent"]["engineer_tokens"]
