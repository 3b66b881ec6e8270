"""The environment for verifiers, run by the commands that `make test-verifiers` installs."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxlake.language.rewards import score
from tests.paths import ROOT

COMMANDS = ROOT / ".venv-verifiers/bin"
BOARDS = {"count": 8, "size": 3, "wait_ratio": 0}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not COMMANDS.exists(), reason="make test-verifiers was not run"),
]


def run_command(command: str, prefix: str, *arguments: str) -> str:
    """Run a command of verifiers on 3x3 boards without required waits; return its output."""
    boards = [f"--{prefix}.{name.replace('_', '-')}={value}" for name, value in BOARDS.items()]
    path = os.pathsep.join([str(ROOT / ".venv/bin"), os.environ["PATH"]])  # uv is there
    process = subprocess.run(
        [COMMANDS / command, "frozen-lakes", *boards, *arguments, "--no-rich"],
        env={**os.environ, "PYTHONPATH": "", "PATH": path, "NO_KEY": "none"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-2000:]
    return process.stdout


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Serve the base model and return its address."""
    server = subprocess.Popen(
        [sys.executable, ROOT / "tests/examples/chat_endpoint.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def test_optimal_plans_earn_1_and_empty_answers_0(tmp_path: Path) -> None:
    options = ["--runtime.type", "subprocess", "-o", str(tmp_path)]
    run_command("vf-validate", "taskset", *options)
    (summary,) = tmp_path.glob("*/summary.json")
    checks = json.loads(summary.read_text())["checks"]
    for check in ("gold", "noop"):
        assert checks[check]["valid"] == BOARDS["count"]


def test_rollout_rewards_score_the_last_message(endpoint: str, tmp_path: Path) -> None:
    run_command(
        "vf-eval",
        "env.taskset",
        "--env.taskset.prompt=compact",
        *("--env.agent.harness.id", "null"),
        *("--env.agent.runtime.type", "subprocess"),
        "--model=base",
        *("--client.base-url", endpoint),
        *("--client.api-key-var", "NO_KEY"),
        "--no-push",
        f"--output-dir={tmp_path}",
    )
    (file,) = tmp_path.glob("*/traces.jsonl")
    traces = [json.loads(line)["traces"][0] for line in file.read_text().splitlines()]
    assert len(traces) == BOARDS["count"]
    rewards = []
    for trace in traces:
        assert trace["ok"], trace["errors"]
        board, reply = trace["task"]["data"], trace["nodes"][-1]["message"]["content"]
        expected = score(reply, board["grid"], board["sum_of_costs"])
        assert trace["rewards"]["lake_reward"]["score"] == expected.reward
        for name in ("parsed", "valid", "optimal"):
            assert trace["metrics"][name] == getattr(expected, name)
        rewards.append(expected.reward)
    assert max(rewards) == 1.0, "the base model solves some boards of this size"
