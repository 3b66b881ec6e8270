"""The report of a study: numbers agree with the runs' files, and damaged runs raise errors."""

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from scipy import stats

from tests.training.analysis.studies import (
    RUNS,
    SKILLS_BY_RUN,
    open_run,
    read_report_page,
    read_results,
    run_study_report,
    write_study,
)
from training.analysis.study.report import describe_differences

METRICS = ("valid", "optimal_sum_of_costs", "optimal_makespan")


def read_answers(folder: Path, engineer: str, seed: int, stage: int) -> list[dict[str, Any]]:
    """Read the answers of a validation without the package."""
    path = folder / "out/runs" / engineer / str(seed) / f"stages/{stage}/episodes.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def succeeds(answer: dict[str, Any], metric: str) -> bool:
    return answer["valid"] if metric == "valid" else answer["scores"][metric]


@pytest.mark.parametrize("metric", METRICS)
def test_study_rates_match_the_files(finished_study, metric):
    results = read_results(finished_study)["engineers"]
    outcomes = {
        engineer: [
            [succeeds(answer, metric) for answer in read_answers(finished_study, engineer, seed, 3)]
            for seed in (1, 2)
        ]
        for engineer in ("steady", "lively")
    }
    for engineer, runs in outcomes.items():
        arm = results[engineer]
        assert arm["rates"][metric]["value"] == pytest.approx(fmean(map(fmean, runs)))
        curve = arm["learning_curve"][metric]
        for stage in range(4):
            stage_runs = [read_answers(finished_study, engineer, seed, stage) for seed in (1, 2)]
            rates = [fmean(succeeds(answer, metric) for answer in run) for run in stage_runs]
            expected = {"mean": fmean(rates), "low": min(rates), "high": max(rates)}
            assert curve[stage] == pytest.approx(expected)
    lively, steady = ([fmean(run) for run in outcomes[name]] for name in ("lively", "steady"))
    difference = results["lively"]["difference"][metric]
    assert difference["value"] == pytest.approx(fmean(lively) - fmean(steady))
    interval = stats.ttest_rel(lively, steady).confidence_interval(0.95)
    over_seeds = difference["over_seeds"]
    assert (over_seeds["low"], over_seeds["high"]) == pytest.approx(tuple(interval))
    assert results["steady"]["difference"] is None


def test_study_failures_and_isr_match_the_files(finished_study):
    results = read_results(finished_study)["engineers"]["lively"]
    runs = [read_answers(finished_study, "lively", seed, 3) for seed in (1, 2)]
    individual_rates = [fmean(answer["lake"]["arrived"] for answer in answers) for answers in runs]
    assert results["isr"]["mean"] == pytest.approx(fmean(individual_rates))
    counts = Counter(answer["failure"] or "valid" for answers in runs for answer in answers)
    shares = {kind: count / counts.total() for kind, count in counts.items()}
    assert {kind: share for kind, share in results["kinds"][1].items() if share} == shares


def test_study_rates_follow_from_the_outcomes(finished_study):
    report_folder = finished_study / "out/report"
    outcomes = json.loads(gzip.decompress((report_folder / "outcomes.json.gz").read_bytes()))
    assert [f"{run['engineer']}/{run['seed']}" for run in outcomes["runs"]] == RUNS
    for metric in METRICS:
        for name, arm in read_results(finished_study)["engineers"].items():
            flags = [run[metric][-1] for run in outcomes["runs"] if run["engineer"] == name]
            assert {len(answers) for answers in flags} == {len(outcomes["boards"])}
            rates = [answers.count("1") / len(answers) for answers in flags]
            assert arm["rates"][metric]["value"] == pytest.approx(fmean(rates))


def test_study_page_shows_the_results(finished_study):
    results, page = read_results(finished_study)["engineers"], read_report_page(finished_study)
    for name, arm in results.items():
        (row,) = (row for row in page.rows if row[0] == name and len(row) == 6 and "[" in row[2])
        for cell, metric in zip(row[2:5], METRICS, strict=True):
            rate = arm["rates"][metric]
            expected = [f"{100 * rate[key]:.1f}" for key in ("value", "low", "high")]
            assert re.findall(r"[\d.]+", cell) == expected
    assert page.source.count('class="chart"') == 3 + 3 + 9 + 2
    assert "nan" not in page.text
    assert describe_differences(read_results(finished_study), "valid") in page.text
    sections = re.findall(r'<section id="([\w-]+)"', page.source)
    assert re.findall(r'<li><a href="#([\w-]+)"', page.source) == sections


def test_equal_engineers_show_no_difference(study_copy):
    for seed in (1, 2):
        steady, lively = (open_run(study_copy, name, seed) for name in ("steady", "lively"))
        for stage in range(4):
            lively.stage(stage).episodes.write(steady.stage(stage).episodes.read())
    assert run_study_report(study_copy) == 0
    results = read_results(study_copy)
    for metric in METRICS:
        difference = results["engineers"]["lively"]["difference"][metric]
        assert [difference[key] for key in ("value", "low", "high", "beyond")] == [0, 0, 0, 0]
        sentence = describe_differences(results, metric)
        assert "no difference seen: lively (0.0 [0.0, 0.0])" in sentence


def test_sentence_names_better_and_worse_engineers(study_copy):
    assert "better: lively (+" in describe_differences(read_results(study_copy), "valid")
    write_study(study_copy, baseline="lively")
    assert run_study_report(study_copy) == 0
    assert "worse: steady (-" in describe_differences(read_results(study_copy), "valid")


def test_designs_and_answers_are_counted(study_copy):
    gate_file = open_run(study_copy, "lively", 2).stage(2).gate
    changes = {"restored": "configuration", "notice": "It fell."}
    gate_file.write(gate_file.read().model_copy(update=changes))
    assert run_study_report(study_copy) == 0
    for engineer, arm in read_results(study_copy)["engineers"].items():
        runs = [open_run(study_copy, engineer, seed) for seed in (1, 2)]
        stages = [run.stage(stage) for run in runs for stage in (1, 2, 3)]
        # The design after the last stage is not trained on.
        kinds = Counter(stage.decision.read().kind for stage in stages if stage.path.name != "3")
        assert arm["designs"]["by_kind"] == kinds
        assert arm["designs"]["rolled_back"] == (engineer == "lively")
        answer_kinds = Counter(answer.kind for stage in stages for answer in stage.answers.read())
        assert {kind: n for kind, n in arm["designs"]["answers"].items() if n} == answer_kinds


def test_report_names_run_with_another_budget(study_copy):
    budget = read_results(study_copy)["budget"]["training_instances"]
    for engineer, seed in SKILLS_BY_RUN:
        metrics_file = open_run(study_copy, engineer, seed).metrics
        updates = [record for record in metrics_file.read() if record.phase == "train"]
        num_updates = budget // 8 - ((engineer, seed) == ("lively", 2))
        metrics_file.write(updates[:num_updates])
    assert run_study_report(study_copy) == 0
    text = read_report_page(study_copy).text
    assert f"budget of {budget} training instances : lively seed 2 used {budget - 8}." in text


def test_moved_study_gives_the_same_report(finished_study, study_copy, tmp_path):
    assert run_study_report(study_copy, "--output", str(tmp_path / "there")) == 0
    for path in (finished_study / "out/report").iterdir():
        assert (tmp_path / "there" / path.name).read_bytes() == path.read_bytes()


def test_runs_from_different_models_are_not_compared(study_copy, capsys):
    first_stage, last_stage = (open_run(study_copy, "lively", 2).stage(stage) for stage in (0, 3))
    first_stage.episodes.write(last_stage.episodes.read())
    assert run_study_report(study_copy) == 2
    message = "lively, seed 2 began with another model than steady, seed 1"
    assert message in capsys.readouterr().err


def test_runs_on_other_boards_are_not_paired(study_copy, capsys):
    for stage in range(4):
        episodes = open_run(study_copy, "lively", 1).stage(stage).episodes
        episodes.write(episodes.read()[::-1])
    assert run_study_report(study_copy) == 2
    assert "other boards" in capsys.readouterr().err


def test_runs_of_another_study_are_rejected(study_copy, capsys):
    write_study(study_copy, set=["stages.instances=240"])
    assert run_study_report(study_copy) == 2
    assert "its configuration differs from steady, seed 1" in capsys.readouterr().err


def test_unfinished_run_is_named_and_left_out(study_copy):
    open_run(study_copy, "lively", 2).summary.remove()
    assert run_study_report(study_copy) == 0
    results = read_results(study_copy)
    assert results["missing"] == [{"engineer": "lively", "seed": 2, "reason": "not finished"}]
    difference = results["engineers"]["lively"]["difference"]
    assert difference["seeds"] == [1]
    assert difference["valid"]["over_seeds"]["low"] is None
    text = read_report_page(study_copy).text
    assert "Missing runs: lively seed 2 (not finished)." in text
    assert "jaxlake study not finished" in text


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("stages/3/episodes.jsonl", None, ["episodes.jsonl", "missing"]),
        ("stages/2/decision.json", None, ["decision.json", "missing"]),
        ("stages/1/episodes.jsonl", lambda text: text[:-9], ["episodes.jsonl", "not JSON"]),
        ("stages/3/episodes.jsonl", lambda _: "", ["episodes.jsonl", "no answers"]),
        ("stages/1/configuration.json", lambda _: "{}", ["configuration.json"]),
    ],
)
def test_damaged_file_of_a_finished_run_is_named(
    study_copy, capsys, name: str, damage: Callable[[str], str] | None, words: list[str]
):
    path = open_run(study_copy, "lively", 2).path / name
    if damage is None:
        path.unlink()
    else:
        path.write_text(damage(path.read_text()))
    assert run_study_report(study_copy) == 2
    error = capsys.readouterr().err
    for word in ("lively/2", *words):
        assert word in error


def test_study_without_finished_runs_is_rejected(tmp_path, capsys):
    write_study(tmp_path)
    assert run_study_report(tmp_path) == 2
    assert "nothing to report" in capsys.readouterr().err
