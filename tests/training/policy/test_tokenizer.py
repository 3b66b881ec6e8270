"""The tokenizer is lossless and encodes a board cell by cell."""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engineer.lake import Bounds, lake_domain
from engineer.synthetic import make_design_example, make_synthetic_contexts
from jaxlake import parse_grid
from jaxlake.language.prompts import render
from training.policy.tokenizer import decode_answer, load_tokenizer, prompt_text, train_tokenizer

BOARDS = [
    ("S F H", "g F s", "F F G"),
    ("S F H", "F G s", "H F g"),
    ("S F H F", "g F s F", "F F G F", "H F F F"),
    ("S F H F F", "g F s F F", "F F G F F", "H F F F F", "F H F F F"),
]
ANSWERS = ["Agent 0: RIGHT DOWN DOWN\nAgent 1: WAIT LEFT", "Agent 0: UP UP\nAgent 1: DOWN RIGHT"]
TEXTS = [
    *(render(parse_grid(board), "compact") + answer for board in BOARDS for answer in ANSWERS),
    json.dumps({"sizes": {"3": {"data_ratio": 0.5, "hole_ratio": 0.25, "wait_ratio": 0.75}}}),
] * 20


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, 512)


@given(text=st.text(st.characters(exclude_categories=("Cs",)), max_size=200))
def test_any_text_round_trips_through_ids(tokenizer, text):
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_actions_and_cells_are_single_tokens(tokenizer):
    row = "F H S s A B C G g a b c"
    for text in (row, " WAIT UP DOWN LEFT RIGHT"):
        assert len(tokenizer(text)["input_ids"]) == len(text.split())
    assert len(tokenizer(f"{row}\n{row}")["input_ids"]) == 2 * len(row.split()) + 1


@given(number=st.integers(0, 10**9))
def test_numbers_are_tokenized_by_digit(tokenizer, number):
    assert len(tokenizer(str(number))["input_ids"]) == len(str(number))
    assert len(tokenizer(f" {number}")["input_ids"]) in (len(str(number)), len(str(number)) + 1)


def test_train_tokenizer_is_deterministic(tokenizer):
    second_tokenizer = train_tokenizer(iter(TEXTS), 512)
    assert second_tokenizer.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()


def test_auto_tokenizer_reads_the_saved_folder(tokenizer, tmp_path):
    from transformers import AutoTokenizer

    tokenizer.save_pretrained(tmp_path)
    loaded_tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert repr(load_tokenizer(tmp_path)) == repr(loaded_tokenizer)
    text = render(parse_grid(BOARDS[0]), "compact") + ANSWERS[0] + "<|im_end|> naïve → 9\u0301"
    assert loaded_tokenizer(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert loaded_tokenizer.decode(loaded_tokenizer(text)["input_ids"]) == text
    assert (loaded_tokenizer.eos_token_id, loaded_tokenizer.pad_token_id) == (2, 0)
    assert loaded_tokenizer.chat_template == tokenizer.chat_template


def test_chat_template_is_compatible_with_qwen3(tokenizer):
    messages = [{"role": "user", "content": "Find paths"}]
    arguments = {"tokenize": False, "enable_thinking": False}
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, **arguments)
    assert prompt == "<|im_start|>Find paths<|im_end|><|im_start|>"
    answered_messages = [*messages, {"role": "assistant", "content": "Agent 0: UP"}]
    conversation = tokenizer.apply_chat_template(answered_messages, **arguments)
    assert conversation == prompt + "Agent 0: UP" + tokenizer.eos_token


LAKE = lake_domain(Bounds(sizes=(2, 3, 4, 5, 6, 7, 8, 9, 10)))


@pytest.fixture(scope="module")
def symbol_texts():
    rng = np.random.default_rng(0)
    return [
        "".join(make_design_example(context, LAKE))
        for _ in range(12)
        for context in make_synthetic_contexts(rng, LAKE, runs=12, stages=5)
    ]


@pytest.fixture(scope="module")
def symbol_tokenizer(symbol_texts):
    return train_tokenizer([*TEXTS, *symbol_texts], 640)


def test_compact_context_symbols_are_single_tokens(symbol_tokenizer, symbol_texts):
    # Of nine sizes none has nearly all the data.
    numbers = {f"{word}{n}" for word in ("valid", "learn", "hole", "wait") for n in range(11)}
    numbers |= {f"data{n}" for n in range(7)}
    words = {word for text in symbol_texts for word in text.split()}
    kinds = {label.word for label in LAKE.failures}
    assert words >= {*numbers, *kinds, *"-=+?", "none", "n2", "n10", "stage", "rolled", "refused"}
    # A size opens a line; all other words follow a blank, except the two that open other lines.
    line_starts = {word for word in words if re.fullmatch(r"n\d+|stage|edits", word)}
    for word in words:
        text = word if word in line_starts else f" {word}"
        assert len(symbol_tokenizer(text)["input_ids"]) == 1, text
    for text in symbol_texts:
        assert len(symbol_tokenizer(text)["input_ids"]) == len(text.split()) + text.count("\n")
        assert symbol_tokenizer.decode(symbol_tokenizer(text)["input_ids"]) == text


def test_pretokenizer_joins_words_with_numbers_up_to_ten(symbol_tokenizer):
    for text in (" valid11", " valid100", " hole05", " wait3a", " data10x"):
        ids = symbol_tokenizer(text)["input_ids"]
        assert len(ids) > 1
        for token in symbol_tokenizer.convert_ids_to_tokens(ids):
            assert not re.search(r"[a-z]\d", token), text
    assert len(symbol_tokenizer(" 57")["input_ids"]) in (2, 3)


def test_invalid_tokenizer_settings_are_named():
    with pytest.raises(ValueError, match=r"vocab_size must be at least 259 .*got 200"):
        train_tokenizer(TEXTS, 200)
    with pytest.raises(ValueError, match="texts must not be empty"):
        train_tokenizer([], 512)


def test_decode_answer_keeps_special_marks(tokenizer):
    text = "<|im_start|>[THINK]UP[/THINK] DOWN<|im_end|>"
    marked_tokenizer = train_tokenizer(TEXTS, 512)
    marked_tokenizer.add_special_tokens({"additional_special_tokens": ["[THINK]", "[/THINK]"]})
    ids = marked_tokenizer(text)["input_ids"]
    assert decode_answer(marked_tokenizer, ids) == "[THINK]UP[/THINK] DOWN"
    assert decode_answer(tokenizer, tokenizer(text)["input_ids"]) == "[THINK]UP[/THINK] DOWN"
    assert marked_tokenizer.decode(ids, skip_special_tokens=True) == "UP DOWN"


def test_prompt_text_writes_template_prefix_once():
    tokenizer = train_tokenizer(TEXTS, 512)
    tokenizer.chat_template = "{{ messages[0]['content'] }}<think>\n"
    prompt = prompt_text(tokenizer, "S G", chat=True, reasoning="<think>\nUP?")
    assert prompt == "S G<think>\nUP?\n</think>\n\nConfiguration:\n"
