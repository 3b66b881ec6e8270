"""A sample run and a sample study, written once for all tests, and a browser."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.commands import cli as cli
from tests.training.analysis.pages import ATTACK, LAST_STAGE, OpenPage, find_chromium, open_pages
from tests.training.analysis.studies import SKILLS_BY_RUN, run_study_report, write_study
from tests.training.sample_run import write_sample_run
from training.analysis.report import build_report
from training.analysis.study.config import load_study
from training.analysis.study.directory import StudyDirectory
from training.run.directory import RunDirectory


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sample_run(tmp_path_factory.mktemp("runs") / "sample")


@pytest.fixture(scope="session")
def finished_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study in `out`: its four runs are there, with its report."""
    folder = tmp_path_factory.mktemp("study")
    study, directory = load_study(write_study(folder)), StudyDirectory(folder / "out")

    for run in study.runs:
        write_sample_run(
            directory.run_directory(run).path,
            study.make_run_config(run, directory.policy),
            skills=SKILLS_BY_RUN[run.engineer, run.seed],
            count_tokens=len,
            design_seconds=run.seed + 0.25,
        )
    assert run_study_report(folder) == 0
    return folder


@pytest.fixture
def run_copy(finished_run: Path, tmp_path: Path) -> Path:
    """A copy of the run that a test may damage."""
    return shutil.copytree(finished_run, tmp_path / "run")


@pytest.fixture
def study_copy(finished_study: Path, tmp_path: Path) -> Path:
    """A copy of the study that a test may damage."""
    return shutil.copytree(finished_study, tmp_path / "copy")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for each file of tests.

    Playwright keeps an event loop running in this thread until it stops: a browser of the whole
    session would forbid `asyncio.run` to every test that the same worker runs later.
    """
    path = find_chromium()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def run_with_attacks(finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose first two answers of the last stage are hostile."""
    run = shutil.copytree(finished_run, tmp_path_factory.mktemp("browser") / "run")
    episodes_file = RunDirectory(run).stage(LAST_STAGE).episodes
    first_episode, second_episode, *other_episodes = episodes_file.read()
    lake = first_episode.lake.model_copy(update=dict.fromkeys(("plan", "agent", "sum_of_costs")))
    rejected_fields = {"valid": False, "scores": {}, "failure": "parse_error", "time": None}
    rejected_fields |= {"lake": lake, "reason": ATTACK}
    changes = [{"text": ATTACK}, {"text": f"{ATTACK}\ud800"}]
    hostile_episodes = [
        episode.model_copy(update=rejected_fields | change)
        for episode, change in zip((first_episode, second_episode), changes, strict=True)
    ]
    episodes_file.write([*hostile_episodes, *other_episodes])
    return run


@pytest.fixture(scope="session")
def address(run_with_attacks: Path) -> str:
    return build_report(run_with_attacks).as_uri()


@pytest.fixture
def open_page(browser: Browser, address: str) -> Iterator[OpenPage]:
    """Return a function that opens the page; the console must stay empty during the test."""
    yield from open_pages(browser, address)
