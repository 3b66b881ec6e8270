"""The boards of a pretraining: cells that are what they say, and plans that are none of them."""

import re
from collections import Counter
from itertools import product

import numpy as np
import pytest

from jaxlake.language.prompts import render, target
from training.pretraining.boards import draw_plans

pytestmark = pytest.mark.slow  # the generator compiles for boards of their own sizes

STEPS = {"UP": (-1, 0), "DOWN": (1, 0), "LEFT": (0, -1), "RIGHT": (0, 1), "WAIT": (0, 0)}


def walked(prompt: str, answer: str) -> list[list[tuple[int, int]]]:
    """The cells of each agent over time, read off a prompt and its plan; they must be valid."""
    rows = [line.split() for line in prompt.split("\n") if re.fullmatch(r"\S( \S)+", line)]
    tasks = re.findall(r"Agent (\d): \((\d+), (\d+)\) to \((\d+), (\d+)\)", prompt)
    plans = re.findall(r"Agent (\d): ([A-Z ]+)", answer)
    assert [task[0] for task in tasks] == [plan[0] for plan in plans]
    paths = []
    for (_, *ends), (_, words) in zip(tasks, plans, strict=True):
        row, column, goal_row, goal_column = map(int, ends)
        path = [(row, column)]
        for word in words.split():
            down, right = STEPS[word]
            row, column = row + down, column + right
            assert 0 <= row < len(rows)
            assert 0 <= column < len(rows)
            assert rows[row][column] != "H"
            path.append((row, column))
        assert path[-1] == (goal_row, goal_column)
        paths.append(path)
    longest = max(map(len, paths))
    paths = [path + path[-1:] * (longest - len(path)) for path in paths]
    for before, after in zip(range(longest - 1), range(1, longest), strict=True):
        one, other = ((path[before], path[after]) for path in paths)
        assert one[1] != other[1]
        assert one != other[::-1]
    return paths


def test_plans_are_valid_on_their_boards_and_no_two_boards_are_equal(plans, tiny):
    assert len(plans) == tiny.boards.count
    assert len({prompt for prompt, _ in plans}) == len(plans)
    for prompt, answer in plans:
        walked(prompt, answer)


def test_plans_are_of_all_kinds_in_their_shares(plans, tiny):
    kinds = Counter()
    for prompt, answer in plans:
        size = int(re.search(r"(\d+)x\1", prompt)[1])
        holes = len(re.findall(r"\bH\b", prompt)) / size**2
        kinds[size, holes > 0.1] += 1
        assert answer
    assert kinds == {(3, False): 60, (3, True): 60, (4, False): 90, (4, True): 90}
    assert sum("WAIT" in answer for _, answer in plans) > 0.4 * len(plans)


def test_held_out_boards_are_never_among_the_plans(plans, held_out):
    prompts = {prompt for prompt, _ in plans}
    assert len({render(board, "compact") for board in held_out.boards}) == len(held_out.boards)
    assert prompts.isdisjoint(render(board, "compact") for board in held_out.boards)


def test_few_boards_are_there_so_that_holding_out_is_what_keeps_them_apart(tiny):
    """2x2 boards without holes are few: nearly all are drawn, and those held out are not."""
    small = tiny.model_copy(
        update={
            "boards": tiny.boards.model_copy(
                update={"shares": {2: 1.0}, "hole_ratios": {0.0: 1.0}, "count": 24}
            )
        }
    )
    from training.pretraining.boards import draw_held_out

    apart = draw_held_out(small, 6)
    found = {prompt for prompt, _ in draw_plans(small, apart)}
    kept = {render(board, "compact") for board in apart.boards}
    assert found
    assert kept
    assert found.isdisjoint(kept)


def test_cells_are_what_their_names_say(held_out, tiny):
    cells = list(product(tiny.boards.sizes, tiny.boards.hole_ratios, (False, True)))
    assert list(held_out.cells) == cells
    assert held_out.names[:3] == ["3x3_hr0_go", "3x3_hr0_wait", "3x3_hr0.3_go"]
    boards = list(held_out.boards)
    rows = [row for cell in held_out.rows for row in cell]
    assert sorted(rows) == list(range(len(boards)))
    waits = np.asarray(held_out.boards.solutions.needs_wait)
    for (size, holes, needs_wait), cell in zip(held_out.cells, held_out.rows, strict=True):
        assert 0 < len(cell) <= 6
        for row in cell:
            prompt = render(boards[row], "compact")
            assert f"{size}x{size}" in prompt
            assert len(re.findall(r"\bH\b", prompt)) == int(holes * size**2)
            assert waits[row] == needs_wait
            answer = target(held_out.boards.solutions.plan[row])
            paths = walked(prompt, answer)
            # An agent that waits before its goal stands in one cell twice in a row.
            words = re.findall(r"Agent \d: ([A-Z ]+)", answer)
            if needs_wait:
                assert any("WAIT" in line for line in words)
            assert len(paths) == 2


def test_equal_seeds_give_equal_plans(plans, tiny, held_out):
    assert draw_plans(tiny, held_out) == plans
    other = draw_plans(tiny.model_copy(update={"seed": 6}), held_out)
    assert len(set(other) & set(plans)) < len(plans) / 2
