"""A study whose runs are jobs of submitit on this machine: they run, fail, are cancelled, go on."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from tests.training.analysis.studies import CALLS, ROUNDS, RUNS, results_of, study_command
from tests.training.analysis.test_study_runs import StandIn
from training.analysis.study import runner
from training.analysis.study.cluster import Cluster, ClusterJob, parameters_of
from training.errors import UserError

# Its import sets up logging, which closes what absl writes to unless that is sys.stderr; within a
# test that has `capsys` it is not, but the file from which pytest reads all other output.
pytest.importorskip("submitit")

LOCAL = ("--cluster", "local", "--jobs", "2")


@pytest.fixture
def stand_in(finished_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    one = StandIn(finished_study / "out", tmp_path / "study")
    monkeypatch.setattr(runner, "COMMAND", one.command)
    return one


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Jobs of two tasks each; those that a test leaves are cancelled."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    submitted, submit = [], Cluster.submit

    def noted(*arguments: Any) -> ClusterJob:
        submitted.append(submit(*arguments))
        return submitted[-1]

    monkeypatch.setattr(Cluster, "submit", noted)
    yield Cluster("local", tmp_path / "jobs", {"tasks_per_node": 2})
    for job in submitted:
        job.kill()


def until(condition: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_tasks_of_a_job_get_the_command_of_one_process_of_a_run_each(cluster, tmp_path):
    log = tmp_path / "log"
    log.write_text("before\n")
    command = ["sh", "-c", 'echo "$VALUE $@"; exit 7', "sh", "--option"]
    job = cluster.submit("steady/1", command, {"VALUE": "kept"}, log)
    assert job.poll() is None
    assert job.wait(120) == job.poll() == 7
    before, first = log.read_text().splitlines()
    second = (tmp_path / "log.1").read_text().strip()
    address = first.split()[3]
    assert before == "before"
    assert address.startswith("127.0.0.1:")
    for index, said in enumerate((first, second)):
        where = f"--coordinator {address} --processes 2 --process {index}"
        assert said == f"kept --option {where}"


def test_a_cancelled_job_ends_its_command_and_one_that_was_killed_names_its_files(
    cluster, tmp_path
):
    log = tmp_path / "log"
    jobs = [
        cluster.submit("a", ["sh", "-c", "echo $$ $PPID; exec sleep 600"], {}, tmp_path / name)
        for name in ("cancelled", "log")
    ]
    files = [tmp_path / name for name in ("cancelled", "cancelled.1", "log", "log.1")]
    until(lambda: all(file.exists() and file.read_text() for file in files))
    assert [job.poll() for job in jobs] == [None, None]
    assert jobs[0].state == "running"
    jobs[0].terminate()
    assert jobs[0].wait(60) == -signal.SIGTERM
    until(
        lambda: not any(Path(f"/proc/{file.read_text().split()[0]}").exists() for file in files[:2])
    )
    for task in jobs[1]._job._sub_jobs:
        task._results_timeout_s = 1
    for file in files[2:]:
        command, submitits = map(int, file.read_text().split())
        os.kill(submitits, signal.SIGKILL)  # no result will come
        os.kill(command, signal.SIGKILL)
    assert jobs[1].wait(120) == 1
    assert f"job {jobs[1].id}, finished: Job {jobs[1].id} (task: 0)" in log.read_text()
    assert str(tmp_path / "jobs") in log.read_text()


def test_parameters_are_submitits(tmp_path):
    given = parameters_of(["gpus_per_node=8", "slurm_partition=gpu", "slurm_setup=[a, b]"])
    assert given == {"gpus_per_node": 8, "slurm_partition": "gpu", "slurm_setup": ["a", "b"]}
    for text in ("gpus_per_node", "=1", "a=[", "a b=1"):
        with pytest.raises(UserError, match="--cluster-set: got"):
            parameters_of([text])
    for wrong in ({"gpus": 1}, {"timeout_min": "long"}, {"nodes": 2}):
        with pytest.raises(UserError, match="--cluster: got local with"):
            Cluster("local", tmp_path, wrong).submit("a", ["true"], {}, tmp_path / "log")
    with pytest.raises(UserError, match="--cluster: got slurm"):
        Cluster("slurm", tmp_path, {})


@pytest.mark.slow
def test_runs_are_jobs_in_the_order_that_they_need_and_come_to_the_same(stand_in, capsys):
    stand_in.orders(fail=("lively/2",))
    assert study_command(stand_in.folder, *LOCAL) == 1
    called = stand_in.called()
    assert called[0] == "warm_start"
    assert sorted(called[1:]) == sorted(CALLS)
    for run in RUNS:
        assert called.index(ROUNDS[int(run[-1]) - 1]) < called.index(run)
    printed = capsys.readouterr().out
    assert "warm start: job " in printed
    log = stand_in.directory.path / "runs/lively/2.log"
    assert "lively, seed 2: failed with exit status 7 after" in printed
    assert f"the end of {log}:" in printed
    assert "the lake is frozen over" in printed

    stand_in.orders()
    assert study_command(stand_in.folder, *LOCAL) == 0
    assert stand_in.called() == ["lively/2"]
    finished = results_of(stand_in.template.parent)
    assert results_of(stand_in.folder)["engineers"] == finished["engineers"]
    statuses = [(one.run, one.status) for one in stand_in.directory.processes.read()]
    expected = [("warm_start", 0), *((name, 0) for name in CALLS), ("lively/2", 7)]
    assert sorted(statuses) == sorted(expected)


@pytest.mark.slow
def test_an_interrupted_study_cancels_its_jobs_and_continues_later(stand_in):
    stand_in.orders(end_study="lively/1")  # in a job it waits for its own end
    code = (
        "import sys; from jaxlake.command_line.entry import main; "
        "from training.analysis.study import runner; "
        f"runner.COMMAND = {stand_in.command!r}; sys.exit(main(sys.argv[1:]))"
    )
    arguments = ["study", str(stand_in.folder / "study_pair.yaml"), *LOCAL, "--seeds", "1"]
    arguments += ["--study-dir", str(stand_in.directory.path)]
    study = subprocess.Popen([sys.executable, "-c", code, *arguments], cwd=ROOT)
    until(lambda: "lively/1" in stand_in.called())
    study.send_signal(signal.SIGINT)
    assert study.wait(120) == 130
    ended = {one.run: one.status for one in stand_in.directory.processes.read()}
    assert ended["lively/1"] == -signal.SIGTERM
    waiting = ["pgrep", "-f", f"{stand_in.template} run"]
    until(lambda: subprocess.run(waiting, capture_output=True).returncode == 1)

    stand_in.orders()
    assert study_command(stand_in.folder, *LOCAL, "--seeds", "1") == 0
    assert "lively/1" in stand_in.called()
    assert "steady/1" not in stand_in.called() or ended["steady/1"] != 0
