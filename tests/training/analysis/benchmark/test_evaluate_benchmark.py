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

from benchmarks.oracles import check
from benchmarks.oracles.boards import MOVES, read
from jaxlake.command_line.entry import main
from tests.paths import ROOT
from tests.training.analysis.benchmark.boards import read_rows, write_rows
from tests.training.analysis.benchmark.server import KEY, SETTINGS, ModelServer, serving

EACH = 6
MINIATURE = str(ROOT / "configs/miniature.yaml")
ACTIONS = {"WAIT": 0, "UP": 1, "DOWN": 2, "LEFT": 3, "RIGHT": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("boards")
    assert write_rows(path, each=EACH) == 4 * EACH
    return path


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with serving() as model:
        yield model


@pytest.fixture(autouse=True)
def _ready(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_KEY", KEY)
    server.reset()


def evaluate(folder: Path, output: Path, *more: str) -> int:
    command = ["evaluate", MINIATURE, "--benchmark", str(folder), "--output", str(output)]
    return main([*command, "--set", *SETTINGS, *more])


def ask(folder: Path, output: Path, server: ModelServer, *more: str) -> int:
    address = ["--endpoint", server.url, "--name", "base", "--api-key-env", "MODEL_KEY"]
    return evaluate(folder, output, *address, "--concurrency", "2", *more)


@pytest.fixture(scope="module")
def local(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All boards answered by the base model in this process."""
    output = tmp_path_factory.mktemp("local")
    assert evaluate(folder, output, "--model", "jaxlake-base") == 0
    return output


@pytest.fixture(scope="module")
def served(folder: Path, server: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All boards answered by the endpoint, without an interruption."""
    output = tmp_path_factory.mktemp("endpoint")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MODEL_KEY", KEY)
        assert ask(folder, output, server) == 0
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
    arrived: float = 0.0  # share of the agents that end at their goals


def judge_strictly(row: dict[str, Any], text: str) -> Verdict:
    """Judge an answer of the strictest form by the oracle's walk."""
    lines = text.strip().splitlines()
    matches = [re.fullmatch(r"Agent (\d): ((?:[A-Z]+ ?)+)", line.strip()) for line in lines]
    numbers = [int(match[1]) for match in matches if match]
    if None in matches or numbers != list(range(row["num_agents"])):
        return Verdict(failure="parse_error")
    moves = [[ACTIONS.get(word) for word in match[2].split()] for match in matches if match]
    if any(move is None for agent in moves for move in agent):
        return Verdict(failure="parse_error")
    steps = max(map(len, moves))
    plan = [[agent[t] if t < len(agent) else 0 for agent in moves] for t in range(steps)]
    outcome = check(row["grid"], plan)  # type: ignore[arg-type]
    if outcome.failure is not None:
        arrived = share_at_goals(row["grid"], plan[: outcome.time])
        return Verdict(failure=outcome.failure, arrived=arrived)
    cheapest, shortest = (getattr(outcome, key) == row[key] for key in ("sum_of_costs", "makespan"))
    return Verdict(True, cheapest, shortest, arrived=1.0)


def share_at_goals(grid: list[str], steps: list[list[Any]]) -> float:
    board = read(grid)
    cells = list(board.starts)
    for actions in steps:
        moves = [MOVES[action] for action in actions]
        cells = [(r + dr, c + dc) for (r, c), (dr, dc) in zip(cells, moves, strict=True)]
    return sum(map(tuple.__eq__, cells, board.goals)) / len(cells)


def wilson(k: int, n: int) -> tuple[float, float]:
    z = 1.959963984540054
    middle = (k + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * math.sqrt(k * (n - k) / n + z * z / 4)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def test_rates_follow_from_answers(folder: Path, local: Path, capsys: pytest.CaptureFixture[str]):
    assert evaluate(folder, local, "--model", "jaxlake-base") == 0  # nothing is left to be asked
    printed = capsys.readouterr().out
    assert f"{4 * EACH} of {4 * EACH} answers exist already" in printed
    rows, answers = read_rows(folder), read_answers(local)
    assert set(rows) == set(answers)
    results = json.loads((local / "results.json").read_text())
    verdicts = {key: judge_strictly(rows[key], answers[key]["text"]) for key in rows}
    assert sum(verdict.valid for verdict in verdicts.values()) >= 5
    assert len({verdict.failure for verdict in verdicts.values()}) >= 3
    assert len({verdict.arrived for verdict in verdicts.values()}) >= 3  # 0, 1 and 2 agents
    for cell in results["cells"]:
        cell_keys = [key for key in rows if rows[key]["size"] == cell["size"]]
        assert cell["count"] == len(cell_keys) == 2 * EACH
        assert cell["tokens"] == sum(answers[key]["tokens"] for key in cell_keys)
        for metric in ("valid", "optimal_sum_of_costs", "optimal_makespan"):
            count = sum(getattr(verdicts[key], metric) for key in cell_keys)
            assert cell[metric] == count, (cell["size"], metric)
            low, high = wilson(count, len(cell_keys))
            assert cell["intervals"][metric] == pytest.approx([low, high], abs=1e-6)
            rate = f"{100 * count / len(cell_keys):.1f} [{100 * low:.0f}, {100 * high:.0f}]"
            assert rate in printed
        individual = sum(verdicts[key].arrived for key in cell_keys) / len(cell_keys)
        assert cell["isr"] == pytest.approx(individual, abs=1e-6)
        assert f"{100 * individual:.1f}" in printed
        failures = (verdicts[key].failure for key in cell_keys)
        kinds = Counter(failure for failure in failures if failure)
        assert {kind: n for kind, n in cell["failures"].items() if n} == kinds
    for row in results["configurations"]:
        cell_keys = [key for key in rows if key[0] == row["config"]]
        assert row["valid"] == sum(verdicts[key].valid for key in cell_keys)
    assert results["total"]["valid"] == sum(verdict.valid for verdict in verdicts.values())


def test_policy_samples_differ_after_the_first(folder: Path, tmp_path: Path):
    output = tmp_path / "out"
    options = ["validation.temperature=1", "--sizes", "3", "--model", "jaxlake-base"]
    assert evaluate(folder, output, *options) == 0
    first = read_answers(output)
    assert evaluate(folder, output, *options, "--samples", "4") == 0
    lines = [json.loads(line) for line in (output / "answers.jsonl").read_text().splitlines()]
    assert lines[: len(first)] == list(first.values())
    assert {answer["sample"] for answer in lines} == {0, 1, 2, 3}
    texts: dict[str, set[str]] = {}
    for answer in lines:
        texts.setdefault(answer["sample_id"] + answer["config"], set()).add(answer["text"])
    assert sum(len(text) > 1 for text in texts.values()) >= 3
    results = json.loads((output / "results.json").read_text())
    assert (results["boards"], results["answered"]) == (2 * EACH, 8 * EACH)
    rates = [share for share, _, _ in results["total"]["pass_at"].values()]
    assert rates == sorted(rates)
    assert rates[0] == pytest.approx(results["total"]["valid"] / (8 * EACH), abs=1e-6)


def test_endpoint_gives_equal_answers(
    folder: Path, local: Path, server: ModelServer, tmp_path: Path
):
    server.busy = 1
    options = ["--request", "top_k=20", "stop=[END]", "--sizes", "3"]
    assert ask(folder, tmp_path / "out", server, *options) == 0
    endpoint_answers = read_answers(tmp_path / "out")
    expected = {key: answer for key, answer in read_answers(local).items() if "3x3" in key[1]}
    assert endpoint_answers.keys() == expected.keys()
    for key, answer in expected.items():
        for field in ("text", "tokens"):
            assert endpoint_answers[key][field] == answer[field]
    bodies = server.get_bodies("/v1/completions")
    for body in bodies:
        assert (body["model"], body["max_tokens"], body["temperature"]) == ("base", 40, 0)
        assert (body["top_k"], body["stop"]) == (20, ["END"])
    assert len(bodies) == len(server.calls) == 2 * EACH + 1
    assert server.keys == {f"Bearer {KEY}"}
    contents = b"".join(path.read_bytes() for path in (tmp_path / "out").iterdir())
    assert KEY.encode() not in contents


def test_interrupted_evaluation_resumes_to_equal_results(
    folder: Path,
    served: Path,
    server: ModelServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    parts, one_by_one = tmp_path / "parts", ["--concurrency", "1"]
    server.refuse_after = 7
    assert ask(folder, parts, server, *one_by_one) == 2
    error = capsys.readouterr().err
    assert "consecutive requests failed" in error
    assert "taken away" in error
    assert KEY not in error
    assert len(read_answers(parts)) == 7
    file = parts / "answers.jsonl"
    file.write_bytes(file.read_bytes()[:-9])  # as a kill in the middle of a line leaves it
    server.answered, server.refuse_after = 0, 2 * EACH - 2
    assert ask(folder, parts, server, *one_by_one, "--sizes", "4") == 1
    # A question that was under way when the command ended may have been answered later.
    assert re.search("[23] answers are missing", capsys.readouterr().out)
    server.answered, server.refuse_after = 0, None
    assert ask(folder, parts, server) == 0
    assert server.answered <= 4 * EACH - 6 - (2 * EACH - 3)
    assert (parts / "results.json").read_bytes() == (served / "results.json").read_bytes()


def test_resume_rejects_other_boards_prompts_or_models(
    folder: Path, local: Path, server: ModelServer, tmp_path: Path, capsys
):
    changed_folder = shutil.copytree(folder, tmp_path / "other")
    file = changed_folder / "benchmark_wr0.5.jsonl"
    file.write_text(file.read_text().replace('"2ag_3x3_hr0.2_000"', '"2ag_3x3_hr0.2_900"'))
    output = shutil.copytree(local, tmp_path / "out")
    assert evaluate(changed_folder, output, "--model", "jaxlake-base") == 2
    assert f"{file}: holds other boards" in capsys.readouterr().err
    assert evaluate(folder, output, "--model", "jaxlake-base", "--set", "prompt.max_tokens=41") == 2
    assert "prompt.max_tokens (40 there, 41 here)" in capsys.readouterr().err
    assert ask(folder, output, server) == 2
    assert re.search(r"model \('weights [0-9a-f]{8}' there, 'base' here\)", capsys.readouterr().err)


def test_options_select_boards(folder: Path, server: ModelServer, tmp_path: Path):
    output = tmp_path / "out"
    assert ask(folder, output, server, "--sizes", "3", "--limit", "4") == 0
    first = read_answers(output)
    assert {key[1][:7] for key in first} == {"2ag_3x3"}
    assert Counter(key[0] for key in first) == {"benchmark_wr0.25": 2, "benchmark_wr0.5": 2}
    assert ask(folder, output, server, "--agents", "2", "--limit", "6") == 0
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
    assert ask(folder, tmp_path / "out", server, *options) == 2
    assert message in capsys.readouterr().err
    assert not server.calls
