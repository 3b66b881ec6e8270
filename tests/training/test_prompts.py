"""Every place that shows a board writes the prompt that the configuration asks for."""

import pytest

from jaxlake.language.prompts import render
from tests.paths import TINY
from tests.training.hooks import words_of
from tests.training.small_lakes import small_lakes
from training.environments.catalogue import environment_of
from training.errors import UserError
from training.prompts import board_prompt
from training.run.dry_run import longest_prompt
from training.schema import load

HOOKS = "tests.training.hooks"


def test_board_prompt_follows_style_template_and_function():
    (board,) = small_lakes(1)
    asked = {
        "style=full": render(board, "full"),
        "template='{board}!'": render(board, "compact", template="{board}!"),
        f"template={HOOKS}:words_of": words_of(board),
    }
    for setting, text in asked.items():
        assert board_prompt(board, load(TINY, [f"prompt.{setting}"]).prompt) == text
    assert len(set(asked.values())) == 3


def test_board_prompt_refuses_a_function_without_text():
    (board,) = small_lakes(1)
    prompt = load(TINY, [f"prompt.template={HOOKS}:number_of"]).prompt
    with pytest.raises(UserError, match=r"^prompt.template: .*number_of returned 3, a text is"):
        board_prompt(board, prompt)


def test_prompts_of_the_lake_follow_the_template():
    config, boards = load(TINY, [f"prompt.template={HOOKS}:words_of"]), small_lakes(2)
    assert environment_of(config).prompts(boards) == ["A board of 3.\n"] * 2


def test_longest_prompt_counts_the_template():
    template = "prompt.template='{board}" + " and so on" * 30 + "'"
    assert longest_prompt(load(TINY, [template])) > longest_prompt(load(TINY)) + 100
