"""A policy's folder is refused if the policy could not answer with it."""

import json
import shutil
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
