"""One sample run and one sample study, written once for all tests of reports and studies."""

import shutil
from pathlib import Path

import pytest

from tests.training.analysis.studies import SKILLS, report_only, write_study
from tests.training.sample_run import write_sample_run
from training.analysis.study.config import load_study
from training.analysis.study.directory import StudyDirectory


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sample_run(tmp_path_factory.mktemp("runs") / "sample")


@pytest.fixture(scope="session")
def finished_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study in `out`: its four runs are there, with its report."""
    folder = tmp_path_factory.mktemp("study")
    study, directory = load_study(write_study(folder)), StudyDirectory(folder / "out")
    directory.claim(study)
    for run in study.runs:
        write_sample_run(
            directory.run(run).path,
            study.config_of(run, directory.policy),
            skill=SKILLS[run.engineer, run.seed],
            count_tokens=len,
            design_seconds=run.seed + 0.25,
        )
    assert report_only(folder) == 0
    return folder


@pytest.fixture
def run_copy(finished_run: Path, tmp_path: Path) -> Path:
    """A copy of the run that a test may damage."""
    return shutil.copytree(finished_run, tmp_path / "run")


@pytest.fixture
def study_copy(finished_study: Path, tmp_path: Path) -> Path:
    """A copy of the study that a test may damage."""
    return shutil.copytree(finished_study, tmp_path / "copy")
