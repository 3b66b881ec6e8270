"""The report of a study: its numbers are those of the runs' files, and damaged runs are refused."""

import json
import math
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.training.analysis.pictures import words_inside
from tests.training.analysis.studies import (
    SKILLS,
    report_of,
    report_only,
    results_of,
    run_of,
    write_study,
)
from tests.training.sample_run import reading_with
from training.analysis.study.config import StudyRun, load_study
from training.analysis.study.directory import StudyDirectory
from training.analysis.study.reading import METRICS, read_run
from training.analysis.study.report import markdown, verdicts
from training.errors import UserError
from training.run.directory import RunDirectory
from training.run.records import UpdateMetrics

Damage = Callable[[str], str]


def table_under(text: str, heading: str, place: int = 0) -> list[dict[str, str]]:
    """The rows of the first Markdown table under a heading, or of one after it, by column."""
    after = text.split(f"## {heading}\n", 1)[1]
    lines = re.findall(r"(?:^\|.*\n)+", after, flags=re.MULTILINE)[place].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]


def numbers_in(words: str) -> list[float]:
    return [float(word.replace(",", "")) for word in re.findall(r"[+-]?[\d.,]*\d", words)]


def test_main_table_shows_the_numbers_of_results_json(finished_study):
    results = results_of(finished_study)["engineers"]
    rows = {row["engineer"]: row for row in table_under(report_of(finished_study), "What came out")}
    assert list(rows) == list(results) == ["steady", "lively"]
    for name, row in rows.items():
        one, cells = results[name], list(row.values())
        assert cells[1] == "2"
        for m, metric in enumerate(METRICS):
            rates = [100 * one["rates"][metric][key] for key in ("value", "low", "high")]
            assert numbers_in(cells[2 + 2 * m]) == pytest.approx(rates, abs=0.0501)
            if name == "steady":
                assert cells[3 + 2 * m] == "–"  # noqa: RUF001
                continue
            points = [100 * one["difference"][metric][key] for key in ("value", "low", "high")]
            assert numbers_in(cells[3 + 2 * m]) == pytest.approx(points, abs=0.0501)
        ledger = [one["ledger"][key]["mean"] for key in ("engineer_tokens", "wall_seconds")]
        individual = [100 * one["isr"][key] for key in ("mean", "low", "high")]
        assert numbers_in(cells[8]) == pytest.approx(individual, abs=0.0501)
        assert numbers_in(" ".join(cells[9:])) == pytest.approx(ledger, abs=0.501)
    assert results["steady"]["difference"] is None


def test_equal_engineers_show_no_difference(study_copy):
    for seed in (1, 2):
        for stage in range(4):
            ours = run_of(study_copy, "lively", seed).stage(stage)
            theirs = run_of(study_copy, "steady", seed).stage(stage)
            ours.episodes.write(theirs.episodes.read())
    assert report_only(study_copy) == 0
    results = results_of(study_copy)
    for metric in METRICS:
        shown = results["engineers"]["lively"]["difference"][metric]
        assert shown == {"value": 0, "low": 0, "high": 0, "beyond": 0}
    assert verdicts(results) == [
        f"In the rate of {what}, no difference to steady was seen: "
        "the interval of lively contains 0."
        for what in ("valid answers", "optimal sums of costs", "optimal makespans")
    ]


def test_verdict_names_who_is_better_and_who_is_worse(finished_study):
    results = results_of(finished_study)
    difference = results["engineers"]["lively"]["difference"]
    assert difference["valid"]["beyond"] == 1
    (bold,) = re.findall(r"^\*\*(In.*)\*\*$", report_of(finished_study), flags=re.MULTILINE)
    assert bold.startswith(
        "In the rate of valid answers, better than steady beyond the interval, in points: lively (+"
    )
    for metric in METRICS:
        one = difference[metric]
        one["value"], one["low"], one["high"] = -one["value"], -one["high"], -one["low"]
        one["beyond"] = -one["beyond"]
    assert "worse than steady beyond the interval, in points: lively (-" in verdicts(results)[0]
    assert "better" not in verdicts(results)[0]


def test_report_tells_the_number_of_comparisons(finished_study):
    assert results_of(finished_study)["comparisons"]["count"] == 3
    text = report_of(finished_study)
    assert "These are 3 comparisons, and each interval is for its own comparison alone" in text
    assert "0.0 to 0.8 of 3 such intervals" in text


def test_every_figure_stands_beside_the_report_and_shows_its_numbers(finished_study):
    shown = re.findall(r"^!\[.+\]\((.+)\)$", report_of(finished_study), flags=re.MULTILINE)
    folder = finished_study / "out/report"
    assert sorted(shown) == sorted(path.name for path in folder.glob("*.svg"))
    assert len(shown) == 8
    words = {}
    for name in shown:
        words[name] = words_inside((folder / name).read_text(encoding="utf-8"))
        assert not any("nan" in word for word in words[name])
    assert sum((folder / name).stat().st_size for name in shown) < 300_000
    results = results_of(finished_study)
    final = results["engineers"]["lively"]["rates"]["valid"]["value"]
    assert f"{100 * final:.1f}%" in words["learning_curves.svg"]
    rows = [results["warm_start"], *results["engineers"].values()]
    for metric in METRICS:
        slices = [
            [one for one in row["slices"] if (one["size"], one["needs_wait"]) == (size, wait)]
            for size in (3, 4, 5)
            for wait in (False, True)
            for row in rows
        ]
        expected = []
        for number, there in enumerate(slices):
            if number % len(rows) == 0:
                expected += [str(one["count"]) for one in there]
            expected += [f"{100 * one[metric]['mean']:.0f}" for one in there]
        assert [word for word in words[f"slices_{metric}.svg"] if word.isdigit()] == expected


def test_report_tells_what_became_of_the_designs(study_copy):
    gate = run_of(study_copy, "lively", 2).stage(2).gate
    update = {"restored": "configuration", "notice": "It fell."}
    gate.write(gate.read().model_copy(update=update))
    assert report_only(study_copy) == 0
    text = report_of(study_copy)
    for row in table_under(text, "What the engineers did"):
        kinds = Counter(
            run_of(study_copy, row["engineer"], seed).stage(stage).decision.read().kind
            for seed in (1, 2)
            for stage in (1, 2)  # what is designed after the last stage is not trained on
        )
        assert row["designs"] == "4"
        shown = {kind: int(row[kind]) for kind in ("accepted", "repaired", "retried", "kept")}
        assert {kind: count for kind, count in shown.items() if count} == kinds
        assert row["rolled back"] == {"lively": "1", "steady": "0"}[row["engineer"]]
    assert "2 stages of 3 can tell them apart" in text
    results = results_of(study_copy)
    results["engineers"]["lively"]["mixture"][0]["3"]["hole_ratio"]["mean"] += 0.1
    assert "all 3 stages can tell them apart" in markdown(results, {})


def test_report_tells_how_many_answers_were_valid_before_any_were_mended(study_copy):
    for row in table_under(report_of(study_copy), "What the engineers did", 1):
        kinds = Counter(
            answer.kind
            for seed in (1, 2)
            for stage in (1, 2, 3)
            for answer in run_of(study_copy, row["engineer"], seed).stage(stage).answers.read()
        )
        assert int(row["answers"]) == kinds.total() >= 6
        names = {"as written": "accepted", "mended": "repaired", "refused": "rejected"}
        for words, kind in (names | {"none came": "failed"}).items():
            assert int(row[words]) == kinds[kind], words


def test_report_tells_who_reads(study_copy):
    assert "- Not measured, for `engineer.reading` is 0: steady and lively." in report_of(
        study_copy
    )
    for seed, flips in ((1, 0.95), (2, 0.85)):
        reading = reading_with(flips, fact="trend")
        run_of(study_copy, "lively", seed).stage(3).reading.write(reading)
    run_of(study_copy, "steady", 1).stage(3).reading.write(reading_with(0.92))
    assert report_only(study_copy) == 0
    assert results_of(study_copy)["engineers"]["lively"]["reading"] == {
        "measured": 2,
        "reads": 1,
        "least": {"fact": "trend", "flips": 0.85, "seed": 2},
    }
    text = report_of(study_copy)
    assert "- steady: it reads (1 of 1 runs); the fact that it follows least is valid" in text
    assert (
        "- lively: it does not always read (1 of 2 runs); the fact that it follows least is" in text
    )
    assert "trend, with 85.0% of the rule's edits (seed 2)." in text
    assert "Not measured" not in text


def test_run_that_used_another_budget_is_named(study_copy):
    budget = results_of(study_copy)["budget"]["training_instances"]
    for engineer, seed in SKILLS:
        metrics = run_of(study_copy, engineer, seed).metrics
        updates = [one for one in metrics.read() if one.phase == "train"]
        missing = (engineer, seed) == ("lively", 2)
        metrics.write(updates[: budget // 8 - missing])
    assert report_only(study_copy) == 0
    (warning,) = re.findall(r"^\*\*Not every run used.*$", report_of(study_copy), re.MULTILINE)
    assert f"budget of {budget} training instances" in warning
    assert warning.endswith(f": lively seed 2 used {budget - 8}.")


def test_boards_that_replaced_others_are_in_both_ledgers(study_copy):
    metrics = run_of(study_copy, "lively", 2).metrics
    metrics.write(
        [
            one.model_copy(update={"resampled_boards": 3, "replaced_boards": 1})
            if isinstance(one, UpdateMetrics)
            else one
            for one in metrics.read()
        ]
    )
    assert report_only(study_copy) == 0
    ledgers = [results_of(study_copy)["engineers"]["lively"]["runs"][s]["ledger"] for s in "12"]
    first, second = (ledger["training_instances"] for ledger in ledgers)
    assert second > first


def test_moved_study_gives_the_same_report_wherever_it_is_written(
    finished_study, study_copy, tmp_path
):
    assert report_only(study_copy, "--output", str(tmp_path / "there")) == 0
    for path in (finished_study / "out/report").iterdir():
        assert (tmp_path / "there" / path.name).read_bytes() == path.read_bytes()


def test_runs_that_began_with_different_models_are_not_compared(study_copy, capsys):
    """Boards are the same, but what was answered before training can't be one model's."""
    ours, trained = (run_of(study_copy, "lively", 2).stage(stage) for stage in (0, 3))
    ours.episodes.write(trained.episodes.read())
    assert report_only(study_copy) == 2
    said = capsys.readouterr().err
    assert "lively, seed 2 began with another model than steady, seed 1" in said


def test_unfinished_run_is_named_and_left_out(study_copy):
    run_of(study_copy, "lively", 2).summary.remove()
    assert report_only(study_copy) == 0
    results = results_of(study_copy)
    assert results["missing"] == [{"engineer": "lively", "seed": 2, "reason": "not finished"}]
    assert results["engineers"]["lively"]["difference"]["seeds"] == [1]
    text = report_of(study_copy)
    assert "3 of 4 runs are finished. Missing: lively seed 2 (not finished)." in text
    assert table_under(text, "Seed by seed")[1]["seed 2"] == "–"  # noqa: RUF001


def test_without_the_baseline_nothing_is_compared(study_copy):
    shutil.rmtree(study_copy / "out/runs/steady")
    assert report_only(study_copy) == 0
    assert results_of(study_copy)["comparisons"]["count"] == 0
    text = report_of(study_copy)
    assert "Nothing can be compared: no run of the baseline steady is finished." in text
    assert "differences.svg" not in text


def without(key: str) -> Damage:
    """Give every one of these keys another name."""
    return lambda text: text.replace(f'"{key}"', '"x"')


def with_every(**changes: Any) -> Damage:
    """Change each record of a file of JSON lines."""
    return lambda text: "".join(
        json.dumps({**json.loads(line), **changes}) + "\n" for line in text.splitlines()
    )


def without_tokens(text: str) -> str:
    return re.sub(r'"engineer_tokens": \d+', '"engineer_tokens": NaN', text)


UNKNOWN_FAILURE = with_every(failure="bored", valid=False, scores={})
ONLY_SIZE_4 = '{"sizes": {"4": {"data_ratio": 1.0, "hole_ratio": 0.1, "wait_ratio": 0.1}}}'


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("stages/3/episodes.jsonl", lambda text: text[:-40], ["episodes.jsonl:120", "JSON"]),
        ("stages/3/episodes.jsonl", lambda text: text.split("\n", 1)[1], ["other boards"]),
        ("stages/3/episodes.jsonl", lambda text: "", ["3/episodes.jsonl", "no answers"]),
        ("stages/2/episodes.jsonl", without("valid"), ["episodes.jsonl:1", "valid"]),
        ("stages/3/episodes.jsonl", with_every(lines=[]), ["stages/3", "other boards"]),
        ("stages/0/episodes.jsonl", with_every(group="1e30"), ["episodes.jsonl", "group", "rows"]),
        ("stages/3/episodes.jsonl", UNKNOWN_FAILURE, ["episodes.jsonl", "bored"]),
        ("config.yaml", lambda text: text.replace("seed: 2", "seed: 3"), ["lively, seed 2"]),
        ("config.yaml", lambda text: "- a", ["config.yaml", "mapping"]),
        ("stages/2/configuration.json", without("hole_ratio"), ["2/configuration.json", "hole_r"]),
        ("stages/2/configuration.json", lambda _: ONLY_SIZE_4, ["2/configuration", "[4]", "[3, 4"]),
        ("stages/1/decision.json", lambda text: text[:-3], ["1/decision.json", "JSON"]),
        ("stages/1/decision.json", without("kind"), ["1/decision.json", "kind"]),
        ("stages/3/decision.json", lambda text: "null", ["3/decision.json"]),
        ("stages/3/decision.json", without_tokens, ["decision.json", "engineer_tokens", "nan"]),
        ("stages/2/gate.json", lambda text: "{}", ["2/gate.json", "reference"]),
        ("metrics.jsonl", without("update"), ["metrics.jsonl", "update"]),
        ("metrics.jsonl", lambda text: f"{text}3\n", ["metrics.jsonl"]),
        ("timings.jsonl", without("seconds"), ["timings.jsonl", "seconds"]),
        ("timings.jsonl", with_every(seconds={"a": math.nan}), ["timings.jsonl", "nan"]),
        ("timings.jsonl", with_every(seconds={"a": -1}), ["timings.jsonl", "-1"]),
    ],
)
def test_damaged_run_is_refused_by_file_and_field(name, damage, words, finished_study, tmp_path):
    run = StudyRun("lively", 2)
    study = load_study(finished_study / "study_pair.yaml")
    expected = study.config_of(run, StudyDirectory(finished_study / "out").policy)
    original = run_of(finished_study, run.engineer, run.seed).path
    copy = Path(shutil.copytree(original, tmp_path / "lively/2"))
    path = copy / name
    path.write_text(damage(path.read_text()))
    with pytest.raises(UserError) as caught:
        read_run(RunDirectory(copy), run, expected)
    for word in [*words, "lively/2"]:
        assert word in str(caught.value)


def test_runs_on_other_boards_are_not_paired(study_copy, capsys):
    for stage in range(4):
        episodes = run_of(study_copy, "lively", 1).stage(stage).episodes
        episodes.write(episodes.read()[::-1])
    assert report_only(study_copy) == 2
    assert "other boards" in capsys.readouterr().err


def test_study_without_a_finished_run_has_nothing_to_report(tmp_path, capsys):
    StudyDirectory(tmp_path / "out").claim(load_study(write_study(tmp_path)))
    assert report_only(tmp_path) == 2
    assert "nothing to report" in capsys.readouterr().err


def test_way_of_computing_the_numbers_may_change(study_copy):
    write_study(study_copy, baseline="lively", confidence=0.5, resamples=300, slice_boards=1)
    assert report_only(study_copy) == 0
    results = results_of(study_copy)
    assert results["engineers"]["lively"]["difference"] is None
    assert results["engineers"]["steady"]["difference"]["valid"]["beyond"] == -1
