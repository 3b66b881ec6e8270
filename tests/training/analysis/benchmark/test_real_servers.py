"""An evaluation that is killed goes on, and vLLM's own server gives what its model gives."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jaxlake.command_line.entry import main
from tests.paths import ROOT
from tests.training.analysis.benchmark.boards import write_rows
from tests.training.analysis.benchmark.server import KEY, SETTINGS, serving
from training.policy.huggingface import resolve
from training.sampling.model_server import ModelServer
from training.schema import load

MINIATURE = str(ROOT / "configs/miniature.yaml")


def command(folder: Path, output: Path, *more: str) -> list[str]:
    where = ["--benchmark", str(folder), "--output", str(output)]
    return ["evaluate", MINIATURE, *where, *more, "--set", *SETTINGS]


def lines_of(output: Path) -> list[bytes]:
    file = output / "answers.jsonl"
    return file.read_bytes().splitlines() if file.exists() else []


@pytest.mark.slow
def test_an_evaluation_that_was_killed_ends_with_the_results_of_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder, whole, killed = tmp_path / "boards", tmp_path / "whole", tmp_path / "killed"
    count = write_rows(folder, each=10)
    monkeypatch.setenv("MODEL_KEY", KEY)
    with serving() as server:
        address = ["--endpoint", server.url, "--name", "base", "--api-key-env", "MODEL_KEY"]
        arguments = [sys.executable, "-m", "jaxlake", *command(folder, killed, *address)]
        server.refuse_after = 12  # so that the process is killed before it is done
        process = subprocess.Popen(arguments, cwd=ROOT, env={**os.environ, "MODEL_KEY": KEY})
        try:
            while len(lines_of(killed)) < 5:
                assert process.poll() is None
                time.sleep(0.01)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert 5 <= len(lines_of(killed)) <= 12
        server.refuse_after = None
        assert main(command(folder, killed, *address)) == 0
        assert main(command(folder, whole, *address)) == 0
    assert (killed / "results.json").read_bytes() == (whole / "results.json").read_bytes()
    assert json.loads((whole / "results.json").read_text())["answered"] == count


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.vllm
def test_a_vllm_server_gives_the_answers_of_the_model_in_this_process(tmp_path: Path):
    folder, local, served = tmp_path / "boards", tmp_path / "local", tmp_path / "served"
    write_rows(folder, each=6)
    assert main(command(folder, local, "--model", "jaxlake-base")) == 0
    settings = load(Path(MINIATURE)).sampling
    server = ModelServer("jaxlake-base", settings)
    try:
        address = ["--endpoint", f"{server._process.address}/v1"]
        address += ["--name", str(resolve("jaxlake-base"))]
        request = ["--request", "add_special_tokens=false"]
        assert main(command(folder, served, *address, *request)) == 0
    finally:
        server.close()

    def texts(output: Path) -> dict[tuple[str, str], str]:
        answers = map(json.loads, lines_of(output))
        return {(one["config"], one["sample_id"]): one["text"] for one in answers}

    expected, found = texts(local), texts(served)
    assert set(found) == set(expected)
    # Greedy decoding: the engines round differently, so that a tie may fall the other way.
    assert sum(found[key] == expected[key] for key in found) >= len(found) - 1
