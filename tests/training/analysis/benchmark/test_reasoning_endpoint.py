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

REASONING = "Agent 0 goes first. Wait, agent 1: UP UP would fall. " * 200


def make_reply(content: str | None, finish_reason: str = "stop", **fields: Any) -> Reply:
    """Return a chat completion whose message has these further fields."""
    choice = {"message": {"role": "assistant", "content": content, **fields}}
    choice |= {"finish_reason": finish_reason}
    body = {"choices": [choice], "usage": {"completion_tokens": 30}}
    return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_rows(tmp_path / "boards", per_size=1)
    return tmp_path / "boards"


@pytest.fixture
def server(folder: Path, serve: Any) -> Server:
    """Serve three good answers to the first board, and four others."""
    row = next(iter(read_rows(folder).values()))
    ((_, solution),) = solve_lines([json.dumps({"id": 0, "grid": row["grid"]}).encode()])
    plan = "\n".join(f"Agent {k}: {' '.join(moves)}" for k, moves in enumerate(solution["plan"]))
    tool_call = {"id": "1", "type": "function", "function": {"name": "plan", "arguments": "{}"}}
    return serve(
        make_reply(plan, reasoning_content=REASONING),
        make_reply(f"<think>\n{REASONING}</think>\n<answer>\n{plan}\n</answer>"),
        make_reply(None, "tool_calls", tool_calls=[tool_call]),
        make_reply(plan[:9], "length", reasoning_content=REASONING),
        make_reply(None, "length", reasoning_content=REASONING),
        make_reply(f"**Thoughts.** {REASONING}\n\n{plan}"),
        make_reply("I can't solve this."),
    )


def evaluate(folder: Path, output: Path, server: Server, samples: int) -> int:
    command = ["evaluate", str(ROOT / "configs/miniature.yaml"), "--benchmark", str(folder)]
    command += ["--endpoint", server.url, "--name", "m", "--output", str(output)]
    command += ["--samples", str(samples), "--limit", "1", "--concurrency", "1"]
    return main([*command, "--set", "validation.temperature=0.6", "prompt.chat=true"])


def test_evaluate_counts_samples_of_a_reasoning_model(
    folder: Path, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    output = tmp_path / "out"
    assert evaluate(folder, output, server, 1) == 0
    assert evaluate(folder, output, server, 8) == 0
    assert len({body["seed"] for body in server.bodies}) == len(server.bodies) == 8
    answers = [json.loads(answer) for answer in (output / "answers.jsonl").read_text().splitlines()]
    assert [answer["sample"] for answer in answers] == list(range(8))
    assert [answer["sample"] for answer in answers if answer["reasoning"]] == [0, 3, 4]
    assert answers[0]["reasoning"] == REASONING
    assert [answer["sample"] for answer in answers if answer["truncated"]] == [3, 4]
    total = json.loads((output / "results.json").read_text())["total"]
    assert (total["count"], total["valid"], total["truncated"]) == (8, 3, 2)
    assert total["failures"]["parse_error"] == 5
    pass_rates = {k: interval[0] for k, interval in total["pass_at"].items()}
    expected = {"1": 3 / 8, "2": 1 - 10 / 28, "4": 1 - 5 / 70, "8": 1.0}
    assert pass_rates == pytest.approx(expected, abs=1e-6)
    assert all(low <= rate <= high for rate, low, high in total["pass_at"].values())
    stdout = capsys.readouterr().out
    assert "pass@8" in stdout
    assert "Cut off by the token limit: 2 of 8 answers." in stdout


def test_evaluate_with_fewer_samples_reads_the_first_ones(
    folder: Path, server: Server, tmp_path: Path
):
    assert evaluate(folder, tmp_path / "out", server, 8) == 0
    num_requests = len(server.bodies)
    assert evaluate(folder, tmp_path / "out", server, 2) == 0
    assert len(server.bodies) == num_requests
    results = json.loads((tmp_path / "out/results.json").read_text())
    assert (results["samples"], results["answered"], results["total"]["valid"]) == (2, 2, 2)


def test_evaluate_rejects_greedy_samples(folder: Path, tmp_path: Path, capsys):
    config = str(ROOT / "configs/miniature.yaml")
    command = ["evaluate", config, "--model", "jaxlake-base", "--samples", "8"]
    assert main([*command, "--set", "validation.temperature=0"]) == 2
    assert "--samples must be 1" in capsys.readouterr().err
