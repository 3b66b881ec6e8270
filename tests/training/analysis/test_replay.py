"""Replays of a stage with other engineers: equal prompts and seeds, no unneeded requests."""

import json
from pathlib import Path
from typing import Any

import pytest

from engineer import (
    BLOCKS,
    Engineer,
    GeneratedText,
    LanguageModelEngineer,
    TextRequest,
    answer_text,
)
from jaxlake.command_line.entry import main
from tests.training.sample_run import write_sample_run_with_tokenizer
from training.analysis import replay
from training.run.seeds import derive_seed
from training.schema import RunConfig, load


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = {
        "style": "full",
        "blocks": list(BLOCKS),
        "max_context_tokens": 4_600,
        "base_url": "http://127.0.0.1:1/v1",
        "model": "m",
    }
    return write_sample_run_with_tokenizer(tmp_path_factory.mktemp("runs") / "sample", settings)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Replace all engineers with a fake one; return the prompts and seeds of its requests."""
    requests = []

    def make_fake_engineer(config: RunConfig, *_: Any, **__: Any) -> Engineer:
        def generate(request: TextRequest) -> GeneratedText:
            requests.append((request.prompt, request.seed))
            return GeneratedText(answer_text(config.environment.initial), 77)

        return LanguageModelEngineer(generate)

    monkeypatch.setattr(replay, "make_engineer", make_fake_engineer)
    return requests


def run_replay_command(run: Path, names: str) -> int:
    return main(["engineer", "replay", str(run), "--stage", "3", "--engineers", names])


def test_replay_shows_other_engineers_the_same_context(run, requests):
    rows = replay.replay_stage(run, 3, ["checkpoint", "base"])
    seed = derive_seed(load(run / "config.yaml").seed, "design", 3, 0)
    assert requests == [((run / "stages/3/context.txt").read_text(), seed)] * 2
    assert json.loads((run / "stages/3/answers.jsonl").read_text().splitlines()[0])["cut"]
    assert rows[0].spent.engineer_tokens == rows[1].spent.engineer_tokens == 77


@pytest.mark.parametrize("name", [":fixed", "shuffled:shuffled:fixed", "gossip"])
def test_replay_rejects_unknown_name_before_asking(run, requests, capsys, name):
    assert run_replay_command(run, f"checkpoint,{name}") == 2
    assert f"got '{name}'; it must be one of checkpoint" in capsys.readouterr().err
    assert requests == []


def test_replay_ignores_blanks_and_explains_failures(run, monkeypatch, capsys):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert run_replay_command(run, "fixed, endpoint") == 0
    output = capsys.readouterr()
    assert output.out.index("fixed") < output.out.index("endpoint")
    assert "endpoint: 3 answers were refused" in output.err
    assert "environment variable OPENAI_API_KEY holds no key" in output.err
