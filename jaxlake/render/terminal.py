"""Write boards and playbacks as plain text: agents as start letters, failures as `X`."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

import numpy as np

from jaxlake.board.dynamics import Action
from jaxlake.board.grids import GOAL_SYMBOLS, START_SYMBOLS, format_rows
from jaxlake.board.instance import Instance
from jaxlake.render.playback import Board, Cell, Playback, board_of_instance, caption, whereabouts

FAULT_SYMBOL: Final = "X"
_GAP: Final = "   "


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
    board = board_of_instance(instance)
    agents = len(board.starts)
    cells = board.starts if positions is None else np.asarray(positions)[:agents]
    if cells.shape != (agents, 2) or (cells < 0).any() or (cells >= len(board.holes)).any():
        raise ValueError(
            f"positions must be {agents} cells with coordinates from 0 to {len(board.holes) - 1}, "
            f"got {cells.tolist()}"
        )
    return "\n".join(_board_lines(board, [(int(r), int(c)) for r, c in cells]))


def episode_text(playback: Playback, *, width: int = 100) -> str:
    """Return a playback as text frames side by side, one per step, followed by the outcome.

    Args:
        playback: the playback.
        width: maximum line length in characters; frames wrap to new lines.
    """
    board = playback.board
    actions = np.zeros((0, 0), int) if playback.actions is None else playback.actions
    fault = playback.fault
    frames = []
    for t, positions in enumerate(playback.states):
        fault_cells: tuple[Cell, ...] = ()
        if fault is not None and fault.in_a_step and t == len(actions) > 0:
            fault_cells, positions = fault.cells, playback.states[t - 1]
        heading = [f"t = {t}", _moves(actions[t - 1]) if t else ""]
        cells = [(int(r), int(c)) for r, c in positions]
        lines = _board_lines(board, cells, fault_cells)
        side = max(map(len, [*heading, *lines]))
        frames.append([line.ljust(side) for line in [*heading, *lines]])
    bands = [
        "\n".join(_GAP.join(parts).rstrip() for parts in zip_longest(*band, fillvalue=""))
        for band in _wrap_frames(frames, width)
    ]
    verdict = ", ".join(filter(None, [caption(playback), whereabouts(playback)]))
    return "\n\n".join(filter(None, [*bands, verdict]))


def _board_lines(
    board: Board, positions: Sequence[Cell], fault_cells: Sequence[Cell] = ()
) -> list[str]:
    goals = zip(GOAL_SYMBOLS, board.goals.tolist(), strict=False)
    starts = zip(START_SYMBOLS, positions, strict=False)
    faults = ((FAULT_SYMBOL, cell) for cell in fault_cells)
    return format_rows(board.holes, (*goals, *starts, *faults))


def _moves(actions: np.ndarray) -> str:
    """Return a joint action by the initials of its actions, with ? for invalid numbers."""
    initials = {action.value: action.name[0] for action in Action}
    moves = (f"{START_SYMBOLS[k]}:{initials.get(int(a), '?')}" for k, a in enumerate(actions))
    return " ".join(moves)


def _wrap_frames(frames: list[list[str]], width: int) -> list[list[list[str]]]:
    """Distribute frames over lines of at most `width` characters."""
    bands: list[list[list[str]]] = [[]]
    used = 0
    for frame in frames:
        needed = len(frame[0]) + len(_GAP)
        if bands[-1] and used + needed > width + len(_GAP):
            bands.append([])
            used = 0
        bands[-1].append(frame)
        used += needed
    return bands
