"""Prompts describe the whole board, and targets the whole plan."""

import re

import numpy as np
import pytest

from jaxlake import GridError, parse_grid, stack_instances
from jaxlake.language.answers import parse_answer
from jaxlake.language.prompts import PROMPT_STYLES, action_names, render, target

TWO_AGENTS = ("S F H", "g F s", "F F G")
FIVE_AGENTS = ("S s A B C", "F F F H F", "F F H F F", "G g a b c", "F F F F F")


def make_board(rows):
    return parse_grid(rows, max_agents=5)


@pytest.mark.parametrize("style", PROMPT_STYLES)
@pytest.mark.parametrize("rows", [TWO_AGENTS, FIVE_AGENTS])
def test_prompt_contains_board_starts_and_goals(style, rows):
    prompt = render(make_board(rows), style)
    symbol = "[FHSsABCGgabc]"
    assert tuple(re.findall(f"^{symbol}(?: {symbol})+$", prompt, re.MULTILINE)) == rows
    tasks = re.findall(r"^Agent (\d): \((\d+), (\d+)\) to \((\d+), (\d+)\)$", prompt, re.MULTILINE)
    num_agents = sum(letter in "SsABC" for letter in "".join(rows))
    assert [int(agent) for agent, *_ in tasks] == list(range(num_agents))
    for agent, *coordinates in tasks:
        r0, c0, r1, c1 = map(int, coordinates)
        assert rows[r0].split()[c0] == "SsABC"[int(agent)]
        assert rows[r1].split()[c1] == "Ggabc"[int(agent)]


@pytest.mark.parametrize("style", PROMPT_STYLES)
def test_prompt_excludes_padding_and_answer(style):
    board = parse_grid(TWO_AGENTS, max_size=3, max_agents=2)
    assert render(board, style) == render(make_board(TWO_AGENTS), style)
    assert render(board, style).endswith("\n")


@pytest.mark.parametrize("style", ["full", "reasoned"])
@pytest.mark.parametrize(("rows", "num_agents"), [(TWO_AGENTS, 2), (FIVE_AGENTS, 5)])
def test_render_shows_a_readable_answer(style, rows, num_agents):
    section = render(make_board(rows), style).split("\nAnswer\n")[1].split("\nBoard\n")[0]
    answer = parse_answer(section, num_agents, max_steps=8)
    assert answer.parsed, answer.reason
    has_tags = style == "reasoned"
    assert ("<answer>\nAgent 0:" in section, "step by step" in section) == (has_tags, has_tags)


def test_render_fills_a_template():
    template = "{size}x{size}, {num_agents} agents {{a}}\n{board}\n{tasks}\n{symbols}\n{example}"
    prompt = render(make_board(TWO_AGENTS), "full", template=template)
    assert prompt.startswith("3x3, 2 agents {a}\nS F H\ng F s\nF F G\nAgent 0: (0, 0) to (2, 2)\n")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{grid}", r"only the fields \{board\}, .*, got \{grid\}"),
        ("{board.rows}", r"got \{board.rows\}"),
        ("{board} {}", r"got \{\}"),
        ("{board} {", "write {{ and }}"),
        ("{tasks}", r"must have the field \{board\}"),
    ],
)
def test_render_rejects_invalid_templates(template, message):
    with pytest.raises(ValueError, match=message):
        render(make_board(TWO_AGENTS), "full", template=template)


def test_render_rejects_batches_and_unknown_styles():
    with pytest.raises(GridError, match="got a batch"):
        render(stack_instances([make_board(TWO_AGENTS)]), "compact")
    with pytest.raises(ValueError, match=r"one of compact, full, reasoned, got 'long'"):
        render(make_board(TWO_AGENTS), "long")  # type: ignore[arg-type]


def test_target_ends_each_agent_at_its_last_move():
    plan = np.array([[4, 0], [0, 3], [2, 0], [0, 0]], np.int8)
    assert target(plan) == "Agent 0: RIGHT WAIT DOWN\nAgent 1: WAIT LEFT"
    assert action_names(plan) == [["RIGHT", "WAIT", "DOWN"], ["WAIT", "LEFT"]]
    # An agent that never moves waits.
    assert target(np.zeros((3, 2), np.int8)) == "Agent 0: WAIT\nAgent 1: WAIT"


def test_target_reasoned_has_answer_tags():
    plan = np.array([[4, 0], [0, 3]], np.int8)
    answer = target(plan, style="reasoned")
    assert answer == "<answer>\nAgent 0: RIGHT\nAgent 1: WAIT LEFT\n</answer>"
    assert parse_answer(answer, 2, max_steps=2).parsed


@pytest.mark.parametrize("value", [-1, 5])
def test_target_rejects_invalid_actions(value):
    with pytest.raises(ValueError, match=f"actions 0 to 4, got {value}"):
        target(np.full((2, 2), value, np.int8))
    with pytest.raises(ValueError, match=r"\(steps, agents\)"):
        target(np.zeros(3, np.int8))
