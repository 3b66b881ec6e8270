"""Judging and tables without a model: hand-made answers next to published numbers."""

import json
import random
from pathlib import Path

import pytest

from benchmarks.oracles import least_makespan, least_sum_of_costs, random_grid
from tests.paths import ROOT
from training.analysis.benchmark import evaluate
from training.analysis.benchmark.answering import BenchmarkAnswer
from training.analysis.benchmark.boards import BenchmarkBoard, read_folder
from training.analysis.benchmark.evaluate import comparable_results
from training.analysis.benchmark.results import judge, print_rates, results_json
from training.errors import UserError
from training.schema import load

PUBLISHED_ROWS = ROOT / "tests/jaxlake/datasets/data/published_rows.jsonl"
CONFIG = load(ROOT / "configs/miniature.yaml", ["prompt.max_steps=16"])


def make_board(
    grid: list[str], agents: int, optimum: tuple[int, int] | None, name: str
) -> BenchmarkBoard:
    return BenchmarkBoard("benchmark_wr0.25", name, agents, len(grid), tuple(grid), optimum)


def make_answer(text: str) -> dict[int, BenchmarkAnswer]:
    return {0: BenchmarkAnswer(config="", sample_id="", text=text, tokens=1)}


def test_answers_are_scored_on_their_own_board():
    two_agent_grid = ["S F G", "F F F", "s F g"]
    three_agent_grid = ["S G F", "s g F", "A a F"]
    boards = [
        make_board(three_agent_grid, 3, (3, 1), "three"),
        make_board(two_agent_grid, 2, (4, 2), "two"),
        make_board(two_agent_grid, 2, None, "unknown"),
        make_board(two_agent_grid, 2, (4, 2), "slow"),
        make_board(two_agent_grid, 2, (4, 2), "no answer"),
        make_board(two_agent_grid, 2, (4, 2), "wrong"),
        make_board(two_agent_grid, 2, (4, 2), "half"),
    ]
    straight_plans = "Agent 0: RIGHT RIGHT\nAgent 1: RIGHT RIGHT"
    texts = {
        "three": "Agent 0: RIGHT\nAgent 1: RIGHT\nAgent 2: RIGHT",
        "two": straight_plans,
        "unknown": straight_plans,
        "slow": "Agent 0: RIGHT RIGHT\nAgent 1: WAIT RIGHT RIGHT",
        "wrong": "Agent 0: UP\nAgent 1: RIGHT RIGHT",
        "half": "Agent 0: RIGHT\nAgent 1: RIGHT RIGHT",
    }
    answers = {("benchmark_wr0.25", name): make_answer(text) for name, text in texts.items()}
    verdicts = judge(CONFIG, boards, answers)
    assert [
        (
            verdict.board.sample_id,
            verdict.episode.valid,
            *verdict.episode.scores.values(),
            verdict.episode.lake and verdict.episode.lake.arrived,
        )
        for verdict in verdicts
    ] == [
        ("three", True, True, True, 1.0),
        ("two", True, True, True, 1.0),
        ("unknown", True, False, False, 1.0),
        ("slow", True, False, False, 1.0),
        ("wrong", False, False, False, 0.0),
        ("half", False, False, False, 0.5),
    ]
    failures = [verdict.episode.failure for verdict in verdicts]
    assert failures == [None] * 4 + ["off_board", "goal_not_reached"]
    results = results_json("m", boards, verdicts, ())
    assert (results["boards"], results["answered"], results["without_known_optimum"]) == (7, 6, 1)
    assert [(row["num_agents"], row["isr"]) for row in results["aggregates"]] == [(2, 0.7), (3, 1)]
    assert (results["total"]["isr"], results["total"]["valid"]) == (0.75, 4)


@pytest.fixture
def five_agent_folder(tmp_path: Path) -> Path:
    """Boards of five agents on every size of the benchmark; their optima are made up."""
    rng, lines = random.Random(3), []
    for size in range(5, 11):
        grid = random_grid(rng, size, 0.1, 5)
        row = {"sample_id": f"5ag_{size}x{size}_hr0.1_000", "num_agents": 5, "grid": grid}
        lines.append(json.dumps(row | {"sum_of_costs": 9, "makespan": 4}))
    (tmp_path / "benchmark_wr0.5.jsonl").write_text("\n".join(lines))
    return tmp_path


def test_print_rates_shows_published_numbers(
    five_agent_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(evaluate, "COMPARED_MODELS", ("Kimi-K2.5", "Qwen3-4B (base)"))
    boards = read_folder(five_agent_folder).boards
    answers = {board.key: make_answer("?") for board in boards}
    published_results = comparable_results(boards)
    verdicts = judge(CONFIG, boards, answers)
    print_rates(verdicts, published_results)
    stdout = capsys.readouterr().out
    valid_table = stdout.partition("Optimal")[0]
    assert any("23.33" in line for line in valid_table.splitlines() if "5, 5x5" in line)
    assert any("13.47*" in line for line in valid_table.splitlines() if "5, all" in line)
    assert "* misprinted" in stdout
    assert "parse_error 6" in stdout
    results = results_json("m", boards, verdicts, published_results)
    (aggregate,) = results["aggregates"]
    expected = {"valid": 13.47, "optimal": 8.78, "misprinted": ["valid"]}
    assert aggregate["published"]["Kimi-K2.5"] == expected
    # Without all of its sizes a published aggregate is of other boards.
    subset_results = comparable_results(boards[:3])
    assert all(result.size is not None for result in subset_results if result.num_agents == 5)


def test_invalid_benchmark_folders_are_rejected(tmp_path: Path, five_agent_folder: Path):
    empty_folder = tmp_path / "empty"
    empty_folder.mkdir()
    with pytest.raises(UserError, match=r"or a folder with \.jsonl"):
        read_folder(empty_folder)
    board_file = five_agent_folder / "benchmark_wr0.5.jsonl"
    board_file.write_text(board_file.read_text() + "\n" + board_file.read_text().splitlines()[0])
    with pytest.raises(UserError, match=r"benchmark_wr0.5/5ag_5x5_hr0.1_000 occurs twice"):
        read_folder(five_agent_folder)
    board_file.write_text('{"sample_id": "x"}')
    with pytest.raises(UserError, match=r"benchmark_wr0.5.jsonl:1: num_agents: missing"):
        read_folder(five_agent_folder)


@pytest.mark.slow
def test_published_rows_without_optimum_are_solved(tmp_path: Path):
    (tmp_path / "benchmark_wr0.25").mkdir()
    (tmp_path / "benchmark_wr0.25/rows.jsonl").write_text(PUBLISHED_ROWS.read_text())
    folder = read_folder(tmp_path)
    assert len(folder.boards) == 4
    assert {board.config for board in folder.boards} == {"benchmark_wr0.25"}
    for board in folder.boards:
        solution, makespan = least_sum_of_costs(list(board.grid)), least_makespan(list(board.grid))
        assert solution is not None
        assert board.optimum == (solution[0], makespan)
