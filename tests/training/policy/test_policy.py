"""A policy's folder is refused if the policy could not answer with it."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from training.errors import UserError
from training.policy.huggingface import SHIPPED
from training.policy.policy import open_policy
from training.schema import Model, Prompt


def test_a_tokenizer_that_cannot_end_an_answer_is_refused(tmp_path: Path) -> None:
    folder = shutil.copytree(SHIPPED["jaxlake-base"], tmp_path / "model")
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    del settings["eos_token"]
    file.write_text(json.dumps(settings))
    with pytest.raises(UserError, match=r"model: its tokenizer has no eos_token, .*_config\.json"):
        open_policy(folder, Model(), Prompt(), length_bucket=16)


def test_a_plain_prompt_begins_as_its_tokenizer_begins_texts_and_a_chat_as_its_template(
    tmp_path: Path,
) -> None:
    """Llama's tokenizers put a token before every text; chat templates write it themselves."""
    folder = shutil.copytree(SHIPPED["jaxlake-base"], tmp_path / "model")
    plain, _ = open_policy(folder, Model(), Prompt(), length_bucket=16)
    file = folder / "tokenizer.json"
    tree = json.loads(file.read_text())
    begin = {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    number = plain.tokenizer.convert_tokens_to_ids("<|endoftext|>")
    known = {"id": "<|endoftext|>", "ids": [number], "tokens": ["<|endoftext|>"]}
    tree["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [begin, text],
        "pair": [begin, text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|endoftext|>": known},
    }
    file.write_text(json.dumps(tree))
    begun, _ = open_policy(folder, Model(), Prompt(), length_bucket=16)
    board = "S F G\n"
    assert begun.encode_prompt(board) == [number, *plain.encode_prompt(board)]
    assert begun.encode_answer(board) == plain.encode_answer(board)
    begun.tokenizer.chat_template = "{{ messages[0]['content'] }}"
    chat = replace(begun, prompt=Prompt(chat=True))
    assert chat.encode_prompt(board) == plain.encode_prompt(board)


DEEP = '{"a":' * 100_000


@pytest.mark.parametrize(
    ("name", "contents", "what"),
    [
        ("tokenizer.json", ["[1]", "null", "{}", DEEP], "its tokenizer can't be read: "),
        ("tokenizer_config.json", ["[1]", "null", DEEP], "its tokenizer can't be read: "),
        ("config.json", ["[1]", "null", "{}", DEEP], "config.json"),
    ],
)
def test_a_file_of_something_else_is_named(
    name: str, contents: list[str], what: str, tmp_path: Path
) -> None:
    folder = shutil.copytree(SHIPPED["jaxlake-base"], tmp_path / "model")
    for content in contents:
        (folder / name).write_text(content)
        with pytest.raises(UserError, match=what):
            open_policy(folder, Model(), Prompt(), length_bucket=16)
