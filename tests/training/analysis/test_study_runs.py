"""Running a study: its runs start, fail, are stopped and resume, and its directory is its own."""

import json
import os
import platform
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.paths import ROOT
from tests.training.analysis.studies import (
    CALLS,
    ROUNDS,
    RUNS,
    STUDY,
    report_of,
    results_of,
    study_command,
    write_study,
)
from tests.training.sample_run import CONFIG
from training.analysis.study import runner
from training.analysis.study.config import load_study
from training.analysis.study.directory import StudyDirectory

STAND_IN = ROOT / "tests" / "training" / "stand_in_run.py"


class StandIn:
    """A study whose runs are copies; what is to go wrong can be said before each call."""

    def __init__(self, template: Path, folder: Path) -> None:
        self.template, self.folder = template, folder
        self.study = load_study(write_study(folder))
        self.directory = StudyDirectory(folder / "out")
        self.command = (sys.executable, str(STAND_IN), str(template))
        self.orders()

    def orders(self, fail: tuple[str, ...] = (), end_study: str = "") -> None:
        orders = {"fail": fail, "end_study": end_study}
        (self.template / "stand_in.json").write_text(json.dumps(orders))
        (self.template / "calls.jsonl").write_text("")

    def calls(self) -> list[dict[str, Any]]:
        lines = (self.template / "calls.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def called(self) -> list[str]:
        return [call["name"] for call in self.calls()]


@pytest.fixture
def stand_in(finished_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    one = StandIn(finished_study / "out", tmp_path / "study")
    monkeypatch.setattr(runner, "COMMAND", one.command)
    return one


def test_study_warm_starts_once_and_runs_seeds_outermost(stand_in, capsys):
    assert study_command(stand_in.folder) == 0
    assert stand_in.called() == ["warm_start", *CALLS]
    first, *others = stand_in.calls()
    assert first["set"] == STUDY["set"]
    for call in others:
        engineer, seed = call["name"].split("/")[-2:]
        kind = {"steady": "fixed", "lively": "random"}[engineer]
        assert {
            *STUDY["set"],
            f"engineer.kind={kind}",
            f"seed={seed}",
            "warm_start=null",
            f'model.pretrained="{stand_in.directory.policy}"',
        } <= set(call["set"])
    printed = capsys.readouterr().out
    for number, run in enumerate(RUNS, start=1):
        title = run.replace("/", ", seed ")
        assert re.search(rf"\[{number}/4\] {title}: .*valid \(CSR\) [\d.]+%, ISR [\d.]+%", printed)
    assert len(re.findall("elapsed .*left for", printed)) == 3
    log = stand_in.directory.path / "runs/lively/1.log"
    assert log.read_text() == "this is lively/1\n"
    report, cores = report_of(stand_in.folder), len(os.sched_getaffinity(0))
    version = platform.python_version()
    assert re.search(rf"Run on .+ \({cores} cores?, .*Python {version}, jax .*\. All ", report)
    assert len(stand_in.directory.machines.read()) == 1
    assert re.search("from start to end took .+, of which the warm start took .+", report)
    took = results_of(stand_in.folder)["process_seconds"]
    assert took == {one.run: one.seconds for one in stand_in.directory.processes.read()}
    assert list(took) == ["warm_start", *CALLS]


def test_runs_go_side_by_side_and_come_to_the_same(stand_in, monkeypatch, capsys):
    monkeypatch.setattr(runner, "_usable_cores", lambda: [*os.sched_getaffinity(0)][:1] * 2)
    assert study_command(stand_in.folder, "--jobs", "2") == 0
    called = stand_in.called()
    assert called[0] == "warm_start"
    assert sorted(called[1:]) == sorted(CALLS)
    # Each run comes after its first round, and the second seed's begins beside the first one's.
    for run in RUNS:
        assert called.index(ROUNDS[int(run[-1]) - 1]) < called.index(run)
    assert set(called[1:3]) == set(ROUNDS)
    assert "Missing" not in report_of(stand_in.folder)
    # No run has got another one's answers.
    finished = results_of(stand_in.template.parent)
    assert results_of(stand_in.folder)["engineers"] == finished["engineers"]
    capsys.readouterr()
    assert study_command(stand_in.folder, "--jobs", "3") == 2
    assert "--jobs: got 3, allowed are 1 to 2" in capsys.readouterr().err


@pytest.mark.slow
def test_failed_run_is_shown_and_the_others_go_on_and_it_resumes(stand_in, capsys):
    stand_in.orders(fail=("lively/1",))
    assert study_command(stand_in.folder) == 1
    printed = capsys.readouterr().out
    assert "lively, seed 1: failed with exit status 7" in printed
    assert "the lake is frozen over" in printed
    assert stand_in.called() == ["warm_start", *CALLS]
    assert "Missing: lively seed 1 (not finished)." in report_of(stand_in.folder)

    stand_in.orders()
    assert study_command(stand_in.folder) == 0
    assert "3 of 4 runs are finished already." in capsys.readouterr().out
    assert [(call["name"], call["known"]) for call in stand_in.calls()] == [("lively/1", True)]
    assert "Missing" not in report_of(stand_in.folder)
    statuses = [(one.run, one.status) for one in stand_in.directory.processes.read()]
    assert [statuses[3], statuses[-1]] == [("lively/1", 7), ("lively/1", 0)]

    stand_in.orders()
    assert study_command(stand_in.folder) == 0
    assert stand_in.calls() == []


def test_failed_first_round_is_shown_and_is_no_failed_run(stand_in, capsys):
    stand_in.orders(fail=(ROUNDS[0],))
    assert study_command(stand_in.folder, "--seeds", "1") == 0
    assert "first round of seed 1: failed with exit status 7" in capsys.readouterr().out
    # Each run does everything itself, once the round was tried for it.
    assert stand_in.called() == ["warm_start", ROUNDS[0], RUNS[0], ROUNDS[0], RUNS[1]]


def test_without_a_warm_start_no_run_is_started(stand_in, capsys):
    stand_in.orders(fail=("warm_start",))
    assert study_command(stand_in.folder) == 1
    assert "warm start: failed with exit status 7" in capsys.readouterr().out
    assert stand_in.called() == ["warm_start"]


def test_runs_of_a_base_without_warm_start_begin_with_its_model(
    finished_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    """The runs are those of another study, so that reading them is refused; all calls are seen."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    folder = tmp_path / "study"
    corner = "{3: {data_ratio: 0.1, hole_ratio: 0.3, wait_ratio: 0.5}, 4: {data_ratio: 0.1, "
    corner += "hole_ratio: 0.3, wait_ratio: 0.5}, 5: {data_ratio: 0.8, hole_ratio: 0.3, "
    corner += "wait_ratio: 0.5}}"
    arms = [
        {"name": "steady", "set": ["engineer.kind=fixed"]},
        {"name": "lively", "set": ["engineer.kind=fixed", f"environment.initial.sizes={corner}"]},
    ]
    write_study(folder, engineers=arms)
    ready = CONFIG | {"warm_start": None, "model": {"pretrained": "jaxlake-base"}}
    (folder / "base.yaml").write_text(yaml.safe_dump(ready))
    study = load_study(folder / "study_pair.yaml")
    assert not study.warms_up
    configs = [study.config_of(run, StudyDirectory(folder / "out").policy) for run in study.runs]
    assert {one.model.pretrained for one in configs} == {"jaxlake-base"}
    steady, lively = configs[:2]
    assert lively.environment.initial.sizes[5].data_ratio == 0.8
    assert lively.environment.initial != steady.environment.initial
    same = {"name": "one", "environment": steady.environment}
    assert lively.model_copy(update=same) == steady.model_copy(update=same)

    template = finished_study / "out"
    (template / "stand_in.json").write_text('{"fail": [], "end_study": ""}')
    (template / "calls.jsonl").write_text("")
    monkeypatch.setattr(runner, "COMMAND", (sys.executable, str(STAND_IN), str(template)))
    assert study_command(folder, "--dry-run") == 0
    assert "warm start" not in capsys.readouterr().out
    assert study_command(folder) == 2
    assert "its configuration is not that of" in capsys.readouterr().err
    calls = [json.loads(line) for line in (template / "calls.jsonl").read_text().splitlines()]
    # They differ in where they begin, so that they share nothing.
    assert [call["name"] for call in calls] == RUNS
    assert not any("pretrained" in one or "warm" in one for call in calls for one in call["set"])


@pytest.mark.slow
def test_study_that_is_ended_ends_its_run_and_continues_later(stand_in):
    stand_in.orders(end_study="lively/1")
    slow = ("sh", "-c", 'sleep 0.3; exec "$@"', "sh", *stand_in.command)
    command = [
        sys.executable,
        "-c",
        "import sys; from jaxlake.command_line.entry import main; "
        "from training.analysis.study import runner; "
        f"runner.COMMAND = {slow!r}; sys.exit(main(sys.argv[1:]))",
        *("study", str(stand_in.folder / "study_pair.yaml")),
        *("--study-dir", str(stand_in.directory.path)),
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 128 + signal.SIGTERM, ended.stderr
    assert stand_in.called() == ["warm_start", *CALLS[:3]]
    stopped = stand_in.directory.processes.read()[-1]
    assert (stopped.run, stopped.status) == ("lively/1", -signal.SIGTERM)
    assert stopped.seconds >= 0.3

    stand_in.orders()
    assert study_command(stand_in.folder) == 0
    assert stand_in.called() == CALLS[2:]
    processes = stand_in.directory.processes.read()
    *_, again = (one for one in processes if one.run == "lively/1")
    assert again.status == 0
    took = results_of(stand_in.folder)["process_seconds"]
    assert took["lively/1"] == pytest.approx(stopped.seconds + again.seconds)
    assert sum(took.values()) == pytest.approx(sum(one.seconds for one in processes))


IGNORES_SIGTERM = """
import signal
signal.signal(signal.SIGTERM, lambda *_: print("asked to end", flush=True))
print("ready", flush=True)
while True:
    signal.pause()
"""


@pytest.fixture
def stubborn() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two processes that do not end when they are asked to."""
    command = [sys.executable, "-c", IGNORES_SIGTERM]
    with ExitStack() as stack:
        processes = []
        for _ in range(2):
            processes.append(stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE)))
            stack.callback(processes[-1].kill)
        for process in processes:
            assert process.stdout.readline() == b"ready\n"
        yield processes


def test_second_interrupt_kills_all_runs_that_do_not_end(stubborn):
    def interrupt_the_wait() -> None:
        for process in stubborn:
            assert process.stdout.readline() == b"asked to end\n"
        os.kill(os.getpid(), signal.SIGINT)

    began = time.monotonic()
    threading.Thread(target=interrupt_the_wait).start()
    with pytest.raises(KeyboardInterrupt):
        runner._end(stubborn)
    assert [one.returncode for one in stubborn] == [-signal.SIGKILL] * 2
    # All are asked before any is waited for.
    assert time.monotonic() - began < runner._SECONDS_TO_END


def test_interrupted_study_leaves_no_process_though_its_wait_is_interrupted(
    stubborn, tmp_path: Path, monkeypatch
):
    study, directory = load_study(write_study(tmp_path)), StudyDirectory(tmp_path / "out")
    directory.claim(study)

    work = runner._Runner(study, directory, lock=0, jobs=2)

    def steps(slot: int) -> Iterator[runner._Process]:
        files = directory.run(study.runs[slot])
        one = runner._Process("", RUNS[slot], files, stubborn[slot], time.monotonic())
        work.in_progress[slot] = one
        yield one

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    first, interrupts = stubborn[0], [KeyboardInterrupt]

    def interrupted_once(timeout: float | None = None) -> int:
        if interrupts:
            raise interrupts.pop()
        return subprocess.Popen.wait(first, timeout)

    monkeypatch.setattr(runner, "_wait_for_one", interrupt)
    monkeypatch.setattr(first, "wait", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        work._work(steps)
    assert [one.poll() for one in stubborn] == [-signal.SIGKILL] * 2
    assert not interrupts
    logged = {one.run: one.status for one in directory.processes.read()}
    assert logged == dict.fromkeys(RUNS[:2], -signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_that_is_interrupted_as_it_starts_is_ended(number, tmp_path: Path, monkeypatch):
    """The interrupt comes when the process is there and nobody has been told of it."""
    study, directory = load_study(write_study(tmp_path)), StudyDirectory(tmp_path / "out")
    directory.claim(study)
    started: list[subprocess.Popen[bytes]] = []

    class Interrupted(subprocess.Popen):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            started.append(self)
            os.kill(os.getpid(), number)
            time.sleep(0)  # a chance for Python to call the handler

    monkeypatch.setattr(runner, "COMMAND", (sys.executable, "-c", "import time; time.sleep(600)"))
    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    try:
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            runner.run_study(study, directory)
        (one,) = started
        assert one.returncode is not None, "the process outlived the study"
        (logged,) = directory.processes.read()
        assert (logged.run, logged.status) == ("warm_start", one.returncode)
    finally:
        for one in started:
            one.kill()


def test_two_studies_do_not_work_in_one_directory(stand_in, capsys):
    stand_in.directory.claim(stand_in.study)
    with stand_in.directory.lock():
        assert study_command(stand_in.folder) == 2
    assert f"is in use by process {os.getpid()} on" in capsys.readouterr().err
    assert stand_in.calls() == []
