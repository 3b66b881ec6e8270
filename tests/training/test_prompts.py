"""All code that shows a board uses the configured prompt."""

from types import SimpleNamespace
from typing import Any

import pytest

from engineer import GeneratedText
from jaxlake.language.prompts import render
from tests.paths import TINY
from tests.training.hooks import write_prompt
from tests.training.small_lakes import draw_small_lakes
from training.analysis.benchmark.answering import EndpointAnswerer
from training.analysis.benchmark.boards import BenchmarkBoard
from training.environments.catalogue import get_environment
from training.errors import UserError
from training.policy.policy import Policy
from training.prompts import board_prompt
from training.run.dry_run import estimate_longest_prompt
from training.schema import load

HOOKS = "tests.training.hooks"


def test_board_prompt_follows_style_template_and_function():
    (board,) = draw_small_lakes(1)
    prompts = {
        "style=full": render(board, "full"),
        "template='{board}!'": render(board, "compact", template="{board}!"),
        f"template={HOOKS}:write_prompt": write_prompt(board),
    }
    for setting, text in prompts.items():
        assert board_prompt(board, load(TINY, [f"prompt.{setting}"]).prompt) == text
    assert len(set(prompts.values())) == 3


def test_board_prompt_rejects_functions_without_text():
    (board,) = draw_small_lakes(1)
    prompt_config = load(TINY, [f"prompt.template={HOOKS}:write_number"]).prompt
    with pytest.raises(UserError, match=r"^prompt.template: .*_number must return a text, got 3"):
        board_prompt(board, prompt_config)


def test_lake_prompts_follow_the_template():
    config, boards = load(TINY, [f"prompt.template={HOOKS}:write_prompt"]), draw_small_lakes(2)
    assert get_environment(config).prompts(boards) == ["A board of 3.\n"] * 2


def test_longest_prompt_counts_the_template():
    template = "prompt.template='{board}" + " and so on" * 30 + "'"
    assert (
        estimate_longest_prompt(load(TINY, [template])) > estimate_longest_prompt(load(TINY)) + 100
    )


def test_encode_board_follows_the_template():
    tokenizer: Any = SimpleNamespace(encode=lambda text, add_special_tokens: [*text.encode()])
    prompt_config = load(TINY, [f"prompt.template={HOOKS}:write_prompt"]).prompt
    unused: Any = None
    policy = Policy(unused, tokenizer, unused, prompt_config, length_bucket=1, stop_ids=())
    (board,) = draw_small_lakes(1)
    assert bytes(policy.encode_board(board)) == b"A board of 3.\n"


def test_endpoint_request_follows_the_template():
    board = BenchmarkBoard("", "a", 2, 3, ("S g F", "F F F", "G s F"), None)
    prompts: list[str] = []

    def complete(prompt: str, **_: Any) -> GeneratedText:
        prompts.append(prompt)
        return GeneratedText("?", 1)

    client: Any = SimpleNamespace(complete=complete)
    config = load(TINY, [f"prompt.template={HOOKS}:write_prompt"])
    answerer = EndpointAnswerer(config, client, [board], concurrency=1, fields={})
    assert [reply.text for reply in answerer.answer([(0, 0)])] == ["?"]
    assert prompts == ["A board of 3.\n"]


@pytest.mark.parametrize(
    ("settings", "reasoning", "text"),
    [
        ((), "", "UP"),
        (("prompt.chat=true", "prompt.thinking=true"), "", "<think>\nUP"),
        (("prompt.chat=true", "prompt.thinking=true"), "why", "UP"),
        (("prompt.template='{board}<think>'",), "", "<think>UP"),
    ],
)
def test_endpoint_answer_continues_its_prompt(
    settings: tuple[str, ...], reasoning: str, text: str
) -> None:
    board = BenchmarkBoard("", "a", 2, 3, ("S g F", "F F F", "G s F"), None)
    client: Any = SimpleNamespace(complete=lambda *_, **__: GeneratedText("UP", 1, reasoning))
    answerer = EndpointAnswerer(load(TINY, settings), client, [board], concurrency=1, fields={})
    assert [reply.text for reply in answerer.answer([(0, 0)])] == [text]
