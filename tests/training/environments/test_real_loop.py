"""Environments of users through the real loop: they learn, resume after kills, and are audited."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from tests.paths import ROOT
from tests.training.environments.documented import save_documented
from tests.training.killed_run import dying_at
from training import loop
from training.audit.auditor import audit_run
from training.phases.stage_results import read_stage_results
from training.run.directory import RunDirectory
from training.schema import load

PARITY = Path(__file__).with_name("parity.yaml")
KILLED = ROOT / "tests/training/killed_run.py"
NOT_COMPARED = ("timings.jsonl", "report.html", "checkpoints", "engine")


def run_in(folder: Path, configuration: Path, run_dir: Path, point: str = "none") -> int:
    """Run a configuration in a process of its own, killed at a point of `killed_run.POINTS`."""
    command = [sys.executable, str(KILLED), str(configuration), str(run_dir), point]
    # Only the library is on the path: the environment is found because it lies in the folder.
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, timeout=800, check=False).returncode


class KilledError(BaseException):
    """Ends a run in this process; nothing catches it."""


def stop() -> NoReturn:
    raise KilledError


def files_of(run_dir: Path) -> dict[str, bytes]:
    """Everything that must be equal for equal runs."""
    found = {str(path.relative_to(run_dir)): path for path in run_dir.rglob("*") if path.is_file()}
    return {
        name: re.sub(rb'"seconds": [0-9.e-]+', b"", path.read_bytes())
        for name, path in found.items()
        if not name.startswith(NOT_COMPARED)
    }


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page's environment and a finished run of it."""
    folder = tmp_path_factory.mktemp("stranger")
    assert run_in(folder, save_documented(folder), folder / "whole") == 0
    return folder


@pytest.mark.slow
def test_the_documented_environment_is_trained_and_audited(
    documented: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(documented)
    directory = RunDirectory(documented / "whole")
    results = read_stage_results(directory, directory.config())
    assert [one.stage for one in results] == [0, 1, 2]
    assert set(results[2].validation.groups) == {"3", "4", "5"}
    checks = list(audit_run(documented / "whole"))
    assert [str(one) for one in checks if not one.holds] == []
    assert {one.part for one in checks if one.derived} >= {"episodes.jsonl", "decision.json"}
    page = (documented / "whole/report.html").read_text(encoding="utf-8")
    page = re.sub(r"(?s)<style>.*?</style>|<script>.*?</script>", "", page)  # the same for all
    for words in ("word length", "repeat_ratio", "5 letters", "wrong length", "backwards: "):
        assert words in page.lower()
    assert "map size" not in page.lower()
    assert "hole" not in page


@pytest.mark.slow
def test_a_forged_score_is_found(documented: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(documented)
    forged = shutil.copytree(documented / "whole", documented / "forged")
    episodes = forged / "stages/1/episodes.jsonl"
    text = episodes.read_text()
    assert '"reward": 0.0' in text
    episodes.write_text(text.replace('"reward": 0.0', '"reward": 1.0', 1))
    broken = [one for one in audit_run(forged) if not one.holds]
    assert [(one.stage, one.part) for one in broken] == [(1, "episodes.jsonl")]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_run_of_it_that_is_killed_leaves_the_same_files(
    documented: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(documented)
    path, ended = documented / "reversal.yaml", documented / "killed"
    assert run_in(documented, path, ended, "update") == -signal.SIGKILL
    for point in ("rollout", "validation", "design"):
        with dying_at(point, stop), pytest.raises(KilledError):
            loop.run(load(path), ended)
    loop.run(load(path), ended)
    expected, found = files_of(documented / "whole"), files_of(ended)
    assert sorted(found) == sorted(expected)
    assert [name for name in expected if found[name] != expected[name]] == []
    weights = {expected[f"stages/{stage}/policy/model.safetensors"] for stage in (0, 1, 2)}
    assert len(weights) == 3


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_column_addition_learns_beyond_the_interval_in_some_stage(tmp_path: Path) -> None:
    """Not in the last one on every processor: each rounds differently, and rates go up and down."""
    path = ROOT / "examples/column_addition/trainee.yaml"
    assert run_in(ROOT, path, tmp_path / "run") == 0
    directory = RunDirectory(tmp_path / "run")
    results = read_stage_results(directory, load(path))
    from jaxlake.statistics.paired import compare

    before, *after = ([one.valid for one in stage.episodes] for stage in results)
    best = max(after, key=sum)
    low, _ = compare(before, best).interval()
    assert low > 0
