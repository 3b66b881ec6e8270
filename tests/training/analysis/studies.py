"""A small study for tests: two engineers, two seeds, and runs with invented skills."""

import json
from pathlib import Path
from typing import Any

import yaml

from jaxlake.command_line.entry import main
from tests.training.analysis.pages import Page
from tests.training.sample_run import CONFIG
from training.run.directory import RunDirectory

STUDY: dict[str, Any] = {
    "name": "pair",
    "base": "base.yaml",
    "set": ["stages.instances=160", "environment.max_candidates=20000"],
    "engineers": [
        {"name": "steady", "set": ["engineer.kind=fixed"]},
        {"name": "lively", "set": ["engineer.kind=random", "engineer.max_tokens=500"]},
    ],
    "seeds": [1, 2],
    "baseline": "steady",
}
SKILLS_BY_RUN = {
    ("steady", 1): (0.25, 0.3, 0.35, 0.4),
    ("lively", 1): (0.25, 0.4, 0.6, 0.8),
    ("steady", 2): (0.25, 0.3, 0.4, 0.5),
    ("lively", 2): (0.25, 0.4, 0.7, 0.75),
}
"""Each run's probability of an undamaged plan, before training and after each stage."""
FIRST_STAGES = ["first_rounds/steady/1", "first_rounds/steady/2"]
"""The first stages that both engineers of a seed share."""
RUNS = [f"{engineer}/{seed}" for engineer, seed in SKILLS_BY_RUN]


def write_study(folder: Path, **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "base.yaml").write_text(yaml.safe_dump(CONFIG))
    path = folder / "study_pair.yaml"
    path.write_text(yaml.safe_dump({**STUDY, **changes}))
    return path


def run_study_command(folder: Path, *options: str) -> int:
    study_file = str(folder / "study_pair.yaml")
    return main(["study", study_file, "--study-dir", str(folder / "out"), *options])


def run_study_report(folder: Path, *options: str) -> int:
    return run_study_command(folder, "--report-only", *options)


def read_results(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "out/report/results.json").read_text())


def read_report_page(folder: Path) -> Page:
    return Page((folder / "out/report/report.html").read_text(encoding="utf-8"))


def open_run(folder: Path, engineer: str, seed: int) -> RunDirectory:
    return RunDirectory(folder / "out/runs" / engineer / str(seed))
