"""Two processes train a run together, and another number of processes resumes it."""

import json
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.training import cluster_process
from training.audit import audit_run
from training.run.directory import RunDirectory

MODULE = "tests.training.cluster_process"


def run_processes(run_dir: Path, num_processes: int, **variables: str) -> list[int]:
    """Run or resume with this number of processes, and return their exit statuses."""
    command = [MODULE, cluster_process.find_free_address(), str(num_processes), "{index}", "run"]
    logs = [run_dir.with_name(f"{run_dir.name}.{index}.log") for index in range(num_processes)]
    with ExitStack() as stack:
        children = cluster_process.start_processes(
            [*command, str(run_dir / "{index}")], logs, **variables
        )
        for process in children:
            stack.callback(process.wait)
            stack.callback(process.kill)
        return [process.wait(1500) for process in children]


def read_outcomes(run_dir: Path) -> list[object]:
    """Return what must be equal on one and two hosts: rewards, answers, decisions."""
    directory = RunDirectory(run_dir)
    updates = directory.updates()
    stages = [directory.stage(stage) for stage in (0, 1, 2)]
    return [
        [
            (update.step, update.reward_mean, update.completion_length, update.by_group)
            for update in updates
        ],
        [stage.episodes.read() for stage in stages],
        [stage.decision.read() for stage in stages[1:]],
    ]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_run_resumes_with_another_number_of_processes(tmp_path):
    killed_dir, joined_dir = tmp_path / "killed", tmp_path / "joined"
    # Process 1 dies in the third update, after the checkpoint of the second is complete.
    first, second = run_processes(
        killed_dir, 2, KILL_POINT="update", KILL_AFTER_FOLDER="checkpoints/2"
    )
    assert second == -signal.SIGKILL
    assert first not in (0, -signal.SIGKILL)
    assert sorted(checkpoint.name for checkpoint in (killed_dir / "checkpoints").iterdir()) == ["2"]
    assert (killed_dir / "checkpoints/2/state/array_metadatas/process_1").exists()
    assert run_processes(killed_dir, 1) == [0]

    assert run_processes(joined_dir, 1, STOP_AFTER_STAGE="1") == [0]
    assert run_processes(joined_dir, 2) == [0, 0]
    assert (joined_dir / "checkpoints/8/state/array_metadatas/process_1").exists()

    assert read_outcomes(killed_dir) == read_outcomes(joined_dir)
    metrics = [RunDirectory(path).metrics.read() for path in (killed_dir, joined_dir)]
    assert len(metrics[0]) == len(metrics[1]) == 8
    for killed_update, joined_update in zip(*metrics, strict=True):
        assert killed_update.loss == pytest.approx(joined_update.loss, rel=1e-2, abs=1e-5)
        assert killed_update.grad_norm == pytest.approx(joined_update.grad_norm, rel=1e-3)
    assert sum(update.grad_norm > 0 for update in metrics[0]) >= 5
    for path in (killed_dir, joined_dir):
        assert [stage.problems for stage in audit_run(path) if stage.problems] == []
        assert json.loads((path / "summary.json").read_text())
