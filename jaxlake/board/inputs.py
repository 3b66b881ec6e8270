"""Conversion of user input to boards, padded to a few shapes to limit compilations."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlake.board.grids import parse_grid
from jaxlake.board.instance import Instance, check_instance, pad_instance, stack_instances

Board = Instance | Sequence[str] | str
"""An unbatched instance, the rows of a grid in the published symbols, or one multi-line string."""

_LEAST_SIDE, _LEAST_SLOTS, _LEAST_TO_SOLVE = 10, 5, 2


def as_instance(board: Board) -> Instance:
    """Return a board as an unbatched instance with NumPy leaves and one slot per agent.

    Raises:
        TypeError: A leaf of the board has the wrong dtype.
        ValueError: The board is invalid or a batch. Invalid grids raise `GridError`, a subclass.
    """
    if isinstance(board, str):
        board = [row for row in board.splitlines() if row.strip()]
    if not isinstance(board, Instance):
        board = parse_grid(list(board))
    check_instance(board)
    if np.ndim(board.size):
        raise ValueError(f"got a batch of shape {np.shape(board.size)}, one board is needed")
    mask = np.asarray(board.agent_mask)
    agents = int(np.sum(mask))
    if not agents or not mask[:agents].all():
        raise ValueError(f"agent_mask: got {mask.tolist()}, agents in the first slots are needed")
    leaves: dict[str, Any] = {name: np.asarray(leaf) for name, leaf in vars(board).items()}
    for name in ("starts", "goals", "agent_mask"):
        leaves[name] = leaves[name][:agents]
    return Instance(**leaves)


def stack_boards(boards: Sequence[Board]) -> Instance:
    """Return boards of any sizes and agent counts as one batch, padded to one of a few shapes.

    Args:
        boards: Instances or grids.

    Returns:
        The batch, leaves (B, ...), with NumPy leaves.

    Raises:
        ValueError: A board is invalid; the message names its row.
    """
    instances = []
    for row, board in enumerate(boards):
        try:
            instances.append(as_instance(board))
        except (TypeError, ValueError) as error:
            raise ValueError(f"board: row {row}: {error}") from None
    side = max(map(_side, instances))
    slots = _round_up(max(map(_agents, instances)), _LEAST_SLOTS)
    return stack_instances([pad_instance(instance, side, slots) for instance in instances])


def pad_for_solver(board: Instance) -> Instance:
    """Pad a result of `as_instance` to one of a few sides and to the slots that `solve` needs."""
    return pad_instance(board, _side(board), max(_agents(board), _LEAST_TO_SOLVE))


def _agents(board: Instance) -> int:
    return np.shape(board.agent_mask)[-1]


def _side(board: Instance) -> int:
    return _round_up(np.shape(board.holes)[-1], _LEAST_SIDE)


def _round_up(value: int, least: int) -> int:
    """Return `least`, or the smallest power of two that is at least `value` if that is larger."""
    return least if value <= least else 1 << (value - 1).bit_length()
