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
    run_study_command,
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
CALL_NAMES = ["warm_start", *FIRST_STAGES, *RUNS]
LOCAL_OPTIONS = ("--cluster", "local", "--jobs", "2")


class FakeStudy:
    """A study of copied runs; tests choose its failures before each call."""

    def __init__(self, template: Path, folder: Path) -> None:
        self.template, self.folder = template, folder
        self.study = load_study(write_study(folder))
        self.directory = StudyDirectory(folder / "out")
        self.command = (sys.executable, str(STAND_IN), str(template))
        self.write_orders()

    def write_orders(self, fail: tuple[str, ...] = (), end_study: str = "") -> None:
        orders = {"fail": fail, "end_study": end_study}
        (self.template / "stand_in.json").write_text(json.dumps(orders))
        (self.template / "calls.jsonl").write_text("")

    def read_calls(self) -> list[dict[str, Any]]:
        lines = (self.template / "calls.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def read_call_names(self) -> list[str]:
        return [call["name"] for call in self.read_calls()]


@pytest.fixture
def study(finished_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeStudy:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    study = FakeStudy(finished_study / "out", tmp_path / "study")
    monkeypatch.setattr(runner, "COMMAND", study.command)
    return study


def test_study_warm_starts_once_and_runs_seeds_outermost(study, capsys):
    assert run_study_command(study.folder) == 0
    assert study.read_call_names() == CALL_NAMES
    warm_start_call, *run_calls = study.read_calls()
    assert warm_start_call["set"] == STUDY["set"]
    for call in run_calls:
        engineer, seed = call["name"].split("/")[-2:]
        kind = {"steady": "fixed", "lively": "random"}[engineer]
        model = f'model.pretrained="{study.directory.policy}"'
        options = {*STUDY["set"], f"engineer.kind={kind}", f"seed={seed}", "warm_start=null", model}
        assert options <= set(call["set"])
    stdout = capsys.readouterr().out
    for number, run in enumerate(RUNS, start=1):
        title = run.replace("/", ", seed ")
        assert re.search(rf"\[{number}/4\] {title}: .*valid \(CSR\) [\d.]+%, ISR [\d.]+%", stdout)
    assert "better: lively" in stdout
    log_file = study.directory.path / "runs/lively/1.log"
    assert log_file.read_text() == "this is lively/1\n"


def test_parallel_runs_give_equal_results(study, monkeypatch, capsys):
    monkeypatch.setattr(runner, "_usable_cores", lambda: [*os.sched_getaffinity(0)][:1] * 2)
    assert run_study_command(study.folder, "--jobs", "2") == 0
    assert sorted(study.read_call_names()) == sorted(CALL_NAMES)
    expected_results = read_results(study.template.parent)
    assert read_results(study.folder)["engineers"] == expected_results["engineers"]
    capsys.readouterr()
    assert run_study_command(study.folder, "--jobs", "3") == 2
    assert "--jobs must be 1 to 2, the usable cores, got 3" in capsys.readouterr().err


@pytest.mark.slow
def test_failed_run_is_shown_and_can_be_resumed(study, capsys):
    study.write_orders(fail=("lively/1",))
    assert run_study_command(study.folder) == 1
    stdout = capsys.readouterr().out
    assert "lively, seed 1: failed with exit status 7" in stdout
    assert "the lake is frozen over" in stdout
    assert study.read_call_names() == CALL_NAMES
    assert "Missing runs: lively seed 1" in read_report_page(study.folder).text

    study.write_orders()
    assert run_study_command(study.folder) == 0
    assert "3 of 4 runs are finished already." in capsys.readouterr().out
    assert [(call["name"], call["known"]) for call in study.read_calls()] == [("lively/1", True)]

    study.write_orders()
    assert run_study_command(study.folder) == 0
    assert study.read_calls() == []


def test_failed_shared_round_falls_back_to_single_runs(study, capsys):
    study.write_orders(fail=(FIRST_STAGES[0],))
    assert run_study_command(study.folder, "--seeds", "1") == 0
    assert "first stage of seed 1: failed with exit status 7" in capsys.readouterr().out
    assert study.read_call_names() == ["warm_start", FIRST_STAGES[0], *RUNS[:2]]


def test_failed_warm_start_starts_no_run(study, capsys):
    study.write_orders(fail=("warm_start",))
    assert run_study_command(study.folder) == 1
    assert "warm start: failed with exit status 7" in capsys.readouterr().out
    assert study.read_call_names() == ["warm_start"]


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), LOCAL_OPTIONS])
def test_interrupted_study_ends_its_runs_and_resumes(study, options):
    if options:
        pytest.importorskip("submitit")
    study.write_orders(end_study="lively/1")
    command = [
        sys.executable,
        "-c",
        "import sys; from jaxlake.command_line.entry import main; "
        "from training.analysis.study import runner; "
        f"runner.COMMAND = {study.command!r}; sys.exit(main(sys.argv[1:]))",
        *("study", str(study.folder / "study_pair.yaml"), *options, "--seeds", "1"),
        *("--study-dir", str(study.directory.path)),
    ]
    process = subprocess.Popen(command, cwd=ROOT)
    if options:  # a job's parent is not the study
        while "lively/1" not in study.read_call_names():
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
    assert process.wait(240) == 128 + signal.SIGTERM
    pgrep_command = ["pgrep", "-f", f"{study.template} run"]
    for _ in range(600):
        if subprocess.run(pgrep_command, capture_output=True).returncode == 1:
            break
        time.sleep(0.1)
    else:
        pytest.fail("a run outlives the study")

    study.write_orders()
    assert run_study_command(study.folder, *options, "--seeds", "1") == 0
    assert "lively/1" in study.read_call_names()
    assert "warm_start" not in study.read_call_names()


def test_study_directory_is_locked(study, capsys):
    study.directory.path.mkdir()
    with lock_folder(study.directory.path):
        assert run_study_command(study.folder) == 2
    assert f"is in use by process {os.getpid()} on" in capsys.readouterr().err
    assert study.read_calls() == []


@pytest.mark.slow
def test_cluster_jobs_give_equal_results(study, capsys):
    pytest.importorskip("submitit")
    study.write_orders(fail=("lively/2",))
    assert run_study_command(study.folder, *LOCAL_OPTIONS) == 1
    assert sorted(study.read_call_names()) == sorted(CALL_NAMES)
    stdout = capsys.readouterr().out
    assert "lively, seed 2: failed with exit status 7 after" in stdout
    assert "the lake is frozen over" in stdout
    study.write_orders()
    assert run_study_command(study.folder, *LOCAL_OPTIONS) == 0
    assert study.read_call_names() == ["lively/2"]
    expected_results = read_results(study.template.parent)
    assert read_results(study.folder)["engineers"] == expected_results["engineers"]


def test_cluster_parameters_exist_in_submitit(tmp_path):
    pytest.importorskip("submitit")
    texts = ["gpus_per_node=8", "slurm_partition=gpu", "slurm_setup=[a, b]"]
    parameters = read_pairs("--cluster-set", texts)
    assert parameters == {"gpus_per_node": 8, "slurm_partition": "gpu", "slurm_setup": ["a", "b"]}
    for text in ("gpus_per_node", "=1", "a=[", "a b=1"):
        with pytest.raises(UserError, match="--cluster-set is"):
            read_pairs("--cluster-set", [text])
    for invalid_parameters in ({"gpus": 1}, {"timeout_min": "long"}):
        with pytest.raises(UserError, match="--cluster local with"):
            Cluster("local", tmp_path, invalid_parameters)
    with pytest.raises(UserError, match="--cluster slurm"):
        Cluster("slurm", tmp_path, {})
