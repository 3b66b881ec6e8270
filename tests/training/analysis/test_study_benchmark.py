"""The paper's small study with a model of one million parameters, up to its tables."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from jaxlake.command_line.entry import main
from tests.paths import ROOT
from tests.training.analysis.benchmark.boards import read_rows, write_rows
from tests.training.analysis.studies import write_study
from training.analysis import METRIC_NAMES
from training.analysis.benchmark.boards import BenchmarkBoard
from training.analysis.benchmark.evaluate import comparable_results
from training.analysis.study.benchmark import FAILURE_KINDS, BenchmarkRun, compare, print_tables
from training.analysis.study.config import StudyRun, load_study
from training.run.directory import RunDirectory

SIZES = "{3: {data_ratio: 0.5, hole_ratio: 0.2, wait_ratio: 0.25}, 4: {data_ratio: 0.5, "
SIZES += "hole_ratio: 0.2, wait_ratio: 0.25}}"
SMALL_SETTINGS = [
    "model={pretrained: jaxlake-base}",
    f"environment.initial.sizes={SIZES}",
    "environment.bounds.sizes=[3, 4]",
    "environment.max_candidates=4000",
    "prompt.max_tokens=24",
    "reward.overlong_buffer=8",
    "sampling={engine: jax, max_model_len: 12000, max_num_seqs: 16}",
    "stages={count: 2, instances: 4}",
    "grpo.prompts_per_update=2",
    "grpo.completions=2",
    "grpo.minibatches=2",
    "grpo.micro_batch_size=2",
    "validation.sizes=[3, 4]",
    "validation.hole_ratios=[0.2]",
    "validation.wait_ratios=[0.25]",
    "validation.per_cell=4",
    "engineer.max_context_tokens=11000",
    "engineer.reasoning_tokens=16",
    "engineer.max_tokens=300",
]
ARMS = ("random_fixed", "random_checkpoint")
SEEDS = (1,)


def run_study_command(folder: Path, *options: str) -> int:
    selection = ["--engineers", ",".join(ARMS), "--seeds", ",".join(map(str, SEEDS))]
    benchmark = ["--benchmark", str(folder / "boards")]
    study_dir = ["--study-dir", str(folder / "out")]
    return main(["study", str(folder / "tiny.yaml"), *study_dir, *selection, *benchmark, *options])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study, finished, with the answers of its last policies to the boards."""
    path = tmp_path_factory.mktemp("paper")
    base = str(ROOT / "configs/study_paper_small.yaml")
    study = {"name": "tiny", "base": base, "set": SMALL_SETTINGS}
    (path / "tiny.yaml").write_text(yaml.safe_dump(study))
    write_rows(path / "boards", per_size=2, num_agents=3)
    assert run_study_command(path) == 0
    return path


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_paper_study_runs_to_its_tables(folder: Path, capsys: Any):
    first_stages = [
        RunDirectory(folder / "out/runs/random_checkpoint" / str(seed)).stage(1) for seed in SEEDS
    ]
    for stage in first_stages:
        assert [answer for answer in stage.answers.read() if answer.reasoning]
        assert not stage.answers.read()[0].cut
    rows = read_rows(folder / "boards")
    results = json.loads((folder / "out/benchmark/results.json").read_text())
    assert results["boards"] == len(rows)
    assert list(results["arms"]) == list(ARMS)
    for name, arm in results["arms"].items():
        seed_results = [
            json.loads((folder / f"out/benchmark/{name}/{seed}/results.json").read_text())
            for seed in SEEDS
        ]
        cell_keys = [(cell["num_agents"], cell["size"]) for cell in arm["cells"]]
        assert cell_keys == [(3, 3), (3, 4), (3, None), (None, None)]
        for index, cell in enumerate(arm["cells"][:2]):
            seed_cells = [result["cells"][index] for result in seed_results]
            assert cell["count"] == seed_cells[0]["count"]
            valid_rate = np.mean([row["valid"] / row["count"] for row in seed_cells])
            assert cell["rates"]["valid"]["value"] == pytest.approx(valid_rate)
            failure_counts = [row["failures"] for row in seed_cells]
            for kind, keys in FAILURE_KINDS.items():
                num_failures = sum(row.get(key, 0) for row in failure_counts for key in keys)
                share = num_failures / (len(SEEDS) * cell["count"])
                assert cell["failures"][kind] == pytest.approx(share)
            total = sum(cell["failures"].values()) + cell["rates"]["valid"]["value"]
            assert total == pytest.approx(1.0)
    assert results["arms"]["random_fixed"]["cells"][0]["difference"] is None
    assert results["arms"]["random_checkpoint"]["cells"][0]["difference"]["valid"]
    capsys.readouterr()
    assert run_study_command(folder, "--report-only") == 0
    stdout = capsys.readouterr().out
    for words in ("published: Qwen3-4B + GRPO + Ours", "3x3", "minus random_fixed", *FAILURE_KINDS):
        assert words in stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_study_benchmark_names_missing_files(folder: Path, capsys: Any):
    answers_file = folder / "out/benchmark/random_fixed/1/answers.jsonl"
    content = answers_file.read_bytes()
    untouched_file = folder / "out/benchmark/random_checkpoint/1/answers.jsonl"
    modification_time = untouched_file.stat().st_mtime_ns
    answers_file.write_bytes(b"".join(content.splitlines(keepends=True)[:-3]))
    assert run_study_command(folder, "--report-only") == 0
    assert "Runs without answers: random_fixed, seed 1." in capsys.readouterr().out
    assert run_study_command(folder) == 0
    assert sorted(answers_file.read_bytes().splitlines()) == sorted(content.splitlines())
    assert untouched_file.stat().st_mtime_ns == modification_time


def test_compare_pairs_answers_of_equal_seeds(tmp_path: Path, capsys: Any):
    engineers = [{"name": name} for name in ("steady", "lively", "late")]
    engineers[2]["against"] = "lively"
    study = load_study(write_study(tmp_path, engineers=engineers))
    boards = [BenchmarkBoard("", str(n), 3 + n % 2, 5 + n % 3, (), None) for n in range(60)]
    rng = np.random.default_rng(0)
    answers = {(name["name"], seed): rng.random(60) < 0.4 for name in engineers for seed in (1, 2)}
    del answers["late", 2]
    runs = [
        BenchmarkRun(
            StudyRun(*key),
            dict.fromkeys(METRIC_NAMES, valid),
            np.where(valid, -1, rng.integers(len(FAILURE_KINDS), size=60)),
        )
        for key, valid in answers.items()
    ]
    results = compare(study, boards, runs, comparable_results(boards))
    agent_counts = np.array([board.num_agents for board in boards])
    for name, reference in (("steady", None), ("lively", "steady"), ("late", "lively")):
        arm = results["arms"][name]
        assert arm["against"] == reference
        for cell in arm["cells"]:
            selection = [
                index
                for index, board in enumerate(boards)
                if cell["num_agents"] in (None, board.num_agents)
                and cell["size"] in (None, board.size)
            ]
            rates = [answers[name, seed][selection].mean() for seed in arm["seeds"]]
            assert cell["count"] == len(selection)
            assert cell["rates"]["valid"]["value"] == pytest.approx(np.mean(rates))
            if reference is None:
                assert cell["difference"] is None
                continue
            reference_rates = [answers[reference, seed][selection].mean() for seed in arm["seeds"]]
            difference = cell["difference"]["valid"]
            assert difference["value"] == pytest.approx(np.mean(rates) - np.mean(reference_rates))
            assert (difference["over_seeds"]["low"] is None) == (len(arm["seeds"]) == 1)
    print_tables(results)
    stdout = capsys.readouterr().out
    for count in (3, 4):
        rate = np.mean([answers["steady", seed][agent_counts == count].mean() for seed in (1, 2)])
        assert f"{100 * rate:.1f}" in stdout
    assert "published: Qwen3-4B (base)" in stdout
    assert "minus lively" in stdout
