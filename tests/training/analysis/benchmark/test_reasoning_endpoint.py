"""A server whose model reasons, calls tools and runs out of tokens, on the benchmark."""

import json
from pathlib import Path
from typing import Any

import pytest

from jaxlake.command_line.board_records import solve_lines
from jaxlake.command_line.entry import main
from tests.engineer.engineers.conftest import Reply, Server
from tests.engineer.engineers.conftest import serve as serve
from tests.paths import ROOT
from tests.training.analysis.benchmark.boards import read_rows, write_rows

THOUGHT = "Agent 0 goes first. Wait, agent 1: UP UP would fall. " * 200


def reply(content: str | None, finish: str = "stop", **message: Any) -> Reply:
    """Return a chat completion whose message has these further fields."""
    choice = {"message": {"role": "assistant", "content": content, **message}}
    choice |= {"finish_reason": finish}
    body = {"choices": [choice], "usage": {"completion_tokens": 30}}
    return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()


@pytest.fixture
def boards(tmp_path: Path) -> Path:
    write_rows(tmp_path / "boards", each=1)
    return tmp_path / "boards"


@pytest.fixture
def server(boards: Path, serve: Any) -> Server:
    """Serve three good answers to the first board, and four others."""
    row = next(iter(read_rows(boards).values()))
    ((_, solved),) = solve_lines([json.dumps({"id": 0, "grid": row["grid"]}).encode()])
    plan = "\n".join(f"Agent {k}: {' '.join(moves)}" for k, moves in enumerate(solved["plan"]))
    tool = {"id": "1", "type": "function", "function": {"name": "plan", "arguments": "{}"}}
    return serve(
        reply(plan, reasoning_content=THOUGHT),
        reply(f"<think>\n{THOUGHT}</think>\n<answer>\n{plan}\n</answer>"),
        reply(None, "tool_calls", tool_calls=[tool]),
        reply(plan[:9], "length", reasoning_content=THOUGHT),
        reply(None, "length", reasoning_content=THOUGHT),
        reply(f"**Thoughts.** {THOUGHT}\n\n{plan}"),
        reply("I can't solve this."),
    )


def evaluate(boards: Path, output: Path, server: Server, samples: int) -> int:
    command = ["evaluate", str(ROOT / "configs/miniature.yaml"), "--benchmark", str(boards)]
    command += ["--endpoint", server.url, "--name", "m", "--output", str(output)]
    command += ["--samples", str(samples), "--limit", "1", "--concurrency", "1"]
    return main([*command, "--set", "validation.temperature=0.6", "prompt.chat=true"])


def test_evaluate_counts_samples_of_a_reasoning_model(
    boards: Path, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    output = tmp_path / "out"
    assert evaluate(boards, output, server, 1) == 0
    assert evaluate(boards, output, server, 8) == 0
    assert len({body["seed"] for body in server.bodies}) == len(server.bodies) == 8
    lines = [json.loads(line) for line in (output / "answers.jsonl").read_text().splitlines()]
    assert [line["sample"] for line in lines] == list(range(8))
    assert [line["sample"] for line in lines if line["reasoning"]] == [0, 3, 4]
    assert lines[0]["reasoning"] == THOUGHT
    assert [line["sample"] for line in lines if line["truncated"]] == [3, 4]
    total = json.loads((output / "results.json").read_text())["total"]
    assert (total["count"], total["valid"], total["truncated"]) == (8, 3, 2)
    assert total["failures"]["parse_error"] == 5
    shares = {k: values[0] for k, values in total["pass_at"].items()}
    expected = {"1": 3 / 8, "2": 1 - 10 / 28, "4": 1 - 5 / 70, "8": 1.0}
    assert shares == pytest.approx(expected, abs=1e-6)
    assert all(low <= share <= high for share, low, high in total["pass_at"].values())
    printed = capsys.readouterr().out
    assert "pass@8" in printed
    assert "Cut off by the token limit: 2 of 8 answers." in printed


def test_evaluate_with_fewer_samples_reads_the_first_ones(
    boards: Path, server: Server, tmp_path: Path
):
    assert evaluate(boards, tmp_path / "out", server, 8) == 0
    request_count = len(server.bodies)
    assert evaluate(boards, tmp_path / "out", server, 2) == 0
    assert len(server.bodies) == request_count
    results = json.loads((tmp_path / "out/results.json").read_text())
    assert (results["samples"], results["answered"], results["total"]["valid"]) == (2, 2, 2)


def test_evaluate_rejects_greedy_samples(boards: Path, tmp_path: Path, capsys):
    config = str(ROOT / "configs/miniature.yaml")
    command = ["evaluate", config, "--model", "jaxlake-base", "--samples", "8"]
    assert main([*command, "--set", "validation.temperature=0"]) == 2
    assert "--samples must be 1" in capsys.readouterr().err
