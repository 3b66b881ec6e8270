"""A prompt tells the whole board, and a target tells the whole plan."""

import re

import numpy as np
import pytest

from jaxlake import Action, GridError, parse_grid
from training.language.answers import parse_answer
from training.language.prompts import STYLES, action_names, chat_messages, render, target

TWO_AGENTS = ("S F H", "g F s", "F F G")
FIVE_AGENTS = ("S s A B", "C F F H", "F F H F", "G g a b", "c F F F")
FIVE_AGENTS_SQUARE = ("S s A B C", "F F F H F", "F F H F F", "G g a b c", "F F F F F")


def board_in(prompt: str) -> list[str]:
    cell = "[FHSsABCGgabc]"
    return [line for line in prompt.splitlines() if re.fullmatch(f"{cell}( {cell})+", line)]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("rows", [TWO_AGENTS, FIVE_AGENTS_SQUARE])
def test_the_board_stands_in_the_prompt_as_it_is(style, rows):
    assert tuple(board_in(render(rows, style))) == rows


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("rows", [TWO_AGENTS, FIVE_AGENTS_SQUARE])
def test_every_agents_start_and_goal_are_told_in_coordinates(style, rows):
    prompt = render(rows, style)
    told = re.findall(r"^Agent (\d): \((\d+), (\d+)\) to \((\d+), (\d+)\)$", prompt, re.MULTILINE)
    num_agents = sum(letter in "SsABC" for letter in "".join(rows))
    assert [int(agent) for agent, *_ in told] == list(range(num_agents))
    for agent, r0, c0, r1, c1 in told:
        assert rows[int(r0)].split()[int(c0)] == "SsABC"[int(agent)]
        assert rows[int(r1)].split()[int(c1)] == "Ggabc"[int(agent)]


@pytest.mark.parametrize("style", STYLES)
def test_an_instance_and_its_rows_give_the_same_prompt(style):
    assert render(parse_grid(TWO_AGENTS), style) == render(TWO_AGENTS, style)


def test_the_full_prompt_shows_the_answer_format_as_the_parser_reads_it():
    for rows, num_agents in ((TWO_AGENTS, 2), (FIVE_AGENTS_SQUARE, 5)):
        prompt = render(rows, "full")
        example = prompt[prompt.index("\nAnswer\n") : prompt.index("\nBoard\n")]
        answer = parse_answer(example, num_agents, max_steps=8)
        assert answer.parsed, answer.reason


def test_the_full_prompt_names_every_action_symbol_and_conflict():
    prompt = render(TWO_AGENTS, "full")
    for term in (
        *Action.__members__,
        "Vertex conflict",
        "Swapping conflict",
        "hole",
        "(row, column)",
    ):
        assert term in prompt
    assert "agent 2" not in prompt.lower()


def test_the_compact_prompt_is_the_board_with_one_line_of_words():
    assert len(render(TWO_AGENTS, "compact").splitlines()) == 1 + 3 + 2


@pytest.mark.parametrize("style", STYLES)
def test_a_prompt_ends_where_the_answer_begins(style):
    assert render(TWO_AGENTS, style).endswith("\n")
    assert chat_messages(render(TWO_AGENTS, style)) == [
        {"role": "user", "content": render(TWO_AGENTS, style)}
    ]


def test_what_is_no_board_or_no_style_is_refused_by_name():
    with pytest.raises(GridError, match=r"row 0, column 1: got 'X'"):
        render(["S X", "F G"], "compact")
    with pytest.raises(GridError, match="row"):
        render(FIVE_AGENTS, "full")
    with pytest.raises(ValueError, match="'long', allowed are compact, full"):
        render(TWO_AGENTS, "long")  # type: ignore[arg-type]


def test_a_target_ends_for_each_agent_with_its_last_move():
    plan = np.array([[4, 0], [0, 3], [2, 0], [0, 0]], np.int8)
    assert target(plan) == "Agent 0: RIGHT WAIT DOWN\nAgent 1: WAIT LEFT"
    assert action_names(plan) == [["RIGHT", "WAIT", "DOWN"], ["WAIT", "LEFT"]]


def test_an_agent_that_never_moves_waits_in_the_target():
    assert target(np.zeros((3, 2), np.int8)) == "Agent 0: WAIT\nAgent 1: WAIT"


@pytest.mark.parametrize("value", [-1, 5])
def test_a_target_is_refused_for_what_is_no_action(value):
    with pytest.raises(ValueError, match=f"got action {value}, 0 to 4"):
        target(np.full((2, 2), value, np.int8))
    with pytest.raises(ValueError, match=r"\(steps, agents\)"):
        target(np.zeros(3, np.int8))
