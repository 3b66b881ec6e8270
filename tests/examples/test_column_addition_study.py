"""The study of column addition: its numbers follow from its verdicts, and it resumes."""

import gzip
import json
import re

import numpy as np
import pytest

from examples.column_addition import study
from examples.column_addition.__main__ import Experiment, run_stages
from examples.column_addition.environment import check_answer

ARMS = "fixed,rule"


def compute_verdicts(arm: str, seed: int) -> list[bool]:
    """Return whether each held-out sum is solved after the last stage of a new run."""
    experiment = Experiment(seed=seed)
    *_, last_outcome = run_stages(experiment, study.make_engineer(arm, experiment))
    answers = zip(experiment.held_out(), last_outcome.answers, strict=True)
    return [check_answer(problem, text) == (None, None) for problem, text in answers]


@pytest.fixture(scope="module")
def study_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "study.json.gz"
    assert study.main(["--json", str(path), "--seeds", "2", "--arms", ARMS]) == 0
    return path


def test_study_stores_every_verdict(study_file):
    runs = json.loads(gzip.decompress(study_file.read_bytes()))["runs"]
    seeds = {arm: sorted(by_seed) for arm, by_seed in runs.items()}
    assert seeds == {"fixed": ["0", "1"], "rule": ["0", "1"]}
    verdicts = [digit == "1" for digit in runs["rule"]["1"]["valid"]]
    assert verdicts == compute_verdicts("rule", 1)
    assert 0.2 < np.mean(verdicts) < 1.0
    assert len(runs["rule"]["1"]["configurations"]) == Experiment().stages


def test_rates_and_differences_follow_from_verdicts(study_file, capsys):
    study.main(["--json", str(study_file), "--report"])
    report = capsys.readouterr().out
    runs = json.loads(gzip.decompress(study_file.read_bytes()))["runs"]
    rates = {
        arm: [100 * run["valid"].count("1") / 400 for run in by_seed.values()]
        for arm, by_seed in runs.items()
    }
    rule_rate, difference, low, high = map(
        float, re.search(r"^rule +([\d.]+) +(\S+) +\[(\S+), (\S+)\]", report, re.MULTILINE).groups()
    )
    differences = np.subtract(rates["rule"], rates["fixed"])
    assert rule_rate == pytest.approx(np.mean(rates["rule"]), abs=0.06)
    assert difference == pytest.approx(differences.mean(), abs=0.006)
    # With two seeds, more than 2.5% of the resamples draw the same one twice.
    assert (low, high) == pytest.approx((differences.min(), differences.max()), abs=0.006)


def test_interrupted_study_equals_an_uninterrupted_one(study_file, tmp_path):
    path = tmp_path / "study.json.gz"
    study.main(["--json", str(path), "--seeds", "2", "--arms", "fixed"])
    study.main(["--json", str(path), "--seeds", "2", "--arms", ARMS])
    assert path.read_bytes() == study_file.read_bytes()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda results: results.update(schema=1), "schema must be 2, got 1"),
        (lambda results: results["settings"].update(code="0"), "its runs have other code"),
        (
            lambda results: results["settings"].update(experiment={}),
            "its runs have other experiment",
        ),
    ],
)
def test_study_rejects_runs_of_other_settings(edit, message, study_file, tmp_path, capsys):
    path = tmp_path / "study.json.gz"
    stored_results = json.loads(gzip.decompress(study_file.read_bytes()))
    edit(stored_results)
    path.write_bytes(gzip.compress(json.dumps(stored_results).encode()))
    content = path.read_bytes()
    with pytest.raises(SystemExit) as exit_info:
        study.main(["--json", str(path), "--seeds", "3", "--arms", ARMS])
    assert exit_info.value.code == 2
    assert message in capsys.readouterr().err
    assert path.read_bytes() == content
    # These commands add no runs, so they accept any file.
    assert study.main(["--json", str(path), "--seeds", "2", "--arms", ARMS]) == 0
    assert study.main(["--json", str(path), "--report"]) == 0
