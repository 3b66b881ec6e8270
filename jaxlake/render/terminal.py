"""Boards and playbacks as plain text: agents are start letters, and failures are `X`."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

import numpy as np

from jaxlake.board.dynamics import Action
from jaxlake.board.grids import GOAL_SYMBOLS, START_SYMBOLS, format_rows
from jaxlake.board.instance import Instance
from jaxlake.render.playback import (
    Cell,
    Playback,
    UnpaddedBoard,
    describe_fault_location,
    make_board,
    make_caption,
)

FAULT_SYMBOL: Final = "X"
_GAP: Final = "   "
_MAX_LINE_LENGTH: Final = 100


def board_text(instance: Instance, positions: object = None) -> str:
    """Return a board as text, one line per row, with blanks between the cells.

    Args:
        instance: an unbatched board with 1 to 5 agents.
        positions: int (K, 2), positions of the agents, such as `dynamics.Step.positions`. If None,
            the agents are at their starts, and the text equals the rows of `format_grid`, which
            rejects boards with starts on goals.

    Raises:
        ValueError: the instance is a batch, has too many agents, or a position is off the board.
    """
    board = make_board(instance)
    num_agents = len(board.starts)
    cells = board.starts if positions is None else np.asarray(positions)[:num_agents]
    if cells.shape != (num_agents, 2) or (cells < 0).any() or (cells >= len(board.holes)).any():
        raise ValueError(
            f"positions must be {num_agents} cells with coordinates from 0 to "
            f"{len(board.holes) - 1}, got {cells.tolist()}"
        )
    return "\n".join(_board_lines(board, [(int(r), int(c)) for r, c in cells]))


def episode_text(playback: Playback) -> str:
    """Return a playback as text frames side by side, one per step, followed by the outcome."""
    board = playback.board
    actions = np.zeros((0, 0), int) if playback.actions is None else playback.actions
    fault = playback.fault
    frames = []
    for t, positions in enumerate(playback.states):
        fault_cells: tuple[Cell, ...] = ()
        if fault is not None and fault.is_during_step and t == len(actions) > 0:
            fault_cells, positions = fault.cells, playback.states[t - 1]
        heading = [f"t = {t}", _format_moves(actions[t - 1]) if t else ""]
        cells = [(int(r), int(c)) for r, c in positions]
        lines = _board_lines(board, cells, fault_cells)
        frame_width = max(map(len, [*heading, *lines]))
        frames.append([line.ljust(frame_width) for line in [*heading, *lines]])
    frame_rows = [
        "\n".join(_GAP.join(lines).rstrip() for lines in zip_longest(*row, fillvalue=""))
        for row in _wrap_frames(frames)
    ]
    outcome = ", ".join(filter(None, [make_caption(playback), describe_fault_location(playback)]))
    return "\n\n".join(filter(None, [*frame_rows, outcome]))


def _board_lines(
    board: UnpaddedBoard, positions: Sequence[Cell], fault_cells: Sequence[Cell] = ()
) -> list[str]:
    goals = zip(GOAL_SYMBOLS, board.goals.tolist(), strict=False)
    starts = zip(START_SYMBOLS, positions, strict=False)
    faults = ((FAULT_SYMBOL, cell) for cell in fault_cells)
    return format_rows(board.holes, (*goals, *starts, *faults))


def _format_moves(actions: np.ndarray) -> str:
    """Return a joint action by the initials of its actions, with ? for invalid numbers."""
    initials = {action.value: action.name[0] for action in Action}
    moves = (f"{START_SYMBOLS[k]}:{initials.get(int(a), '?')}" for k, a in enumerate(actions))
    return " ".join(moves)


def _wrap_frames(frames: list[list[str]]) -> list[list[list[str]]]:
    """Return rows of frames that fit side by side into a line."""
    rows: list[list[list[str]]] = [[]]
    row_width = 0
    for frame in frames:
        frame_width = len(frame[0]) + len(_GAP)
        if rows[-1] and row_width + frame_width > _MAX_LINE_LENGTH + len(_GAP):
            rows.append([])
            row_width = 0
        rows[-1].append(frame)
        row_width += frame_width
    return rows
