"""Thinking tags in prompts and answers, in upper and lower case."""

import pytest

from jaxlake.language.answers import parse_answer
from jaxlake.language.thinking import THINKING_TAGS, closing_tag, opening_tag, split_thinking

TAG_PAIRS = [*THINKING_TAGS.items(), ("<THINK>", "</Think>"), ("[think]", "[/think]")]


@pytest.mark.parametrize(("start", "end"), TAG_PAIRS)
def test_parse_answer_reads_after_every_kind_of_thinking(start, end):
    draft = f"{start}\nAgent 0: UP"
    answer = parse_answer(draft, 1, max_steps=9)
    assert answer.reason == "the thinking block is never closed"
    assert closing_tag(draft).lower() == end.lower()
    assert parse_answer(f"{draft}{end}Agent 0: DOWN", 1, max_steps=9).plan == ((2,),)
    assert opening_tag(f"a board {start} \n") == f"{start} \n"
    assert opening_tag(f"a board {start}{end}\n") == opening_tag(f"{start}.") == ""


def test_split_thinking_splits_at_the_next_tag():
    assert split_thinking("a<think>b</think>c[THINK]d<think>") == ("c", "[THINK]d<think>")
    assert split_thinking("</think>") == ("", "")
