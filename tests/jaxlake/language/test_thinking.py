"""Thinking tags in prompts and answers, in upper and lower case."""

import pytest

from jaxlake.language.answers import parse_answer
from jaxlake.language.thinking import THINKING_TAGS, closing_tag, opening_tag, split_thinking

PAIRS = [*THINKING_TAGS.items(), ("<THINK>", "</Think>"), ("[think]", "[/think]")]


@pytest.mark.parametrize(("opening", "closing"), PAIRS)
def test_parse_answer_reads_after_every_kind_of_thinking(opening, closing):
    draft = f"{opening}\nAgent 0: UP"
    unfinished = parse_answer(draft, 1, max_steps=9)
    assert unfinished.reason == "the thinking block is never closed"
    assert closing_tag(draft).lower() == closing.lower()
    assert parse_answer(f"{draft}{closing}Agent 0: DOWN", 1, max_steps=9).plan == ((2,),)
    assert opening_tag(f"a board {opening} \n") == f"{opening} \n"
    assert opening_tag(f"a board {opening}{closing}\n") == opening_tag(f"{opening}.") == ""


def test_split_thinking_splits_at_the_next_tag():
    assert split_thinking("a<think>b</think>c[THINK]d<think>") == ("c", "[THINK]d<think>")
    assert split_thinking("</think>") == ("", "")
