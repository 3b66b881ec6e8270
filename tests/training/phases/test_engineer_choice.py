"""A model folder can be given the engineer's role."""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from engineer import answer_schema
from engineer.lake import Bounds
from tests.paths import TINY
from training.policy.policy import make_policy
from training.rollout.model_server import OtherModels, Question
from training.schema import EngineerChoice, load


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained policy as a Hugging Face folder."""
    config = load(TINY)
    path = tmp_path_factory.mktemp("model") / "policy"
    texts = ["Agent 0: UP DOWN LEFT RIGHT WAIT", '{"3":{"data_ratio":0.50,"hole_ratio":0.25}}'] * 4
    make_policy(path, config.model, texts, max_len=512, seed=0)
    return path


@pytest.mark.vllm
@pytest.mark.slow
def test_another_model_answers_in_one_process_of_its_own_as_the_policy_would(folder: Path):
    schema = answer_schema(Bounds(sizes=(3,)))
    choice = EngineerChoice(kind="model", model=str(folder), max_tokens=200, summary_tokens=7)
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.chat_template
    plain = Question("# answer\n", chat=False, seed=1, json_schema=schema)
    with OtherModels(load(TINY).sampling, choice) as models:
        first = models.ask(str(folder), plain)
        jsonschema.validate(json.loads(first.text), schema)
        assert first.tokens <= 200
        loaded = models._server
        assert models.ask(str(folder), plain) == first
        templated = models.ask(str(folder), replace(plain, chat=True))
        assert templated != first
        assert models.ask(str(folder), replace(plain, chat=None)) == templated
        note = models.ask(str(folder), replace(plain, json_schema=None))
        assert 0 < len(note.text) < len(first.text)
        assert note.tokens <= 7
        shortest = models.ask(str(folder), replace(plain, token_limit=3))
        assert shortest.tokens == 3
        assert first.text.startswith(shortest.text)
        assert models._server is loaded is not None
    assert loaded._process.poll() is not None
