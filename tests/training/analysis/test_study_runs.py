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

from jaxlake.command_line.entry import main
from tests.paths import ROOT
from tests.training.analysis.studies import (
    CALLS,
    ROUNDS,
    RUNS,
    STUDY,
    report_of,
    report_only,
    results_of,
    study_command,
    write_study,
)
from tests.training.sample_run import CONFIG
from training.analysis.study import runner
from training.analysis.study.config import load_study
from training.analysis.study.directory import StudyDirectory
from training.errors import UserError

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


def test_directory_belongs_to_the_study_that_claimed_it(tmp_path):
    directory = StudyDirectory(tmp_path / "out")
    study = load_study(write_study(tmp_path))
    assert [directory.claim(study), directory.claim(study)] == [False, True]
    for changes, problem in (
        ({"seeds": [4]}, r"seeds .*\[1, 2\] there, \[4\] here"),
        ({"set": ["stages.instances=240"]}, r"base.stages.instances \(160 there, 240 here\)"),
        ({"engineers": STUDY["engineers"][:1]}, "engineers.lively"),
    ):
        other = load_study(write_study(tmp_path, **changes))
        for use in (directory.claim, directory.check):
            with pytest.raises(UserError, match=f"holds another study.*{problem}"):
                use(other)


def test_directory_that_holds_something_else_is_left_alone(tmp_path, capsys):
    write_study(tmp_path)
    assert report_only(tmp_path) == 2
    assert "holds no study" in capsys.readouterr().err
    (tmp_path / "out").mkdir()
    (tmp_path / "out/diary.txt").write_text("mine")
    assert study_command(tmp_path) == 2
    assert "is not empty and holds no study" in capsys.readouterr().err


def test_study_that_was_killed_while_it_claimed_its_directory_can_start_again(tmp_path):
    study, out = load_study(write_study(tmp_path)), tmp_path / "out"
    out.mkdir()
    (out / ".study.yaml.4711.tmp").write_text("name: pa")
    assert StudyDirectory(out).claim(study) is False
    assert [child.name for child in out.iterdir()] == ["study.yaml"]


@pytest.mark.parametrize("text", [b"", b"- a", b"{", b"3", b"\x00", b"\xff\xfe"])
def test_damaged_claim_is_named(text, tmp_path):
    study, directory = load_study(write_study(tmp_path)), StudyDirectory(tmp_path / "out")
    directory.claim(study)
    directory.claim_file.write_bytes(text)
    for use in (directory.claim, directory.check):
        with pytest.raises(UserError, match=r"/out/study\.yaml: (is not YAML|must hold a mapping)"):
            use(study)


def test_dry_run_lists_the_runs_and_starts_nothing(tmp_path, capsys):
    write_study(tmp_path)
    assert study_command(tmp_path, "--dry-run") == 0
    printed = capsys.readouterr().out
    for run in RUNS:
        assert run.replace("/", ", seed ") in printed
    # Three stages of 160 instances each, four runs.
    assert re.search(r"training instances\D+480\D+1,920", printed)
    # At most 3 * 3 answers of one engineer and 3 * 2 of the other, for each of two seeds.
    assert re.search(r"engineer's answers, at most\D+9\D+30", printed)
    assert not (tmp_path / "out").exists()


def test_a_dry_run_shows_overrides_as_they_were_written(tmp_path, capsys):
    override = "engineer.blocks=[history]"
    engineers = [{"name": "a", "set": ["engineer.kind=fixed", override]}]
    write_study(tmp_path, engineers=engineers, baseline="a")
    assert study_command(tmp_path, "--dry-run") == 0
    assert override in re.sub(r"[\s│]+", "", capsys.readouterr().out)


def test_a_piece_has_seeds_and_engineers_of_its_own(tmp_path, capsys):
    path = write_study(tmp_path)
    piece = load_study(path, seeds=[7, 8], engineers=["steady"])
    assert [str(run) for run in piece.runs] == ["steady, seed 7", "steady, seed 8"]
    with pytest.raises(UserError, match="--engineers: got 'nobody', allowed are steady, lively"):
        load_study(path, engineers=["nobody"])
    assert load_study(path, engineers=["lively"]).config.baseline == "lively"
    assert load_study(path, engineers=["lively", "steady"]).config.baseline == "steady"
    with pytest.raises(UserError, match="seeds"):
        load_study(path, seeds=[-1])
    assert study_command(tmp_path, "--dry-run", "--seeds", "5", "--engineers", "steady") == 0
    printed = capsys.readouterr().out
    assert "steady, seed 5" in printed
    assert "lively" not in printed
    with pytest.raises(SystemExit, match="2"):
        study_command(tmp_path, "--dry-run", "--seeds", "one")
    assert "got 'one', allowed are whole numbers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"colour": "blue"}, ["colour", "unknown key", "baseline"]),
        ({"engineers": [{"name": "a", "kind": "x"}]}, ["engineers.0.kind", "unknown", "name, set"]),
        ({"engineers": []}, ["engineers", "got []", "at least 1"]),
        ({"engineers": [{"name": "a"}, {"name": "a"}]}, ["engineers", "['a', 'a']", "once"]),
        ({"engineers": [{"name": "../a"}]}, ["engineers.0.name", "'../a'"]),
        ({"seeds": []}, ["seeds", "got []"]),
        ({"seeds": [1, 1]}, ["seeds", "[1, 1]", "once"]),
        ({"seeds": [-1]}, ["seeds.0", "got -1", "greater than or equal to 0"]),
        ({"seeds": ["one"]}, ["seeds.0", "'one'"]),
        ({"baseline": "nobody"}, ["baseline", "'nobody'", "steady, lively"]),
        ({"resamples": 5}, ["resamples", "got 5", "100"]),
        ({"resamples": 10**10}, ["resamples", "got 10000000000", "1000000"]),
        ({"set": ["engineer.²=1"]}, ["set", "engineer.²", "unknown key"]),
        ({"set": [f"stages.{'9' * 5000}=1"]}, ["set", "stages.999", "unknown key"]),
        ({"confidence": 1.0}, ["confidence", "got 1.0", "less than 1"]),
        ({"slice_boards": 0}, ["slice_boards", "got 0"]),
        ({"set": "stages.count=1"}, ["set", "'stages.count=1'", "tuple"]),
        ({"set": ["stages.count=none"]}, ["set", "stages.count", "'none'"]),
        ({"set": ["stages"]}, ["set", "'stages'", "key.sub=value"]),
        ({"base": "nowhere.yaml"}, ["base", "nowhere.yaml", "can't be read"]),
        (
            {"engineers": [{"name": "steady", "set": ["stages.count=9"]}]},
            ["engineers.0.set", "'stages.count=9'", "engineer.*"],
        ),
        (
            {"engineers": [{"name": "steady", "set": ["engineer.kind=nobody"]}]},
            ["engineers.0.set", "engineer.kind", "'nobody'", "learnability"],
        ),
    ],
)
def test_bad_study_is_named_with_what_is_allowed(changes, words, tmp_path):
    with pytest.raises(UserError) as caught:
        load_study(write_study(tmp_path, **changes))
    for word in ["study_pair.yaml", *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize("text", ["", "- a", "{", "\x00"])
def test_file_that_is_no_study_is_named(text, tmp_path, capsys):
    path = tmp_path / "study.yaml"
    path.write_text(text)
    assert main(["study", str(path), "--dry-run"]) == 2
    assert str(path) in capsys.readouterr().err


def test_shipped_study_compares_six_engineers_over_three_seeds():
    study = load_study(ROOT / "configs/study_miniature.yaml")
    names = ["fixed", "random", "failure_proportional", "learnability", "rule", "checkpoint"]
    runs = [(run.engineer, run.seed) for run in study.runs]
    assert runs == [(name, seed) for seed in (1, 2, 3) for name in names]
    kinds = [study.config_of(run, Path("p")).engineer.kind for run in study.runs[:6]]
    assert kinds == names
