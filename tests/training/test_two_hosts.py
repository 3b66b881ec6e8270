"""Two processes train a run together, and another number of processes resumes it."""

import json
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.training import one_of_several
from training.audit import audit_run
from training.run.directory import RunDirectory

STARTED = "tests.training.one_of_several"


def run(run_dir: Path, processes: int, **environment: str) -> list[int]:
    """Run or resume with this number of processes, and return their exit statuses."""
    command = [STARTED, one_of_several.free_address(), str(processes), "{index}", "run"]
    logs = [run_dir.with_name(f"{run_dir.name}.{index}.log") for index in range(processes)]
    with ExitStack() as stack:
        started = one_of_several.start([*command, str(run_dir / "{index}")], logs, **environment)
        for process in started:
            stack.callback(process.wait)
            stack.callback(process.kill)
        return [process.wait(1500) for process in started]


def outcomes(run_dir: Path) -> list[object]:
    """What may not differ by rounding: rewards, answers, decisions."""
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
    killed, joined = tmp_path / "killed", tmp_path / "joined"
    # Process 1 dies in the third update; the checkpoint of the second is whole.
    first, second = run(killed, 2, DIE_AT="update", WHEN_SAVED="checkpoints/2")
    assert second == -signal.SIGKILL
    assert first not in (0, -signal.SIGKILL)
    assert sorted(checkpoint.name for checkpoint in (killed / "checkpoints").iterdir()) == ["2"]
    assert (killed / "checkpoints/2/state/array_metadatas/process_1").exists()
    assert run(killed, 1) == [0]

    assert run(joined, 1, STOP_AFTER="1") == [0]
    assert run(joined, 2) == [0, 0]
    assert (joined / "checkpoints/8/state/array_metadatas/process_1").exists()

    assert outcomes(killed) == outcomes(joined)
    metrics = [RunDirectory(path).metrics.read() for path in (killed, joined)]
    assert len(metrics[0]) == len(metrics[1]) == 8
    for killed_update, joined_update in zip(*metrics, strict=True):
        assert killed_update.loss == pytest.approx(joined_update.loss, rel=1e-2, abs=1e-5)
        assert killed_update.grad_norm == pytest.approx(joined_update.grad_norm, rel=1e-3)
    assert sum(metric.grad_norm > 0 for metric in metrics[0]) >= 5
    for path in (killed, joined):
        assert [stage.problems for stage in audit_run(path) if stage.problems] == []
        assert json.loads((path / "summary.json").read_text())
