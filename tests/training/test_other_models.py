"""A model folder can be evaluated, and can be given the engineer's role; bad folders are named."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from transformers import AutoTokenizer

from engineer import Bounds, EngineerError, answer_schema
from training.config import EngineerChoice, load
from training.policy import make
from training.sampling.elsewhere import OtherModels, Question

TINY = Path(__file__).parent / "tiny.yaml"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained policy as a Hugging Face folder."""
    config = load(TINY)
    path = tmp_path_factory.mktemp("model") / "policy"
    texts = ["Agent 0: UP DOWN LEFT RIGHT WAIT", '{"3":{"data_ratio":0.50,"hole_ratio":0.25}}'] * 4
    make(path, config.model, texts, max_len=512, seed=0)
    return path


def _jaxlake(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "training.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.vllm
@pytest.mark.slow
def test_another_model_answers_in_one_process_of_its_own_as_the_policy_would(folder: Path):
    schema = answer_schema(Bounds(sizes=(3,)))
    choice = EngineerChoice(kind="model", model=str(folder), max_tokens=200, summary_tokens=7)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.chat_template
    plain = Question("# answer\n", chat=False, seed=1, json_schema=schema)
    with OtherModels(load(TINY).sampling, choice) as models:
        first = models.ask(str(folder), plain)
        jsonschema.validate(json.loads(first.text), schema)
        assert first.tokens <= 200
        loaded = models._process
        assert models.ask(str(folder), plain) == first
        templated = models.ask(str(folder), replace(plain, chat=True))
        assert templated != first
        assert models.ask(str(folder), replace(plain, chat=None)) == templated
        note = models.ask(str(folder), replace(plain, json_schema=None))
        assert 0 < len(note.text) < len(first.text)
        assert note.tokens <= 7
        shortest = models.ask(str(folder), replace(plain, most=3))
        assert shortest.tokens == 3
        assert first.text.startswith(shortest.text)
        assert models._process is loaded is not None
    assert loaded._process.poll() == 0


@pytest.mark.slow
def test_a_model_that_does_not_answer_in_time_fails_the_attempt_and_is_let_go(folder: Path):
    choice = EngineerChoice(kind="model", model=str(folder), load_seconds=0.1)
    with OtherModels(load(TINY).sampling, choice) as models:
        with pytest.raises(EngineerError, match=r"not loaded within engineer.load_seconds = 0.1"):
            models.ask(str(folder), Question(""))
        assert models._process is None


@pytest.mark.slow
def test_a_model_that_is_not_there_fails_the_attempt_with_its_name(tmp_path: Path):
    choice = EngineerChoice(kind="model", model="x")
    with (
        OtherModels(load(TINY).sampling, choice) as models,
        pytest.raises(EngineerError, match="nowhere"),
    ):
        models.ask(str(tmp_path / "nowhere"), Question("# answer\n"))


@pytest.mark.vllm
@pytest.mark.slow
def test_evaluate_prints_and_writes_the_rates_of_a_folder(folder: Path, tmp_path: Path):
    output = tmp_path / "rates.json"
    process = _jaxlake("evaluate", str(TINY), "--model", str(folder), "--output", str(output))
    assert process.returncode == 0, process.stderr[-2000:]
    rates = json.loads(output.read_text())
    assert rates["total"]["count"] == sum(row["count"] for row in rates["rows"]) > 0
    total = rates["total"]
    assert total["valid"] + sum(total["failures"].values()) == total["count"]
    assert "map size" in process.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evaluate", str(TINY), "--model", "{tmp}/absent"], ["absent"]),
        (["evaluate", str(TINY), "--model", "{tmp}"], ["config.json"]),
        (["evaluate", str(TINY), "--run-dir", "{tmp}"], ["holds no policy"]),
        (["evaluate", str(TINY), "--model", "x", "--stage", "1"], ["--stage", "--run-dir"]),
        (["report", "{tmp}"], ["{tmp}"]),
        (["run", str(TINY), "--run-dir", "{tmp}/occupied"], ["not empty"]),
    ],
)
def test_what_is_missing_is_named_without_a_traceback(
    arguments: list[str], words: list[str], tmp_path: Path
):
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied" / "thesis.tex").touch()
    process = _jaxlake(*(argument.format(tmp=tmp_path) for argument in arguments))
    assert process.returncode == 2
    assert "Traceback" not in process.stderr
    for word in words:
        assert word.format(tmp=tmp_path) in process.stderr
