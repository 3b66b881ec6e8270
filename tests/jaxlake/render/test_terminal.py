"""Text rendering of boards and episodes."""

from dataclasses import replace

import numpy as np

from jaxlake import format_grid, parse_grid
from jaxlake.render import board_text, show

BOARD = parse_grid(["S s F", "F H A", "G g a"], max_size=4, max_agents=4)


def test_board_at_start_is_its_grid() -> None:
    lines = board_text(BOARD).splitlines()
    assert lines == format_grid(BOARD) == format_grid(parse_grid(lines, max_agents=3))


def test_rendered_agents_cover_goals() -> None:
    text = board_text(BOARD, [[2, 0], [0, 0], [0, 2], [0, 0]])
    assert text.splitlines() == ["s F A", "F H F", "S g a"]


def test_show_draws_starts_on_goals() -> None:
    board = replace(parse_grid(["S g", "G s"]), goals=np.array([[1, 1], [0, 0]]))
    picture = show(board, [[2, 1], [4, 3]])
    frames = ["t = 0   t = 1     t = 2", "        S:D s:U   S:R s:L", "S F     g s       s F"]
    assert picture.text.splitlines()[:3] == frames
    assert picture.svg.count(">0<") == picture.svg.count(">1<") == 4


def test_frames_show_each_step_and_its_actions() -> None:
    board = parse_grid(["S s F", "F F A", "G g a"], max_size=4, max_agents=3)
    assert str(show(board, [[2, 2, 2], [2, 2, 0], [0, 0, 0]])).splitlines() == [
        "t = 0   t = 1         t = 2",
        "        S:D s:D A:D   S:D s:D A:W",
        "S s F   F F F         F F F",
        "F F A   S s F         F F F",
        "G g a   G g A         S s A",
        "",
        "2 steps",
    ]


def test_failure_is_crossed_out_at_its_cell() -> None:
    text = str(show(BOARD, [[2, 0, 2], [2, 2, 0], [0, 0, 0]]))
    assert text.splitlines() == [
        "t = 0   t = 1         t = 2",
        "        S:D s:W A:D   S:D s:D A:W",
        "S s F   F s F         F s F",
        "F H A   S H F         S X F",
        "G g a   G g A         G g A",
        "",
        "hole · step 1, agent 1 at (1, 1)",
    ]
