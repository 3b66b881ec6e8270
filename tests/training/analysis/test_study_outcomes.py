"""The file of all answers of a study: every rate of its results follows from it alone."""

import gzip
import json

import pytest

from tests.training.analysis.studies import RUNS, report_only, results_of


def test_every_rate_follows_from_the_answers(finished_study):
    content = json.loads(
        gzip.decompress((finished_study / "out/report/outcomes.json.gz").read_bytes())
    )
    results = results_of(finished_study)
    assert [f"{run['engineer']}/{run['seed']}" for run in content["runs"]] == RUNS
    boards = content["boards"]
    for metric in ("valid", "optimal_sum_of_costs", "optimal_makespan"):
        for name, engineer in results["engineers"].items():
            last = [run[metric][-1] for run in content["runs"] if run["engineer"] == name]
            assert {len(answers) for answers in last} == {len(boards)}
            mean = sum(answers.count("1") for answers in last) / (len(last) * len(boards))
            assert engineer["rates"][metric]["value"] == pytest.approx(mean)
    for run in content["runs"]:
        for kinds, valid in zip(run["kinds"], run["valid"], strict=True):
            assert [content["kinds"][int(one)] == "valid" for one in kinds] == [
                one == "1" for one in valid
            ]
    waits = [number for number, one in enumerate(boards) if one["size"] == 3 and one["needs_wait"]]
    assert 0 < len(waits) < len(boards)
    assert all(len(one["grid"]) == one["size"] for one in boards)


def test_equal_runs_give_equal_bytes(finished_study, tmp_path):
    assert report_only(finished_study, "--output", str(tmp_path)) == 0
    written = (finished_study / "out/report/outcomes.json.gz").read_bytes()
    assert (tmp_path / "outcomes.json.gz").read_bytes() == written
