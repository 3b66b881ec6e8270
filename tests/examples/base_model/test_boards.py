"""Held-out boards have their cells' kinds, and training plans exclude them."""

import re
from collections import Counter

import numpy as np
import pytest

from jaxlake.language.prompts import render

pytestmark = pytest.mark.slow  # the generator compiles for other board sizes

DELTAS = {"UP": (-1, 0), "DOWN": (1, 0), "LEFT": (0, -1), "RIGHT": (0, 1), "WAIT": (0, 0)}


def check_plan(prompt: str, answer: str) -> None:
    """Check that a plan solves the board of its prompt."""
    rows = [line.split() for line in prompt.split("\n") if re.fullmatch(r"\S( \S)+", line)]
    tasks = re.findall(r"Agent (\d): \((\d+), (\d+)\) to \((\d+), (\d+)\)", prompt)
    plans = re.findall(r"Agent (\d): ([A-Z ]+)", answer)
    assert [task[0] for task in tasks] == [plan[0] for plan in plans]
    paths = []
    for (_, *coordinates), (_, actions) in zip(tasks, plans, strict=True):
        row, column, goal_row, goal_column = map(int, coordinates)
        path = [(row, column)]
        for action in actions.split():
            row_delta, column_delta = DELTAS[action]
            row, column = row + row_delta, column + column_delta
            assert 0 <= row < len(rows)
            assert 0 <= column < len(rows)
            assert rows[row][column] != "H"
            path.append((row, column))
        assert path[-1] == (goal_row, goal_column)
        paths.append(path)
    length = max(map(len, paths))
    paths = [path + path[-1:] * (length - len(path)) for path in paths]
    for time, next_time in zip(range(length - 1), range(1, length), strict=True):
        move_1, move_2 = ((path[time], path[next_time]) for path in paths)
        assert move_1[1] != move_2[1]
        assert move_1 != move_2[::-1]


def test_draw_plans_gives_distinct_boards_with_valid_plans(plans, recipe):
    assert len(plans) == recipe.boards.count
    assert len({prompt for prompt, _ in plans}) == len(plans)
    for prompt, answer in plans:
        check_plan(prompt, answer)


def test_draw_plans_covers_all_kinds_by_share(plans, recipe):
    kind_counts = Counter()
    for prompt, answer in plans:
        size = int(re.search(r"(\d+)x\1", prompt)[1])
        hole_ratio = len(re.findall(r"\bH\b", prompt)) / size**2
        kind_counts[size, hole_ratio > 0.1] += 1
        assert answer
    assert kind_counts == {(3, False): 60, (3, True): 60, (4, False): 90, (4, True): 90}
    assert sum("WAIT" in answer for _, answer in plans) > 0.4 * len(plans)


def test_draw_plans_excludes_held_out_boards(plans, held_out):
    prompts = {prompt for prompt, _ in plans}
    assert len({render(board, "compact") for board in held_out.boards}) == len(held_out.boards)
    assert prompts.isdisjoint(render(board, "compact") for board in held_out.boards)


def test_held_out_boards_match_their_kind(held_out):
    assert list(held_out.cells)[:3] == ["3x3_hr0_go", "3x3_hr0_wait", "3x3_hr0.3_go"]
    assert len(held_out.cells) == 8
    boards = list(held_out.boards)
    rows = np.concatenate(list(held_out.cells.values()))
    assert sorted(rows.tolist()) == list(range(len(boards)))
    waits = np.asarray(held_out.boards.solutions.needs_wait)
    for name, cell_rows in held_out.cells.items():
        size, holes, kind = re.fullmatch(r"(\d)x\d_hr([\d.]+)_(wait|go)", name).groups()
        assert 0 < len(cell_rows) <= 6
        for row in cell_rows:
            prompt = render(boards[row], "compact")
            assert f"{size}x{size}" in prompt
            assert len(re.findall(r"\bH\b", prompt)) == int(float(holes) * int(size) ** 2)
            assert waits[row] == (kind == "wait")
