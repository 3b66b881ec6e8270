"""A model behind vLLM's own server answers as it does in this process."""

import json
from pathlib import Path

import pytest

from jaxlake.command_line.entry import main
from tests.paths import ROOT
from tests.training.analysis.benchmark.boards import write_rows
from tests.training.analysis.benchmark.server import SETTINGS
from training.policy.huggingface import resolve_model
from training.sampling.model_server import LOAD_SECONDS
from training.sampling.server_process import ServerProcess, wait_until_ready
from training.schema import load

MINIATURE = str(ROOT / "configs/miniature.yaml")


def make_command(folder: Path, output: Path, *options: str) -> list[str]:
    folders = ["--benchmark", str(folder), "--output", str(output)]
    return ["evaluate", MINIATURE, *folders, *options, "--set", *SETTINGS]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.vllm
def test_vllm_server_equals_the_model_in_process(tmp_path: Path):
    folder, local_dir, server_dir = tmp_path / "boards", tmp_path / "local", tmp_path / "served"
    write_rows(folder, per_size=6)
    assert main(make_command(folder, local_dir, "--model", "jaxlake-base")) == 0
    settings = load(Path(MINIATURE)).sampling
    server = ServerProcess(str(resolve_model("jaxlake-base")), settings)
    try:
        assert not wait_until_ready(server.address, LOAD_SECONDS, server)
        endpoint = ["--endpoint", f"{server.address}/v1"]
        endpoint += ["--name", str(resolve_model("jaxlake-base"))]
        request_options = ["--request", "add_special_tokens=false"]
        assert main(make_command(folder, server_dir, *endpoint, *request_options)) == 0
    finally:
        server.close()

    def read_texts(output: Path) -> dict[tuple[str, str], str]:
        answers = map(json.loads, (output / "answers.jsonl").read_bytes().splitlines())
        return {(answer["config"], answer["sample_id"]): answer["text"] for answer in answers}

    expected, texts = read_texts(local_dir), read_texts(server_dir)
    assert set(texts) == set(expected)
    # Greedy decoding: the engines round differently, so that a tie may fall the other way.
    assert sum(texts[key] == expected[key] for key in texts) >= len(texts) - 1
