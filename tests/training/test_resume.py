"""A run that is killed in the middle of any phase ends as if it had not been."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.killed_run import POINTS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TINY = HERE / "tiny.yaml"

# The set-up is eight starts of vLLM one after the other.
pytestmark = pytest.mark.timeout(3000)


def _run(run_dir: Path, point: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(HERE / "killed_run.py"), str(TINY), str(run_dir), point],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("runs") / "uninterrupted"
    process = _run(run_dir, "none")
    assert process.returncode == 0, process.stderr[-3000:]
    return run_dir


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("runs") / "killed"
    for point in POINTS:
        process = _run(run_dir, point)
        assert process.returncode == -signal.SIGKILL, f"{point}: {process.stderr[-3000:]}"
    process = _run(run_dir, "none")
    assert process.returncode == 0, process.stderr[-3000:]
    return run_dir


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.parametrize(
    "name",
    [
        "metrics.jsonl",
        "summary.json",
        *(f"stages/{stage}/validation.json" for stage in (0, 1, 2)),
        *(f"stages/{stage}/episodes.jsonl" for stage in (0, 1, 2)),
        *(f"stages/{stage}/decision.json" for stage in (1, 2)),
        *(f"stages/{stage}/context.txt" for stage in (1, 2)),
        *(f"stages/{stage}/gate.json" for stage in (1, 2)),
        "chain.jsonl",
        "stages/2/policy/model.safetensors",
    ],
)
def test_a_run_killed_in_every_phase_leaves_the_same_file(
    name: str, uninterrupted: Path, killed: Path
) -> None:
    assert (killed / name).read_bytes() == (uninterrupted / name).read_bytes()


@pytest.mark.slow
@pytest.mark.vllm
def test_a_replayed_checkpoint_answers_as_it_did_in_the_run(
    uninterrupted: Path, tmp_path: Path
) -> None:
    scores = tmp_path / "scores.json"
    command = ["engineer", "replay", str(uninterrupted), "--stage", "1"]
    options = ["--engineers", "checkpoint", "--json", str(scores)]
    process = subprocess.run(
        [sys.executable, "-m", "training.cli", *command, *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    (row,) = json.loads(scores.read_text())
    decision = json.loads((uninterrupted / "stages/1/decision.json").read_text())
    assert row["configuration"] == decision["configuration"]
    assert row["kind"] == decision["kind"]
    assert row["tokens"] == decision["spent"]["engineer_tokens"]


@pytest.mark.slow
@pytest.mark.vllm
def test_a_finished_run_is_shown_again_and_not_run_again(uninterrupted: Path) -> None:
    before = (uninterrupted / "metrics.jsonl").stat().st_mtime_ns
    process = _run(uninterrupted, "none")
    assert process.returncode == 0, process.stderr[-3000:]
    assert "finished" in process.stdout
    assert (uninterrupted / "metrics.jsonl").stat().st_mtime_ns == before
