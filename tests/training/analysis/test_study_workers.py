"""Workers: one run after the other in one process, each as in a process of its own."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.paths import ROOT, TINY
from training.analysis.study import runner, workers
from training.analysis.study.workers import Worker

PLAN = ["run", str(TINY), "--dry-run"]


@pytest.fixture
def worker() -> Iterator[Worker]:
    with closing(Worker(os.environ)) as one:
        yield one


def test_a_worker_does_one_order_after_the_other_and_appends_to_their_logs(worker, tmp_path):
    logs = [tmp_path / "a.log", tmp_path / "b.log"]
    logs[1].write_text("before\n")
    for log in logs:
        assert worker.run(PLAN, log).wait(60) == 0
        assert worker.usable
    first, second = (log.read_text() for log in logs)
    assert "stage 1" in first
    assert second == "before\n" + first
    assert worker.process.poll() is None


def test_after_an_order_that_failed_no_other_one_is_taken(worker, tmp_path):
    order = worker.run(["run", "nowhere.yaml"], tmp_path / "log")
    assert order.wait(60) == order.poll() == 2
    assert "nowhere.yaml: can't be read" in (tmp_path / "log").read_text()
    assert not worker.usable


def test_wrong_arguments_end_the_order_and_not_the_worker(worker, tmp_path):
    assert worker.run(["run", "--nonsense"], tmp_path / "log").wait(60) == 2
    assert "usage" in (tmp_path / "log").read_text()
    assert worker.process.poll() is None


def test_a_worker_takes_no_more_orders_than_it_may(worker, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "MOST_RUNS", 1)
    assert worker.run(PLAN, tmp_path / "log").wait(60) == 0
    assert not worker.usable


def test_an_order_has_no_status_while_it_is_in_progress_and_ends_with_its_worker(worker, tmp_path):
    os.mkfifo(tmp_path / "boards")
    order = worker.run(["solve", str(tmp_path / "boards")], tmp_path / "log")  # waits for boards
    assert order.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        order.wait(0.2)
    order.terminate()
    assert order.wait(60) == order.poll() == -signal.SIGTERM
    assert not worker.usable
    assert worker.run(PLAN, tmp_path / "log").wait(60) == -signal.SIGTERM


def test_a_worker_ends_without_orders_also_when_it_is_interrupted():
    for number in (None, signal.SIGINT):
        worker = Worker(os.environ)
        if number is not None:
            worker.process.send_signal(number)
        worker.close()
        assert worker.process.returncode in (0, -signal.SIGINT)


@pytest.mark.slow
def test_runs_in_one_worker_come_to_what_they_come_to_alone(tmp_path):
    """Weights, answers and metrics of two runs, to the byte."""
    overrides = ["sampling.engine=jax", "engineer.kind=random"]
    seeds = (3, 4)

    def arguments(folder: Path, seed: int) -> list[str]:
        setting = [*overrides, f"seed={seed}"]
        return ["run", str(TINY), "--run-dir", str(folder), "--set", *setting]

    with closing(Worker(os.environ)) as worker:
        for seed in seeds:
            log = tmp_path / f"{seed}.log"
            assert worker.run(arguments(tmp_path / f"w{seed}", seed), log).wait(500) == 0, log
            assert worker.usable
    for seed in seeds:
        command = [*runner.COMMAND, *arguments(tmp_path / f"p{seed}", seed)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        ours, theirs = (_outcome(tmp_path / f"{kind}{seed}") for kind in "wp")
        assert ours.keys() == theirs.keys()
        assert len(ours) > 8
        assert [name for name in ours if ours[name] != theirs[name]] == []
    differ = [_outcome(tmp_path / f"w{seed}")["metrics.jsonl"] for seed in seeds]
    assert differ[0] != differ[1]


def _outcome(run: Path) -> dict[str, bytes]:
    files = [run / "metrics.jsonl", *run.glob("stages/*/policy/*.safetensors")]
    files += [*run.glob("stages/*/episodes.jsonl"), *run.glob("stages/*/configuration.json")]
    return {str(file.relative_to(run)): file.read_bytes() for file in files}
