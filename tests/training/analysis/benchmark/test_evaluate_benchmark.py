"""The benchmark is answered, also in pieces, and its tables follow from the answers."""

import json
import math
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.oracles import check_plan
from benchmarks.oracles.boards import MOVES, parse_board
from jaxlake.command_line.entry import main
from tests.paths import ROOT
from tests.training.analysis.benchmark.boards import read_rows, write_rows
from tests.training.analysis.benchmark.server import API_KEY, SETTINGS, ModelServer, serve_model

PER_SIZE = 6
MINIATURE = str(ROOT / "configs/miniature.yaml")
ACTIONS = {"WAIT": 0, "UP": 1, "DOWN": 2, "LEFT": 3, "RIGHT": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("boards")
    assert write_rows(path, per_size=PER_SIZE) == 4 * PER_SIZE
    return path


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with serve_model() as server:
        yield server


@pytest.fixture(autouse=True)
def _reset_server(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_KEY", API_KEY)
    server.reset()


def evaluate(folder: Path, output: Path, *options: str) -> int:
    command = ["evaluate", MINIATURE, "--benchmark", str(folder), "--output", str(output)]
    return main([*command, "--set", *SETTINGS, *options])


def evaluate_endpoint(folder: Path, output: Path, server: ModelServer, *options: str) -> int:
    endpoint = ["--endpoint", server.url, "--name", "base", "--api-key-env", "MODEL_KEY"]
    return evaluate(folder, output, *endpoint, "--concurrency", "2", *options)


@pytest.fixture(scope="module")
def local_dir(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All boards answered by the base model in this process."""
    output = tmp_path_factory.mktemp("local")
    assert evaluate(folder, output, "--model", "jaxlake-base") == 0
    return output


@pytest.fixture(scope="module")
def server_dir(folder: Path, server: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All boards answered by the endpoint, without an interruption."""
    output = tmp_path_factory.mktemp("endpoint")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MODEL_KEY", API_KEY)
        assert evaluate_endpoint(folder, output, server) == 0
    return output


def read_answers(output: Path) -> dict[tuple[str, str], dict[str, Any]]:
    lines = (output / "answers.jsonl").read_bytes().decode().splitlines()
    answers = [json.loads(line) for line in lines]
    answers_by_board = {(answer["config"], answer["sample_id"]): answer for answer in answers}
    assert len(answers_by_board) == len(answers)
    return answers_by_board


class Verdict(NamedTuple):
    valid: bool = False
    optimal_sum_of_costs: bool = False
    optimal_makespan: bool = False
    failure: str | None = None
    isr: float = 0.0  # individual success rate: share of agents that end at their goals


def judge_strictly(row: dict[str, Any], text: str) -> Verdict:
    """Judge an answer of the strictest form by the oracle's walk."""
    lines = text.strip().splitlines()
    matches = [re.fullmatch(r"Agent (\d): ((?:[A-Z]+ ?)+)", line.strip()) for line in lines]
    agents = [int(match[1]) for match in matches if match]
    if None in matches or agents != list(range(row["num_agents"])):
        return Verdict(failure="parse_error")
    moves = [[ACTIONS.get(word) for word in match[2].split()] for match in matches if match]
    if any(move is None for actions in moves for move in actions):
        return Verdict(failure="parse_error")
    num_steps = max(map(len, moves))
    plan = [[actions[t] if t < len(actions) else 0 for actions in moves] for t in range(num_steps)]
    outcome = check_plan(row["grid"], plan)  # type: ignore[arg-type]
    if outcome.failure is not None:
        isr = compute_isr(row["grid"], plan[: outcome.time])
        return Verdict(failure=outcome.failure, isr=isr)
    is_optimal = [getattr(outcome, key) == row[key] for key in ("sum_of_costs", "makespan")]
    return Verdict(True, *is_optimal, isr=1.0)


def compute_isr(grid: list[str], steps: list[list[Any]]) -> float:
    board = parse_board(grid)
    cells = list(board.starts)
    for actions in steps:
        moves = [MOVES[action] for action in actions]
        cells = [(r + dr, c + dc) for (r, c), (dr, dc) in zip(cells, moves, strict=True)]
    return sum(map(tuple.__eq__, cells, board.goals)) / len(cells)


def compute_wilson_interval(successes: int, count: int) -> tuple[float, float]:
    z = 1.959963984540054
    center = (successes + z * z / 2) / (count + z * z)
    radius = z / (count + z * z) * math.sqrt(successes * (count - successes) / count + z * z / 4)
    return max(center - radius, 0.0), min(center + radius, 1.0)


def test_rates_follow_from_answers(folder: Path, local_dir: Path, capsys: Any):
    assert evaluate(folder, local_dir, "--model", "jaxlake-base") == 0  # nothing is left to ask
    stdout = capsys.readouterr().out
    assert f"{4 * PER_SIZE} of {4 * PER_SIZE} answers exist already" in stdout
    rows, answers = read_rows(folder), read_answers(local_dir)
    assert set(rows) == set(answers)
    results = json.loads((local_dir / "results.json").read_text())
    verdicts = {key: judge_strictly(rows[key], answers[key]["text"]) for key in rows}
    assert sum(verdict.valid for verdict in verdicts.values()) >= 5
    assert len({verdict.failure for verdict in verdicts.values()}) >= 3
    assert len({verdict.isr for verdict in verdicts.values()}) >= 3  # 0, 1 and 2 agents
    for cell in results["cells"]:
        cell_keys = [key for key in rows if rows[key]["size"] == cell["size"]]
        assert cell["count"] == len(cell_keys) == 2 * PER_SIZE
        assert cell["tokens"] == sum(answers[key]["tokens"] for key in cell_keys)
        for metric in ("valid", "optimal_sum_of_costs", "optimal_makespan"):
            count = sum(getattr(verdicts[key], metric) for key in cell_keys)
            assert cell[metric] == count, (cell["size"], metric)
            low, high = compute_wilson_interval(count, len(cell_keys))
            assert cell["intervals"][metric] == pytest.approx([low, high], abs=1e-6)
            rate = f"{100 * count / len(cell_keys):.1f} [{100 * low:.0f}, {100 * high:.0f}]"
            assert rate in stdout
        isr = sum(verdicts[key].isr for key in cell_keys) / len(cell_keys)
        assert cell["isr"] == pytest.approx(isr, abs=1e-6)
        assert f"{100 * isr:.1f}" in stdout
        failures = (verdicts[key].failure for key in cell_keys)
        failure_counts = Counter(failure for failure in failures if failure)
        assert {kind: n for kind, n in cell["failures"].items() if n} == failure_counts
    for row in results["configurations"]:
        cell_keys = [key for key in rows if key[0] == row["config"]]
        assert row["valid"] == sum(verdicts[key].valid for key in cell_keys)
    assert results["total"]["valid"] == sum(verdict.valid for verdict in verdicts.values())


def test_policy_samples_differ_after_the_first(folder: Path, tmp_path: Path):
    output = tmp_path / "out"
    options = ["validation.temperature=1", "--sizes", "3", "--model", "jaxlake-base"]
    assert evaluate(folder, output, *options) == 0
    first_answers = read_answers(output)
    assert evaluate(folder, output, *options, "--samples", "4") == 0
    answers = [json.loads(line) for line in (output / "answers.jsonl").read_text().splitlines()]
    assert answers[: len(first_answers)] == list(first_answers.values())
    assert {answer["sample"] for answer in answers} == {0, 1, 2, 3}
    texts_by_board: dict[str, set[str]] = {}
    for answer in answers:
        texts_by_board.setdefault(answer["sample_id"] + answer["config"], set()).add(answer["text"])
    assert sum(len(board_texts) > 1 for board_texts in texts_by_board.values()) >= 3
    results = json.loads((output / "results.json").read_text())
    assert (results["boards"], results["answered"]) == (2 * PER_SIZE, 8 * PER_SIZE)
    pass_rates = [rate for rate, _, _ in results["total"]["pass_at"].values()]
    assert pass_rates == sorted(pass_rates)
    assert pass_rates[0] == pytest.approx(results["total"]["valid"] / (8 * PER_SIZE), abs=1e-6)


def test_endpoint_gives_equal_answers(
    folder: Path, local_dir: Path, server: ModelServer, tmp_path: Path
):
    server.num_busy = 1
    options = ["--request", "top_k=20", "stop=[END]", "--sizes", "3"]
    assert evaluate_endpoint(folder, tmp_path / "out", server, *options) == 0
    endpoint_answers = read_answers(tmp_path / "out")
    expected = {key: answer for key, answer in read_answers(local_dir).items() if "3x3" in key[1]}
    assert endpoint_answers.keys() == expected.keys()
    for key, answer in expected.items():
        for field in ("text", "tokens"):
            assert endpoint_answers[key][field] == answer[field]
    bodies = server.get_bodies("/v1/completions")
    for body in bodies:
        assert (body["model"], body["max_tokens"], body["temperature"]) == ("base", 40, 0)
        assert (body["top_k"], body["stop"]) == (20, ["END"])
    assert len(bodies) == len(server.calls) == 2 * PER_SIZE + 1
    assert server.authorizations == {f"Bearer {API_KEY}"}
    contents = b"".join(path.read_bytes() for path in (tmp_path / "out").iterdir())
    assert API_KEY.encode() not in contents


def test_interrupted_evaluation_resumes_to_equal_results(
    folder: Path,
    server_dir: Path,
    server: ModelServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    output, sequential = tmp_path / "parts", ["--concurrency", "1"]
    server.max_served = 7
    assert evaluate_endpoint(folder, output, server, *sequential) == 2
    error = capsys.readouterr().err
    assert "consecutive requests failed" in error
    assert "taken away" in error
    assert API_KEY not in error
    assert len(read_answers(output)) == 7
    answers_file = output / "answers.jsonl"
    answers_file.write_bytes(answers_file.read_bytes()[:-9])  # as a kill within a line does
    server.num_served, server.max_served = 0, 2 * PER_SIZE - 2
    assert evaluate_endpoint(folder, output, server, *sequential, "--sizes", "4") == 1
    # A question that was under way when the command ended may have been answered later.
    assert re.search("[23] answers are missing", capsys.readouterr().out)
    server.num_served, server.max_served = 0, None
    assert evaluate_endpoint(folder, output, server) == 0
    assert server.num_served <= 4 * PER_SIZE - 6 - (2 * PER_SIZE - 3)
    assert (output / "results.json").read_bytes() == (server_dir / "results.json").read_bytes()


def test_resume_rejects_other_boards_prompts_or_models(
    folder: Path, local_dir: Path, server: ModelServer, tmp_path: Path, capsys
):
    changed_folder = shutil.copytree(folder, tmp_path / "other")
    path = changed_folder / "benchmark_wr0.5.jsonl"
    path.write_text(path.read_text().replace('"2ag_3x3_hr0.2_000"', '"2ag_3x3_hr0.2_900"'))
    output = shutil.copytree(local_dir, tmp_path / "out")
    assert evaluate(changed_folder, output, "--model", "jaxlake-base") == 2
    assert f"{path}: holds other boards" in capsys.readouterr().err
    assert evaluate(folder, output, "--model", "jaxlake-base", "--set", "prompt.max_tokens=41") == 2
    assert "prompt.max_tokens (40 there, 41 here)" in capsys.readouterr().err
    assert evaluate_endpoint(folder, output, server) == 2
    assert re.search(r"model \('weights [0-9a-f]{8}' there, 'base' here\)", capsys.readouterr().err)


def test_options_select_boards(folder: Path, server: ModelServer, tmp_path: Path):
    output = tmp_path / "out"
    assert evaluate_endpoint(folder, output, server, "--sizes", "3", "--limit", "4") == 0
    answers = read_answers(output)
    assert {key[1][:7] for key in answers} == {"2ag_3x3"}
    assert Counter(key[0] for key in answers) == {"benchmark_wr0.25": 2, "benchmark_wr0.5": 2}
    assert evaluate_endpoint(folder, output, server, "--agents", "2", "--limit", "6") == 0
    results = json.loads((output / "results.json").read_text())
    assert (results["boards"], results["answered"]) == (6, 6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sizes", "9"], "--sizes must be among 3, 4, got 9"),
        (["--agents", "5"], "--agents must be among 2, got 5"),
        (["--request", "seed=1"], "--request must not contain seed"),
        (["--request", "seed"], "--request is 'seed'; it must be KEY=VALUE"),
        (["--request", "x=.nan"], "--request is 'x=.nan'; it must be KEY=VALUE"),
        (["--request", "x=2024-01-01"], "--request is 'x=2024-01-01'; it must be KEY=VALUE"),
        (["--request", "x=1", "x=2"], "--request sets x twice; it must be set once"),
        (["--api-key-env", "sk-123"], "--api-key-env: must be the name"),
        (["--endpoint", "http://u:p@h/v1"], "--endpoint: must not contain a user or password"),
        (["--output", str(ROOT / "README.md")], "got the file"),
        (["--benchmark", "nowhere"], "--benchmark must be a folder, got nowhere"),
    ],
)
def test_invalid_options_are_named(
    folder: Path, server: ModelServer, tmp_path: Path, capsys, options: list[str], message: str
):
    assert evaluate_endpoint(folder, tmp_path / "out", server, *options) == 2
    assert message in capsys.readouterr().err
    assert not server.calls
