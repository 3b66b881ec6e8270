"""Running a study: its runs start, fail, are stopped and resume."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from tests.training.analysis.studies import (
    FIRST_STAGES,
    RUNS,
    STUDY,
    read_report_page,
    read_results,
    study_command,
    write_study,
)
from training.analysis.study import runner
from training.analysis.study.cluster import Cluster
from training.analysis.study.config import load_study
from training.analysis.study.directory import StudyDirectory
from training.commands.pairs import read_pairs
from training.errors import UserError
from training.run.lock import lock_folder

STAND_IN = ROOT / "tests" / "training" / "stand_in_run.py"
CALLS = ["warm_start", *FIRST_STAGES, *RUNS]
LOCAL = ("--cluster", "local", "--jobs", "2")


class StandIn:
    """A study of copied runs; tests choose its failures before each call."""

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
    study = StandIn(finished_study / "out", tmp_path / "study")
    monkeypatch.setattr(runner, "COMMAND", study.command)
    return study


def test_study_warm_starts_once_and_runs_seeds_outermost(stand_in, capsys):
    assert study_command(stand_in.folder) == 0
    assert stand_in.called() == CALLS
    first, *run_calls = stand_in.calls()
    assert first["set"] == STUDY["set"]
    for call in run_calls:
        engineer, seed = call["name"].split("/")[-2:]
        kind = {"steady": "fixed", "lively": "random"}[engineer]
        model = f'model.pretrained="{stand_in.directory.policy}"'
        shared = {*STUDY["set"], f"engineer.kind={kind}", f"seed={seed}", "warm_start=null", model}
        assert shared <= set(call["set"])
    printed = capsys.readouterr().out
    for number, run in enumerate(RUNS, start=1):
        title = run.replace("/", ", seed ")
        assert re.search(rf"\[{number}/4\] {title}: .*valid \(CSR\) [\d.]+%, ISR [\d.]+%", printed)
    assert "better: lively" in printed
    log = stand_in.directory.path / "runs/lively/1.log"
    assert log.read_text() == "this is lively/1\n"


def test_parallel_runs_give_equal_results(stand_in, monkeypatch, capsys):
    monkeypatch.setattr(runner, "_usable_cores", lambda: [*os.sched_getaffinity(0)][:1] * 2)
    assert study_command(stand_in.folder, "--jobs", "2") == 0
    assert sorted(stand_in.called()) == sorted(CALLS)
    finished = read_results(stand_in.template.parent)
    assert read_results(stand_in.folder)["engineers"] == finished["engineers"]
    capsys.readouterr()
    assert study_command(stand_in.folder, "--jobs", "3") == 2
    assert "--jobs must be 1 to 2, the usable cores, got 3" in capsys.readouterr().err


@pytest.mark.slow
def test_failed_run_is_shown_and_can_be_resumed(stand_in, capsys):
    stand_in.orders(fail=("lively/1",))
    assert study_command(stand_in.folder) == 1
    printed = capsys.readouterr().out
    assert "lively, seed 1: failed with exit status 7" in printed
    assert "the lake is frozen over" in printed
    assert stand_in.called() == CALLS
    assert "Missing runs: lively seed 1" in read_report_page(stand_in.folder).text

    stand_in.orders()
    assert study_command(stand_in.folder) == 0
    assert "3 of 4 runs are finished already." in capsys.readouterr().out
    assert [(call["name"], call["known"]) for call in stand_in.calls()] == [("lively/1", True)]

    stand_in.orders()
    assert study_command(stand_in.folder) == 0
    assert stand_in.calls() == []


def test_failed_shared_round_falls_back_to_single_runs(stand_in, capsys):
    stand_in.orders(fail=(FIRST_STAGES[0],))
    assert study_command(stand_in.folder, "--seeds", "1") == 0
    assert "first stage of seed 1: failed with exit status 7" in capsys.readouterr().out
    assert stand_in.called() == ["warm_start", FIRST_STAGES[0], *RUNS[:2]]


def test_failed_warm_start_starts_no_run(stand_in, capsys):
    stand_in.orders(fail=("warm_start",))
    assert study_command(stand_in.folder) == 1
    assert "warm start: failed with exit status 7" in capsys.readouterr().out
    assert stand_in.called() == ["warm_start"]


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), LOCAL])
def test_interrupted_study_ends_its_runs_and_resumes(stand_in, options):
    if options:
        pytest.importorskip("submitit")
    stand_in.orders(end_study="lively/1")
    command = [
        sys.executable,
        "-c",
        "import sys; from jaxlake.command_line.entry import main; "
        "from training.analysis.study import runner; "
        f"runner.COMMAND = {stand_in.command!r}; sys.exit(main(sys.argv[1:]))",
        *("study", str(stand_in.folder / "study_pair.yaml"), *options, "--seeds", "1"),
        *("--study-dir", str(stand_in.directory.path)),
    ]
    study = subprocess.Popen(command, cwd=ROOT)
    if options:  # a job's parent is not the study
        while "lively/1" not in stand_in.called():
            assert study.poll() is None
            time.sleep(0.1)
        study.send_signal(signal.SIGTERM)
    assert study.wait(240) == 128 + signal.SIGTERM
    waiting = ["pgrep", "-f", f"{stand_in.template} run"]
    for _ in range(600):
        if subprocess.run(waiting, capture_output=True).returncode == 1:
            break
        time.sleep(0.1)
    else:
        pytest.fail("a run outlives the study")

    stand_in.orders()
    assert study_command(stand_in.folder, *options, "--seeds", "1") == 0
    assert "lively/1" in stand_in.called()
    assert "warm_start" not in stand_in.called()


def test_study_directory_is_locked(stand_in, capsys):
    stand_in.directory.path.mkdir()
    with lock_folder(stand_in.directory.path):
        assert study_command(stand_in.folder) == 2
    assert f"is in use by process {os.getpid()} on" in capsys.readouterr().err
    assert stand_in.calls() == []


@pytest.mark.slow
def test_cluster_jobs_give_equal_results(stand_in, capsys):
    pytest.importorskip("submitit")
    stand_in.orders(fail=("lively/2",))
    assert study_command(stand_in.folder, *LOCAL) == 1
    assert sorted(stand_in.called()) == sorted(CALLS)
    printed = capsys.readouterr().out
    assert "lively, seed 2: failed with exit status 7 after" in printed
    assert "the lake is frozen over" in printed
    stand_in.orders()
    assert study_command(stand_in.folder, *LOCAL) == 0
    assert stand_in.called() == ["lively/2"]
    finished = read_results(stand_in.template.parent)
    assert read_results(stand_in.folder)["engineers"] == finished["engineers"]


def test_cluster_parameters_exist_in_submitit(tmp_path):
    pytest.importorskip("submitit")
    texts = ["gpus_per_node=8", "slurm_partition=gpu", "slurm_setup=[a, b]"]
    parameters = read_pairs("--cluster-set", texts)
    assert parameters == {"gpus_per_node": 8, "slurm_partition": "gpu", "slurm_setup": ["a", "b"]}
    for text in ("gpus_per_node", "=1", "a=[", "a b=1"):
        with pytest.raises(UserError, match="--cluster-set is"):
            read_pairs("--cluster-set", [text])
    for wrong in ({"gpus": 1}, {"timeout_min": "long"}):
        with pytest.raises(UserError, match="--cluster local with"):
            Cluster("local", tmp_path, wrong)
    with pytest.raises(UserError, match="--cluster slurm"):
        Cluster("slurm", tmp_path, {})
