"""Studies: the numbers are those of the files, runs resume, and what can't be run is named."""

import json
import math
import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.oracles.study import disagreements
from tests.oracles.study import main as recompute
from tests.training.sample_run import CONFIG, write_sample_run
from tests.training.study_coverage import DEVIATIONS, SEEDS, Setting, coverage
from training.cli import main
from training.errors import UserError
from training.run.directory import write_json
from training.study import runner
from training.study.bootstrap import mean_interval, misses_by_chance, resampled_means
from training.study.config import Study, load_study
from training.study.directory import StudyDirectory
from training.study.drawing import legend
from training.study.measures import flow, learnability
from training.study.report import verdicts

ROOT = Path(__file__).parents[2]
STAND_IN = Path(__file__).with_name("stand_in_run.py")
METRICS = ("valid", "optimal_sum_of_costs", "optimal_makespan")
STUDY = {
    "name": "pair",
    "base": "base.yaml",
    "set": ["stages.instances=160", "environment.max_candidates=20000"],
    "engineers": [
        {"name": "steady", "set": ["engineer.kind=fixed"]},
        {"name": "lively", "set": ["engineer.kind=random", "engineer.attempts=2"]},
    ],
    "seeds": [1, 2],
    "baseline": "steady",
    "resamples": 4000,
    "slice_boards": 10,
}
SKILLS = {
    ("steady", 1): (0.25, 0.3, 0.35, 0.4),
    ("steady", 2): (0.25, 0.3, 0.4, 0.5),
    ("lively", 1): (0.25, 0.4, 0.6, 0.8),
    ("lively", 2): (0.25, 0.4, 0.7, 0.75),
}
ARMS = ["steady/1", "lively/1", "steady/2", "lively/2"]


def write_study(folder: Path, study: dict[str, Any] = STUDY, **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "base.yaml").write_text(yaml.safe_dump(CONFIG))
    path = folder / "study_pair.yaml"
    path.write_text(yaml.safe_dump({**study, **changes}))
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study whose four runs are there, with its report."""
    folder = tmp_path_factory.mktemp("study")
    path = write_study(folder)
    study, directory = load_study(path), StudyDirectory(folder / "out")
    directory.claim(study)
    for arm in study.arms:
        write_sample_run(
            directory.run(arm),
            study.run_of(arm, directory.policy),
            skill=SKILLS[arm.engineer, arm.seed],
            count_tokens=len,
            design_seconds=arm.seed + 0.25,
        )
    assert main(["study", str(path), "--study-dir", str(directory.path), "--report-only"]) == 0
    return folder


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may damage."""
    return shutil.copytree(finished, tmp_path / "copy")


def report_only(folder: Path, *more: str) -> int:
    study = str(folder / "study_pair.yaml")
    return main(["study", study, "--study-dir", str(folder / "out"), "--report-only", *more])


def results_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "out/report/results.json").read_text())


def text_of(folder: Path) -> str:
    return (folder / "out/report/report.md").read_text(encoding="utf-8")


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def run_path(folder: Path, engineer: str, seed: int) -> Path:
    return folder / "out/runs" / engineer / str(seed)


def episodes_of(folder: Path, engineer: str, seed: int, stage: int) -> list[dict[str, Any]]:
    return lines_of(run_path(folder, engineer, seed) / f"stages/{stage}/episodes.jsonl")


def each(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from results_of(folder)["engineers"].items()


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def spread(values: list[float]) -> dict[str, float]:
    return {
        "mean": pytest.approx(mean(values)),
        "low": pytest.approx(min(values)),
        "high": pytest.approx(max(values)),
    }


def cell_of(episode: dict[str, Any]) -> tuple[int, int, bool]:
    board = "".join(episode["grid"]).replace(" ", "")
    return episode["size"], 10 * board.count("H") // len(board), episode["needs_wait"]


def table_under(text: str, heading: str) -> list[dict[str, str]]:
    """The rows of the first Markdown table under a heading, by column."""
    after = text.split(f"## {heading}\n", 1)[1]
    lines = re.search(r"(?:^\|.*\n)+", after, flags=re.MULTILINE).group().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]


def test_the_main_table_shows_what_the_runs_files_add_up_to(finished: Path) -> None:
    rows = {row["engineer"]: row for row in table_under(text_of(finished), "What came out")}
    assert list(rows) == ["steady", "lively"]
    names = ("valid", "optimal, sum of costs", "optimal, makespan")
    for engineer, row in rows.items():
        assert row["seeds"] == "2"
        for metric, name in zip(METRICS, names, strict=True):
            rates = [
                mean([one[metric] for one in episodes_of(finished, engineer, seed, 3)])
                for seed in (1, 2)
            ]
            assert row[f"{name}, %"].startswith(f"{100 * mean(rates):.1f} [")
        tokens, seconds = [], []
        for seed in (1, 2):
            run = run_path(finished, engineer, seed)
            answers = [
                len(answer["text"])
                for stage in (1, 2, 3)
                for answer in lines_of(run / f"stages/{stage}/answers.jsonl")
            ]
            tokens.append(sum(answers))
            timings = lines_of(run / "timings.jsonl")
            seconds.append(sum(sum(one["seconds"].values()) for one in timings))
        # Half of a surrogate pair is one character that is written as six.
        assert float(row["engineer tokens"].replace(",", "")) == pytest.approx(mean(tokens), abs=12)
        assert float(row["seconds"].replace(",", "")) == pytest.approx(mean(seconds), abs=0.5)


def test_differences_are_paired_by_seed_and_board(finished: Path) -> None:
    results = results_of(finished)
    assert results["engineers"]["steady"]["difference"] is None
    difference = results["engineers"]["lively"]["difference"]
    row = table_under(text_of(finished), "What came out")[1]
    assert difference["seeds"] == [1, 2]
    for metric, name in zip(METRICS, list(row)[2:8:2], strict=True):
        pairs = [
            ours[metric] - theirs[metric]
            for seed in (1, 2)
            for ours, theirs in zip(
                episodes_of(finished, "lively", seed, 3),
                episodes_of(finished, "steady", seed, 3),
                strict=True,
            )
            if ours["grid"] == theirs["grid"]
        ]
        assert len(pairs) == 2 * results["budget"]["validation_boards"]
        assert difference[metric]["value"] == pytest.approx(mean(pairs))
        shown = row[list(row)[list(row).index(name) + 1]]
        expected = [100 * difference[metric][key] for key in ("value", "low", "high")]
        assert [float(word) for word in re.findall(r"[+-]?[\d.]+", shown)] == pytest.approx(
            expected, abs=0.0501
        )


def test_every_cell_is_counted_board_by_board(finished: Path) -> None:
    for engineer, one in each(finished):
        by_seed = [episodes_of(finished, engineer, seed, 3) for seed in (1, 2)]
        cells = sorted({cell_of(episode) for episode in by_seed[0]})
        assert [(c["size"], c["hole_tenth"], c["needs_wait"]) for c in one["cells"]] == cells
        rates = {}
        for cell, shown in zip(cells, one["cells"], strict=True):
            chosen = [[e for e in episodes if cell_of(e) == cell] for episodes in by_seed]
            assert shown["count"] == len(chosen[0])
            for metric in METRICS:
                assert shown[metric] == spread([mean([e[metric] for e in row]) for row in chosen])
            p = [mean([e["valid"] for e in row]) for row in chosen]
            assert shown["learnability"] == spread([x * (1 - x) for x in p])
            if len(chosen[0]) >= STUDY["slice_boards"]:
                rates[cell] = mean(p)
            for seed, row in zip(("1", "2"), chosen, strict=True):
                counts = one["runs"][seed]["cells"][cells.index(cell)]
                assert counts["valid"] == sum(e["valid"] for e in row)
        assert 0 < len(rates) < len(cells), "some cells are too small to be the worst"
        worst = one["worst_cell"]
        key = (worst["size"], worst["hole_tenth"], worst["needs_wait"])
        assert key == min(rates, key=lambda cell: rates[cell])


def test_learning_curves_mixtures_and_flows_follow_the_stages(finished: Path) -> None:
    for engineer, one in each(finished):
        for metric in METRICS:
            for stage, shown in enumerate(one["learning_curve"][metric]):
                tables = [
                    json.loads(
                        (
                            run_path(finished, engineer, seed) / f"stages/{stage}/validation.json"
                        ).read_text()
                    )["total"]
                    for seed in (1, 2)
                ]
                assert shown == spread([table[metric] / table["count"] for table in tables])
        assert len(one["mixture"]) == 3
        for stage, shown in enumerate(one["mixture"], start=1):
            for size, knobs in shown.items():
                for knob, value in knobs.items():
                    assert value == spread(
                        [
                            json.loads(
                                (
                                    run_path(finished, engineer, seed)
                                    / f"stages/{stage}/configuration.json"
                                ).read_text()
                            )["sizes"][size][knob]
                            for seed in (1, 2)
                        ]
                    )
        moved = Counter(
            (before["failure"] or "valid", after["failure"] or "valid")
            for seed in (1, 2)
            for before, after in zip(
                episodes_of(finished, engineer, seed, 0),
                episodes_of(finished, engineer, seed, 3),
                strict=True,
            )
        )
        kinds = results_of(finished)["study"]["kinds"]
        shown = {
            (before, after): count
            for before, row in zip(kinds, one["flow"], strict=True)
            for after, count in zip(kinds, row, strict=True)
            if count
        }
        assert shown == moved


def test_the_ledger_counts_what_a_run_has_cost(finished: Path) -> None:
    for engineer, one in each(finished):
        for seed in (1, 2):
            run = run_path(finished, engineer, seed)
            updates = [m for m in lines_of(run / "metrics.jsonl") if m["phase"] == "train"]
            spent = [
                json.loads((run / f"stages/{stage}/decision.json").read_text())["spent"]
                for stage in (1, 2, 3)
            ]
            ledger = one["runs"][str(seed)]["ledger"]
            assert ledger["training_instances"] == len(updates) * 8
            assert ledger["engineer_tokens"] == sum(s["engineer_tokens"] for s in spent) > 0
            assert ledger["probe_rollouts"] == ledger["probe_instances"] == 0
            assert ledger["design_seconds"] == pytest.approx(3 * (seed + 0.25))


def plain_bootstrap(
    values: list[list[int]], resamples: int, confidence: float
) -> tuple[float, float, float]:
    """(low, high, standard deviation) by the definition, one draw after the other."""
    rng = random.Random(5)
    means = []
    boards = range(len(values[0]))
    for _ in range(resamples):
        answered = rng.choices(boards, k=len(boards))
        rows = rng.choices(values, k=len(values))
        total = sum(row[board] for row in rows for board in answered)
        means.append(total / (len(values) * len(boards)))
    means.sort()
    tail = round((1 - confidence) / 2 * resamples)
    middle = mean(means)
    deviation = mean([(m - middle) ** 2 for m in means]) ** 0.5
    return means[tail], means[-tail - 1], deviation


def test_intervals_agree_with_a_plain_bootstrap_of_the_files(finished: Path) -> None:
    results = results_of(finished)
    confidence = results["study"]["confidence"]
    for metric in METRICS:
        ours, theirs = (
            [[e[metric] for e in episodes_of(finished, name, seed, 3)] for seed in (1, 2)]
            for name in ("lively", "steady")
        )
        paired = [
            [a - b for a, b in zip(*rows, strict=True)] for rows in zip(ours, theirs, strict=True)
        ]
        for values, shown in (
            (ours, results["engineers"]["lively"]["rates"][metric]),
            (paired, results["engineers"]["lively"]["difference"][metric]),
        ):
            low, high, deviation = plain_bootstrap(values, 4000, confidence)
            assert shown["low"] == pytest.approx(low, abs=0.2 * deviation)
            assert shown["high"] == pytest.approx(high, abs=0.2 * deviation)
            assert shown["beyond"] == (shown["low"] > 0) - (shown["high"] < 0)


def test_an_independent_recomputation_agrees_with_every_number(finished: Path) -> None:
    compared, found = disagreements(finished / "out")
    assert found == []
    assert compared > 1000


def wrong_rate(results: dict[str, Any]) -> None:
    results["engineers"]["steady"]["rates"]["optimal_makespan"]["value"] += 1e-6


def wrong_ledger(results: dict[str, Any]) -> None:
    results["engineers"]["lively"]["runs"]["2"]["ledger"]["engineer_tokens"] += 1


def moved_end(results: dict[str, Any]) -> None:
    results["engineers"]["lively"]["rates"]["valid"]["high"] -= 0.02


def wrong_worst_cell(results: dict[str, Any]) -> None:
    one = results["engineers"]["lively"]
    one["worst_cell"] = max(one["cells"], key=lambda cell: cell["valid"]["mean"])


@pytest.mark.parametrize(
    ("plant", "where"),
    [
        (wrong_rate, "engineers.steady.rates.optimal_makespan.value: "),
        (wrong_ledger, "engineers.lively.runs.2.ledger.engineer_tokens: "),
        (moved_end, "engineers.lively.rates.valid.high: "),
        (wrong_worst_cell, "engineers.lively.worst_cell."),
    ],
)
def test_an_independent_recomputation_finds_a_planted_error(
    plant: Any, where: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = results_of(finished)
    plant(results)
    wrong = tmp_path / "results.json"
    wrong.write_text(json.dumps(results))
    study = str(finished / "out")
    assert recompute([study, "--results", str(wrong), "--resamples", "2000"]) == 1
    count, *lines = capsys.readouterr().out.splitlines()
    assert count.endswith(f" numbers compared, {len(lines)} disagreements")
    assert lines
    assert all(line.startswith(where) for line in lines)


def test_the_command_of_the_documentation_needs_nothing_but_python(finished: Path) -> None:
    text = (ROOT / "docs/studies.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"^python (\S+) runs/study_miniature$", text, flags=re.MULTILINE)
    command = [sys.executable, "-I", "-S", str(ROOT / script), str(finished / "out")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert re.fullmatch(r"[\d,]+ numbers compared, 0 disagreements\n", printed.stdout)


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    many = coverage(Setting(seeds=20, deviation=0.05, boards=300), repeats=200, resamples=400)
    assert 0.9 <= many.rate <= 0.99
    assert 0.9 <= many.difference <= 0.99


@pytest.mark.parametrize("setting", [Setting(3, 0.0, 0.9), Setting(3, 0.0, own_share=0.25)])
def test_intervals_know_that_all_seeds_answer_the_same_boards(setting: Setting) -> None:
    held = coverage(setting, repeats=300, resamples=400)
    assert held.rate >= 0.91
    assert held.difference >= 0.93


def documented_coverage() -> dict[int, list[float]]:
    """By number of seeds, the first table of what intervals hold, from top to bottom."""
    text = (ROOT / "docs/studies.md").read_text(encoding="utf-8")
    title = "standard deviation of a run's true rate between seeds"
    lines = text[text.index(f"| {title} |") :].split("\n\n", 1)[0].splitlines()
    heads, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return {
        int(head.split()[0]): [int(row[column].rstrip("%")) / 100 for row in rows]
        for column, head in enumerate(heads)
        if column
    }


def test_the_documented_coverage_is_what_the_simulation_finds() -> None:
    held = documented_coverage()
    assert list(held) == list(SEEDS)
    assert all(len(shares) == len(DEVIATIONS) for shares in held.values())
    repeats = 300
    for seeds in (1, 3):
        expected = held[seeds][-1]
        found = coverage(Setting(seeds, DEVIATIONS[-1]), repeats=repeats, resamples=400).difference
        assert found == pytest.approx(expected, abs=4 * math.sqrt(0.25 / repeats))


def test_the_report_takes_its_misses_by_chance_from_the_documented_coverage() -> None:
    for seeds, shares in documented_coverage().items():
        least, most = misses_by_chance(100, seeds=seeds, confidence=0.95)
        assert (least, most) == pytest.approx((100 * (1 - max(shares)), 100 * (1 - min(shares))))
    # of seeds that were not measured, the next fewer; of another confidence, nothing was measured
    assert misses_by_chance(9, seeds=4, confidence=0.95) == misses_by_chance(
        9, seeds=3, confidence=0.95
    )
    assert misses_by_chance(10, seeds=3, confidence=0.5) == (5, 5)


def test_resamples_vary_as_crossed_draws_of_seeds_and_boards_do() -> None:
    rng = np.random.default_rng(3)
    values = (rng.random((12, 1500)) < rng.beta(0.3, 0.7, size=1500)).astype(int)
    seeds, boards = values.shape
    means = resampled_means(values, 10_000, np.random.default_rng(0))
    # Of multinomial counts, E[w_s w_t] = 1 - 1/S, and 1 more where s = t.
    few, more = 1 - 1 / seeds, 1 - 1 / boards
    squares = (
        few * more * values.sum() ** 2
        + few * (values.sum(axis=0) ** 2).sum()
        + more * (values.sum(axis=1) ** 2).sum()
        + (values**2).sum()
    )
    variance = squares / values.size**2 - values.mean() ** 2
    assert means.mean() == pytest.approx(values.mean(), abs=4 * math.sqrt(variance / 10_000))
    assert len(means) == 10_000
    assert means.var() == pytest.approx(variance, rel=0.06)


def test_an_interval_gets_narrower_with_boards_and_wider_with_confidence() -> None:
    rng = np.random.default_rng(0)
    answers = rng.random((4, 4000)) < 0.3

    def width(boards: int, confidence: float) -> float:
        found = mean_interval(answers[:, :boards], resamples=2000, confidence=confidence)
        return found.high - found.low

    assert width(4000, 0.95) < width(400, 0.95) < width(400, 0.99)


def test_equal_engineers_show_no_difference(copy: Path) -> None:
    for seed in (1, 2):
        for stage in range(4):
            for name in ("episodes.jsonl", "validation.json"):
                source = run_path(copy, "steady", seed) / f"stages/{stage}" / name
                shutil.copy(source, run_path(copy, "lively", seed) / f"stages/{stage}" / name)
    assert report_only(copy) == 0
    results = results_of(copy)
    for metric in METRICS:
        shown = results["engineers"]["lively"]["difference"][metric]
        assert shown == {"value": 0, "low": 0, "high": 0, "beyond": 0}
    assert verdicts(results) == [
        f"In the rate of {what}, no difference to steady was seen: the interval of lively holds 0."
        for what in ("valid answers", "optimal sums of costs", "optimal makespans")
    ]


def test_the_verdict_names_who_is_better_and_who_is_worse(finished: Path) -> None:
    results = results_of(finished)
    assert results["engineers"]["lively"]["difference"]["valid"]["beyond"] == 1
    (bold,) = re.findall(r"^\*\*(.*)\*\*$", text_of(finished), flags=re.MULTILINE)
    assert bold.startswith(
        "In the rate of valid answers, better than steady beyond the interval, in points: lively (+"
    )
    difference = results["engineers"]["lively"]["difference"]
    for metric in METRICS:
        one = difference[metric]
        one["value"], one["low"], one["high"] = -one["value"], -one["high"], -one["low"]
        one["beyond"] = -one["beyond"]
    assert "worse than steady beyond the interval, in points: lively (-" in verdicts(results)[0]
    assert "better" not in verdicts(results)[0]


def test_the_number_of_comparisons_is_told(finished: Path) -> None:
    assert results_of(finished)["comparisons"]["count"] == 3
    assert "These are 3 comparisons, and each interval is for its own" in text_of(finished)
    assert "0.0 to 0.8 of 3 such intervals" in text_of(finished)


def test_every_figure_is_whole_and_stands_beside_the_report(finished: Path) -> None:
    shown = re.findall(r"^!\[.+\]\((.+)\)$", text_of(finished), flags=re.MULTILINE)
    folder = finished / "out/report"
    assert sorted(shown) == sorted(path.name for path in folder.glob("*.svg"))
    assert len(shown) == 8
    words = {}
    for name in shown:
        root = ElementTree.fromstring((folder / name).read_text(encoding="utf-8"))
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        width, height = float(root.get("width")), float(root.get("height"))
        texts = list(root.iter("{http://www.w3.org/2000/svg}text"))
        for text in texts:
            assert 0 <= float(text.get("x")) <= width
            assert 0 <= float(text.get("y")) <= height
        words[name] = " ".join(text.text for text in texts)
        assert "nan" not in words[name]
    final = results_of(finished)["engineers"]["lively"]["rates"]["valid"]["value"]
    assert f"{100 * final:.1f}%" in words["learning_curves.svg"]
    assert sum((folder / name).stat().st_size for name in shown) < 300_000


def svg_words(path: Path) -> list[str]:
    root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    return [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("metric", METRICS)
def test_each_rate_is_drawn_by_cell(metric: str, finished: Path) -> None:
    words = svg_words(finished / "out/report" / f"cells_{metric}.svg")
    results = results_of(finished)
    tables = [results["warm_start"], *results["engineers"].values()]
    sizes = sorted({cell["size"] for cell in results["warm_start"]["cells"]})
    expected = [
        f"{100 * cell[metric]['mean']:.0f}"
        for size in sizes
        for table in tables
        for cell in table["cells"]
        if cell["size"] == size
    ]
    assert [word for word in words if word.isdigit()] == expected


def test_series_differ_in_shape_as_well_as_in_colour() -> None:
    parts, _ = legend(["fixed", "random", "learnability", "checkpoint", "base"], 0, 0, 900)
    elements = ElementTree.fromstring(f"<svg>{''.join(parts)}</svg>")
    dots = [one for one in elements if one.tag != "text" and one.get("fill") != "none"]
    assert len(dots) == len({(dot.tag, dot.get("d")) for dot in dots}) == 5
    assert len({dot.get("fill") for dot in dots}) == 5


def test_the_report_tells_what_became_of_the_designs(finished: Path, copy: Path) -> None:
    gate = run_path(copy, "lively", 2) / "stages/2/gate.json"
    record = json.loads(gate.read_text())
    gate.write_text(json.dumps({**record, "restored": "configuration", "notice": "It fell."}))
    assert report_only(copy) == 0
    rows = {row["engineer"]: row for row in table_under(text_of(copy), "What the engineers did")}
    for name, row in rows.items():
        kinds = Counter(
            json.loads((run_path(copy, name, seed) / f"stages/{stage}/decision.json").read_text())[
                "kind"
            ]
            for seed in (1, 2)
            for stage in (1, 2)  # what is designed after the last round is not trained on
        )
        assert row["designs"] == "4"
        shown = {kind: int(row[kind]) for kind in ("accepted", "repaired", "retried", "kept")}
        assert {kind: count for kind, count in shown.items() if count} == kinds
        assert row["rolled back"] == {"lively": "1", "steady": "0"}[name]
    assert "2 rounds of 3 can tell them apart" in text_of(copy)


def test_a_run_that_used_another_budget_is_named(copy: Path) -> None:
    budget = results_of(copy)["budget"]["training_instances"]
    kept = budget // 8
    for engineer, seed in SKILLS:
        metrics = run_path(copy, engineer, seed) / "metrics.jsonl"
        records = [one for one in lines_of(metrics) if one["phase"] == "train"]
        used = records[: kept - 1 if (engineer, seed) == ("lively", 2) else kept]
        metrics.write_text("".join(json.dumps(one) + "\n" for one in used))
    assert report_only(copy) == 0
    (warning,) = re.findall(r"^\*\*Not every run used.*$", text_of(copy), flags=re.MULTILINE)
    assert f"budget of {budget} training instances" in warning
    assert warning.endswith(f": lively seed 2 used {budget - 8}.")


def test_the_report_can_go_elsewhere_and_says_the_same(finished: Path, tmp_path: Path) -> None:
    assert report_only(finished, "--output", str(tmp_path / "there")) == 0
    for path in (finished / "out/report").iterdir():
        assert (tmp_path / "there" / path.name).read_bytes() == path.read_bytes()


def test_a_study_that_was_moved_is_still_reported(finished: Path, copy: Path) -> None:
    assert report_only(copy) == 0
    assert results_of(copy) == results_of(finished)


def test_runs_that_are_not_there_are_named_and_left_out(copy: Path) -> None:
    (run_path(copy, "lively", 2) / "summary.json").unlink()
    assert report_only(copy) == 0
    results = results_of(copy)
    assert results["missing"] == [{"engineer": "lively", "seed": 2, "reason": "not finished"}]
    assert results["engineers"]["lively"]["difference"]["seeds"] == [1]
    text = text_of(copy)
    assert "3 of 4 runs are finished. Missing: lively seed 2 (not finished)." in text
    assert table_under(text, "Seed by seed")[1]["seed 2"] == "–"  # noqa: RUF001


def test_without_the_baseline_nothing_is_compared(copy: Path) -> None:
    shutil.rmtree(copy / "out/runs/steady")
    assert report_only(copy) == 0
    assert results_of(copy)["comparisons"]["count"] == 0
    assert "Nothing can be compared: no run of the baseline steady is finished." in text_of(copy)
    assert not re.search(r"differences\.svg", text_of(copy))


def without(key: str) -> Any:
    """Give every one of these keys another name."""
    return lambda text: text.replace(f'"{key}"', '"x"')


def with_every(**changes: Any) -> Any:
    """Change each record of a file of JSON lines."""
    return lambda text: "".join(
        json.dumps({**json.loads(line), **changes}) + "\n" for line in text.splitlines()
    )


def only_size_4(text: str) -> str:
    return '{"sizes": {"4": {"data_ratio": 1.0, "hole_ratio": 0.1, "wait_ratio": 0.1}}}'


def nan_tokens(text: str) -> str:
    return re.sub(r'"engineer_tokens": \d+', '"engineer_tokens": NaN', text)


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("stages/3/episodes.jsonl", lambda text: text[:-40], ["episodes.jsonl", "119", "120"]),
        ("stages/2/episodes.jsonl", lambda text: text.replace('"valid"', '"v"'), ["'valid'"]),
        ("stages/1/decision.json", lambda text: text[:-3], ["decision.json", "JSON"]),
        ("stages/0/validation.json", lambda text: "", ["stages/0/validation.json"]),
        ("config.yaml", lambda text: text.replace("seed: 2", "seed: 3"), ["lively, seed 2"]),
        ("config.yaml", lambda text: "- a", ["config.yaml", "mapping"]),
        ("stages/3/episodes.jsonl", lambda text: f"\xff{text}", ["episodes.jsonl", "119", "120"]),
        ("stages/3/episodes.jsonl", lambda text: "7\n" * 120, ["episodes.jsonl"]),
        ("stages/3/episodes.jsonl", with_every(grid=[]), ["episodes.jsonl"]),
        ("stages/3/episodes.jsonl", with_every(size=10**30), ["episodes.jsonl"]),
        ("stages/3/episodes.jsonl", with_every(size=math.inf), ["episodes.jsonl"]),
        ("stages/3/episodes.jsonl", with_every(failure="bored"), ["episodes.jsonl", "bored"]),
        ("stages/0/validation.json", lambda text: "{}", ["stages/0/validation.json", "'total'"]),
        ("stages/0/validation.json", lambda text: "[1]", ["stages/0/validation.json"]),
        ("stages/0/validation.json", lambda text: '{"total": 3}', ["stages/0/validation.json"]),
        ("stages/0/validation.json", without("optimal_makespan"), ["validation.json", "optimal_m"]),
        ("stages/2/configuration.json", lambda text: "{}", ["stages/2/configuration.json"]),
        (
            "stages/2/configuration.json",
            without("hole_ratio"),
            ["configuration.json", "hole_ratio"],
        ),
        ("stages/2/configuration.json", only_size_4, ["stages/2/configuration.json", "4", "3, 4"]),
        ("stages/1/decision.json", without("kind"), ["stages/1/decision.json", "'kind'"]),
        ("stages/1/decision.json", without("spent"), ["stages/1/decision.json", "'spent'"]),
        ("stages/3/decision.json", lambda text: "null", ["stages/3/decision.json"]),
        ("stages/3/decision.json", lambda text: '{"spent": {}}', ["decision.json", "tokens"]),
        ("stages/3/decision.json", nan_tokens, ["decision.json", "engineer_tokens", "nan"]),
        ("stages/2/gate.json", lambda text: "{}", ["stages/2/gate.json", "reference"]),
        ("metrics.jsonl", without("phase"), ["metrics.jsonl", "'phase'"]),
        ("metrics.jsonl", without("update"), ["metrics.jsonl", "'update'"]),
        ("metrics.jsonl", lambda text: f"{text}3\n", ["metrics.jsonl"]),
        ("metrics.jsonl", with_every(stage=[]), ["metrics.jsonl"]),
        ("timings.jsonl", without("phase"), ["timings.jsonl", "'phase'"]),
        ("timings.jsonl", without("seconds"), ["timings.jsonl", "'seconds'"]),
        ("timings.jsonl", with_every(seconds=3), ["timings.jsonl"]),
        ("timings.jsonl", with_every(seconds={"a": "b"}), ["timings.jsonl", "'b'"]),
        ("timings.jsonl", with_every(seconds={"a": math.nan}), ["timings.jsonl", "nan"]),
        ("timings.jsonl", with_every(seconds={"a": True}), ["timings.jsonl", "True"]),
    ],
)
def test_a_damaged_run_is_named(
    name: str, damage: Any, words: list[str], copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run_path(copy, "lively", 2) / name
    path.write_text(damage(path.read_text()))
    assert report_only(copy) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    for word in [*words, "lively/2"]:
        assert word in error


def test_runs_on_other_boards_are_not_paired(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for stage in range(4):
        path = run_path(copy, "lively", 1) / f"stages/{stage}/episodes.jsonl"
        path.write_text("".join(f"{line}\n" for line in path.read_text().splitlines()[::-1]))
    assert report_only(copy) == 2
    assert "other boards" in capsys.readouterr().err


class StandIn:
    """A study whose runs are copies; what is to go wrong can be said before each call."""

    def __init__(self, template: Path, folder: Path) -> None:
        self.template = template
        self.path = write_study(folder)
        self.directory = StudyDirectory(folder / "out")
        self.command = (sys.executable, str(STAND_IN), str(template))
        self.orders()

    @property
    def study(self) -> Study:
        return load_study(self.path)

    def orders(self, fail: tuple[str, ...] = (), end_study: str = "") -> None:
        write_json(self.template / "stand_in.json", {"fail": fail, "end_study": end_study})
        (self.template / "calls.jsonl").write_text("")

    def calls(self) -> list[dict[str, Any]]:
        return lines_of(self.template / "calls.jsonl")

    def run(self, monkeypatch: pytest.MonkeyPatch) -> int:
        monkeypatch.setattr(runner, "COMMAND", self.command)
        return main(["study", str(self.path), "--study-dir", str(self.directory.path)])


@pytest.fixture
def stand_in(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return StandIn(finished / "out", tmp_path / "study")


def test_a_study_warm_starts_once_and_runs_seeds_outermost(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stand_in.run(monkeypatch) == 0
    calls = stand_in.calls()
    assert [call["name"] for call in calls] == ["warm_start", *ARMS]
    assert calls[0]["set"] == STUDY["set"]
    policy = stand_in.directory.policy
    for call in calls[1:]:
        engineer, seed = call["name"].split("/")
        kind = {"steady": "fixed", "lively": "random"}[engineer]
        assert {
            *STUDY["set"],
            f"engineer.kind={kind}",
            f"seed={seed}",
            "warm_start=null",
            f'model.pretrained="{policy}"',
        } <= set(call["set"])
    printed = capsys.readouterr().out
    for number, arm in enumerate(ARMS, start=1):
        engineer, seed = arm.split("/")
        assert re.search(rf"\[{number}/4\] {engineer}, seed {seed}: .*valid [\d.]+%", printed)
    assert len(re.findall("elapsed .*left for", printed)) == 3
    log = stand_in.directory.path / "runs/lively/1.log"
    assert log.read_text() == "this is lively/1\n"
    report = (stand_in.directory.path / "report/report.md").read_text()
    assert "What came out" in report
    cores = len(os.sched_getaffinity(0))
    assert re.search(
        rf"Run on .+ \({cores} cores?, .*Python {platform.python_version()}, jax ", report
    )
    assert len(lines_of(stand_in.directory.path / "machines.jsonl")) == 1
    assert re.search("All processes from start to end took .+, the warm start .+ of it", report)
    took = results_of(stand_in.directory.path.parent)["process_seconds"]
    logged = {one["run"]: one["seconds"] for one in stand_in.directory.processes.read()}
    assert took == logged
    assert list(took) == ["warm_start", *ARMS]


def test_a_run_that_fails_is_shown_and_the_others_go_on_and_it_resumes(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in.orders(fail=("lively/1",))
    assert stand_in.run(monkeypatch) == 1
    printed = capsys.readouterr().out
    assert "lively, seed 1: failed with exit status 7" in printed
    assert "the lake is frozen over" in printed
    assert [call["name"] for call in stand_in.calls()] == ["warm_start", *ARMS]
    report = (stand_in.directory.path / "report/report.md").read_text()
    assert "Missing: lively seed 1 (not finished)." in report

    stand_in.orders()
    assert stand_in.run(monkeypatch) == 0
    assert "3 of 4 runs are finished already." in capsys.readouterr().out
    assert [(call["name"], call["known"]) for call in stand_in.calls()] == [("lively/1", True)]
    assert "Missing" not in (stand_in.directory.path / "report/report.md").read_text()
    statuses = [(one["run"], one["status"]) for one in stand_in.directory.processes.read()]
    assert statuses[2] == ("lively/1", 7)
    assert statuses[-1] == ("lively/1", 0)

    stand_in.orders()
    assert stand_in.run(monkeypatch) == 0
    assert stand_in.calls() == []


def test_without_a_warm_start_no_run_is_started(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in.orders(fail=("warm_start",))
    assert stand_in.run(monkeypatch) == 1
    assert "warm start: failed with exit status 7" in capsys.readouterr().out
    assert [call["name"] for call in stand_in.calls()] == ["warm_start"]


def test_a_study_that_is_ended_ends_its_run_and_goes_on_later(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in.orders(end_study="lively/1")
    slow = ("sh", "-c", 'sleep 0.3; exec "$@"', "sh", *stand_in.command)
    command = [
        sys.executable,
        "-c",
        "import sys; from training.cli import main; from training.study import runner; "
        f"runner.COMMAND = {slow!r}; sys.exit(main(sys.argv[1:]))",
        *("study", str(stand_in.path), "--study-dir", str(stand_in.directory.path)),
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 128 + signal.SIGTERM, ended.stderr
    assert [call["name"] for call in stand_in.calls()] == ["warm_start", "steady/1", "lively/1"]
    stopped = stand_in.directory.processes.read()[-1]
    assert (stopped["run"], stopped["status"]) == ("lively/1", -signal.SIGTERM)
    assert stopped["seconds"] >= 0.3

    stand_in.orders()
    assert stand_in.run(monkeypatch) == 0
    assert [call["name"] for call in stand_in.calls()] == ["lively/1", "steady/2", "lively/2"]
    processes = stand_in.directory.processes.read()
    *_, again = (one for one in processes if one["run"] == "lively/1")
    assert again["status"] == 0
    took = results_of(stand_in.directory.path.parent)["process_seconds"]
    assert took["lively/1"] == pytest.approx(stopped["seconds"] + again["seconds"])
    assert sum(took.values()) == pytest.approx(sum(one["seconds"] for one in processes))


def test_a_second_interrupt_kills_a_run_that_does_not_end() -> None:
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            with pytest.raises(KeyboardInterrupt):
                runner._end(process)
            assert process.returncode == -signal.SIGKILL
        finally:
            process.kill()


def test_two_studies_do_not_work_in_one_directory(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in.directory.claim(stand_in.study)
    with stand_in.directory.lock():
        assert stand_in.run(monkeypatch) == 2
    assert "another process works here" in capsys.readouterr().err
    assert stand_in.calls() == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seeds": [1, 2, 3]}, ["seeds", "[1, 2]", "[1, 2, 3]"]),
        ({"set": ["stages.instances=240"]}, ["base.stages.instances", "160", "240"]),
        ({"engineers": STUDY["engineers"][:1]}, ["engineers.lively"]),
    ],
)
def test_a_directory_belongs_to_one_study(
    changes: dict[str, Any], words: list[str], copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_study(copy, **changes)
    study = str(copy / "study_pair.yaml")
    for arguments in (["--report-only"], []):
        assert main(["study", study, "--study-dir", str(copy / "out"), *arguments]) == 2
        error = capsys.readouterr().err
        for word in ["holds another study", *words]:
            assert word in error


def test_how_the_numbers_are_worked_out_may_change(copy: Path) -> None:
    write_study(copy, baseline="lively", confidence=0.5, resamples=300, slice_boards=1)
    assert report_only(copy) == 0
    results = results_of(copy)
    assert results["engineers"]["lively"]["difference"] is None
    assert results["engineers"]["steady"]["difference"]["valid"]["beyond"] == -1


def test_a_directory_that_holds_something_else_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = write_study(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/diary.txt").write_text("mine")
    assert main(["study", str(study), "--study-dir", str(tmp_path / "out")]) == 2
    assert "is not empty and holds no study" in capsys.readouterr().err
    assert main(["study", str(study), "--study-dir", str(tmp_path / "x"), "--report-only"]) == 2
    assert "holds no study" in capsys.readouterr().err


KILLED_CLAIM = """\
import os, signal, sys
from pathlib import Path
from training.study.config import load_study
from training.study.directory import StudyDirectory
os.replace = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)
StudyDirectory(Path(sys.argv[2])).claim(load_study(Path(sys.argv[1])))
"""


def test_a_study_that_was_killed_while_it_claimed_its_directory_starts_with_the_same_command(
    tmp_path: Path,
) -> None:
    path, out = write_study(tmp_path), tmp_path / "out"
    command = [sys.executable, "-c", KILLED_CLAIM, str(path), str(out)]
    for _ in range(2):
        assert subprocess.run(command, cwd=ROOT, timeout=100).returncode == -signal.SIGKILL
    assert list(out.iterdir())
    assert StudyDirectory(out).claim(load_study(path)) is False
    assert [child.name for child in out.iterdir()] == ["study.yaml"]


@pytest.mark.parametrize("text", [b"", b"- a", b"{", b"3", b"\x00", b"\xff\xfe"])
def test_a_claim_that_is_no_studys_is_named(
    text: bytes, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (copy / "out/study.yaml").write_bytes(text)
    study = str(copy / "study_pair.yaml")
    for arguments in (["--report-only"], []):
        assert main(["study", study, "--study-dir", str(copy / "out"), *arguments]) == 2
        error = capsys.readouterr().err
        assert re.search(r"/out/study\.yaml: (is not YAML|must hold a mapping)", error)


def test_a_dry_run_lists_the_runs_and_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = write_study(tmp_path)
    assert main(["study", str(study), "--study-dir", str(tmp_path / "out"), "--dry-run"]) == 0
    printed = capsys.readouterr().out
    for arm in ("steady, seed 1", "lively, seed 1", "steady, seed 2", "lively, seed 2"):
        assert arm in printed
    # three rounds of 160 instances each, four runs
    assert re.search(r"training instances\D+480\D+1,920", printed)
    # and at most 3 * 3 answers of one engineer, 3 * 2 of the other, for each of two seeds
    assert re.search(r"engineer's answers, at most\D+9\D+30", printed)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"colour": "blue"}, ["colour", "unknown key", "baseline"]),
        ({"engineers": [{"name": "a", "kind": "x"}]}, ["engineers.0.kind", "unknown", "name, set"]),
        ({"engineers": []}, ["engineers", "got []", "at least 1"]),
        ({"engineers": [{"name": "a"}, {"name": "a"}]}, ["engineers", "['a', 'a']", "once"]),
        ({"engineers": [{"name": "../a"}]}, ["engineers.0.name", "'../a'"]),
        ({"seeds": []}, ["seeds", "got []"]),
        ({"seeds": [1, 1]}, ["seeds", "[1, 1]", "once"]),
        ({"seeds": [-1]}, ["seeds.0", "got -1", "greater than or equal to 0"]),
        ({"seeds": ["one"]}, ["seeds.0", "'one'"]),
        ({"baseline": "nobody"}, ["baseline", "'nobody'", "steady, lively"]),
        ({"resamples": 5}, ["resamples", "got 5", "100"]),
        ({"resamples": 1_000_001}, ["resamples", "got 1000001", "1000000"]),
        ({"resamples": 10**10}, ["resamples", "got 10000000000", "1000000"]),
        ({"set": ["engineer.²=1"]}, ["set", "engineer.²", "unknown key"]),
        ({"set": [f"stages.{'9' * 5000}=1"]}, ["set", "stages.999", "unknown key"]),
        (
            {"engineers": [{"name": "steady", "set": ["engineer.²=1"]}]},
            ["engineers.0.set", "engineer.²", "unknown key"],
        ),
        ({"confidence": 1.0}, ["confidence", "got 1.0", "less than 1"]),
        ({"slice_boards": 0}, ["slice_boards", "got 0"]),
        ({"set": "stages.rounds=1"}, ["set", "'stages.rounds=1'", "tuple"]),
        ({"set": ["stages.rounds=none"]}, ["set", "stages.rounds", "'none'"]),
        ({"set": ["stages"]}, ["set", "'stages'", "key.sub=value"]),
        ({"base": "nowhere.yaml"}, ["base", "nowhere.yaml", "can't be read"]),
        (
            {"engineers": [{"name": "steady", "set": ["stages.rounds=9"]}]},
            ["engineers.0.set", "'stages.rounds=9'", "engineer.*"],
        ),
        (
            {"engineers": [{"name": "steady", "set": ["engineer.kind=nobody"]}]},
            ["engineers.0.set", "engineer.kind", "'nobody'", "learnability"],
        ),
    ],
)
def test_a_bad_study_is_named_with_what_is_allowed(
    changes: dict[str, Any], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = write_study(tmp_path, **changes)
    assert main(["study", str(study), "--study-dir", str(tmp_path / "out"), "--dry-run"]) == 2
    error = capsys.readouterr().err
    for word in ["study_pair.yaml", *words]:
        assert word in error
    assert "Traceback" not in error


@pytest.mark.parametrize("text", ["", "- a", "{", "\x00"])
def test_what_is_no_study_file_is_named(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    assert main(["study", str(path), "--dry-run"]) == 2
    assert str(path) in capsys.readouterr().err


def test_the_shipped_study_compares_six_engineers_over_three_seeds() -> None:
    study = load_study(ROOT / "configs/study_miniature.yaml")
    names = ["fixed", "random", "failure_proportional", "learnability", "rule", "checkpoint"]
    assert [one.name for one in study.config.engineers] == names
    assert [(arm.engineer, arm.seed) for arm in study.arms][:7] == [
        *((name, 1) for name in names),
        ("fixed", 2),
    ]
    assert len(study.arms) == 18
    kinds = [study.run_of(arm, Path("p")).engineer.kind for arm in study.arms[:6]]
    assert kinds == names


def test_learnability_is_that_of_each_seed_by_itself() -> None:
    found = learnability(np.array([[True, True, False, False], [True, True, True, True]]))
    assert (found.mean, found.low, found.high) == (0.125, 0.0, 0.25)


def test_a_flow_keeps_every_answer() -> None:
    rng = np.random.default_rng(2)
    before, after = rng.integers(0, 4, (2, 3, 50))
    table = flow(before, after, 5)
    assert table.sum() == before.size
    assert table.sum(axis=1).tolist() == np.bincount(before.ravel(), minlength=5).tolist()
    assert table.sum(axis=0).tolist() == np.bincount(after.ravel(), minlength=5).tolist()


def test_a_study_without_a_finished_run_has_nothing_to_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_study(tmp_path)
    StudyDirectory(tmp_path / "out").claim(load_study(path))
    assert report_only(tmp_path) == 2
    assert "nothing to report" in capsys.readouterr().err


def test_a_claim_is_renewed_by_the_same_study_only(tmp_path: Path) -> None:
    directory = StudyDirectory(tmp_path / "out")
    study = load_study(write_study(tmp_path))
    assert [directory.claim(study), directory.claim(study)] == [False, True]
    with pytest.raises(UserError, match=r"seeds .*\[1, 2\] there, \[4\] here"):
        directory.claim(load_study(write_study(tmp_path, seeds=[4])))
