"""Errors about model folders name the inconsistent parts."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from training.errors import UserError
from training.policy.huggingface import PACKAGED_MODELS
from training.policy.model_check import open_tokenizer
from training.policy.tokenizer import prompt_text
from training.schema import PromptConfig

CHAT = PromptConfig(chat=True)
NAMED_TEMPLATE = '{"name": "rag", "template": "x"}'
TURN = "<|im_start|>{{ messages[0].content }}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(PACKAGED_MODELS["jaxlake-base"], tmp_path / "model")


def edit_json(folder: Path, name: str, **fields: object) -> None:
    file = folder / name
    content = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(content | fields))


def template_writer(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "chat_template.jinja").write_text(text)


def name_templates(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    edit_json(folder, "tokenizer_config.json", chat_template=[json.loads(NAMED_TEMPLATE)])


def append_end_token(folder: Path) -> None:
    end_token = {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}
    sequences = [{"Sequence": {"id": letter, "type_id": i}} for i, letter in enumerate("AB")]
    post_processor = {
        "type": "TemplateProcessing",
        "single": [sequences[0], end_token],
        "pair": [*sequences, end_token],
        "special_tokens": {
            "<|im_end|>": {"id": "<|im_end|>", "ids": [2], "tokens": ["<|im_end|>"]}
        },
    }
    edit_json(folder, "tokenizer.json", post_processor=post_processor)


def pad_embeddings(folder: Path) -> None:
    edit_json(folder, "config.json", vocab_size=512)
    edit_json(folder, "tokenizer_config.json", eos_token="</s>")


def use_word_level(folder: Path) -> None:
    vocabulary = {"<unk>": 0, "<|im_end|>": 2, "Agent": 3}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"}
    edit_json(folder, "tokenizer.json", model=model, pre_tokenizer={"type": "Whitespace"})
    edit_json(folder, "tokenizer_config.json", unk_token="<unk>")


DAMAGES: list[tuple[Callable[[Path], object], PromptConfig, str]] = [
    (
        lambda f: edit_json(f, "tokenizer_config.json", eos_token="</s>"),
        PromptConfig(),
        r"got '</s>' \(444\): add",
    ),
    (pad_embeddings, PromptConfig(), r"eos_token must be a token of tokenizer.json, got '</s>'"),
    (
        lambda f: edit_json(f, "config.json", vocab_size=400),
        PromptConfig(),
        r"\(400\).* and 41 more: add",
    ),
    (
        lambda f: edit_json(f, "generation_config.json", eos_token_id=[2, 444]),
        PromptConfig(),
        "eos_token_id must be 0 to 443",
    ),
    (
        lambda f: edit_json(f, "generation_config.json", eos_token_id="</s>"),
        PromptConfig(),
        "eos_token_id must be a token id or a list, got '</s>'",
    ),
    (append_end_token, PromptConfig(), r"ends with the token '<\|im_end\|>' \(2\).*add_eos_token"),
    (template_writer(TURN + "<|im_end|>\n"), CHAT, r"'<\|im_end\|>' \(2\).*add_generation_prompt"),
    (template_writer("{{ raise_exception('no system') }}"), CHAT, "TemplateError: no system"),
    (template_writer("{% if %}"), CHAT, "TemplateSyntaxError"),
    (template_writer(""), CHAT, "has no chat template"),
    (name_templates, CHAT, "multiple chat templates with no default"),
    (
        template_writer(TURN + "{{ range(90000) | random }}"),
        CHAT,
        "must render the same prompt every time",
    ),
    (template_writer("{{ messages[0].text }}:"), CHAT, "must contain the user's message"),
    (use_word_level, PromptConfig(), "encodes parts of 'Agent 0: .* as <unk>; it must have tokens"),
    (lambda f: (f / "tokenizer.json").unlink(), PromptConfig(), "can't be read: tokenizer.json is"),
]


@pytest.mark.parametrize(("damage", "prompt", "problem"), DAMAGES, ids=range(len(DAMAGES)))
def test_open_tokenizer_names_the_invalid_part(
    folder: Path, damage: Callable[[Path], object], prompt: PromptConfig, problem: str
) -> None:
    damage(folder)
    with pytest.raises(UserError, match=problem):
        open_tokenizer(folder, prompt)


@pytest.mark.parametrize("name", ["generation_config.json", "config.json"])
def test_end_tokens_are_the_union_of_both_files(folder: Path, name: str) -> None:
    edit_json(folder, name, eos_token_id=[0, 2])
    assert open_tokenizer(folder, PromptConfig())[1] == (0, 2)
    edit_json(folder, "generation_config.json", eos_token_id=1)  # it outweighs config.json
    assert open_tokenizer(folder, PromptConfig())[1] == (1, 2)


def test_open_tokenizer_warns_if_turns_end_with_another_token(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (folder / "chat_template.jinja").read_text().replace("<|im_end|>", "<|endoftext|>")
    (folder / "chat_template.jinja").write_text(text)
    open_tokenizer(folder, CHAT)
    warning = "ends the model's turn with '<|endoftext|>' (0), but answers end at '<|im_end|>' (2)"
    assert capsys.readouterr().out.count(warning) == 1
    edit_json(folder, "generation_config.json", eos_token_id=[0, 2])
    open_tokenizer(folder, CHAT)
    assert capsys.readouterr().out == ""


def test_template_with_date_renders_a_fixed_day(folder: Path) -> None:
    template_writer(TURN + "{{ strftime_now('%d %b %Y, %H:%M') }}:")(folder)
    tokenizer, _ = open_tokenizer(folder, CHAT)
    assert prompt_text(tokenizer, "S G", chat=True) == "<|im_start|>S G26 Jul 2024, 00:00:"
