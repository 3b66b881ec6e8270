"""Conversion of user input to boards, padded to a few shapes to limit compilations."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlake.board.grids import parse_grid
from jaxlake.board.instance import Instance, check_instance, pad_instance, stack_instances

BoardLike = Instance | Sequence[str] | str
"""An unbatched instance, the rows of a grid in the published symbols, or one multi-line string."""

_MIN_SIDE, _MIN_SLOTS, _MIN_SOLVER_SLOTS = 10, 5, 2


def as_instance(board: BoardLike) -> Instance:
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
        raise ValueError(f"must be one board, got a batch of shape {np.shape(board.size)}")
    mask = np.asarray(board.agent_mask)
    num_agents = int(np.sum(mask))
    if not num_agents or not mask[:num_agents].all():
        raise ValueError(f"agent_mask must be True for the agents, then False, got {mask.tolist()}")
    leaves: dict[str, Any] = {name: np.asarray(leaf) for name, leaf in vars(board).items()}
    for name in ("starts", "goals", "agent_mask"):
        leaves[name] = leaves[name][:num_agents]
    return Instance(**leaves)


def stack_boards(boards: Sequence[BoardLike]) -> Instance:
    """Stack boards of any sizes and numbers of agents into one batch, padded to a few shapes.

    Args:
        boards: Instances or grids.

    Returns:
        The batch, leaves (B, ...), with NumPy leaves.

    Raises:
        ValueError: A board is invalid; the message names its index.
    """
    instances = []
    for index, board in enumerate(boards):
        try:
            instances.append(as_instance(board))
        except (TypeError, ValueError) as error:
            raise ValueError(f"boards[{index}]: {error}") from None
    side = max(map(_padded_side, instances))
    num_slots = _round_up(max(len(instance.agent_mask) for instance in instances), _MIN_SLOTS)
    return stack_instances([pad_instance(instance, side, num_slots) for instance in instances])


def pad_for_solver(board: Instance) -> Instance:
    """Pad a result of `as_instance` to one of a few sides and to the slots that `solve` needs."""
    num_slots = max(len(board.agent_mask), _MIN_SOLVER_SLOTS)
    return pad_instance(board, _padded_side(board), num_slots)


def _padded_side(board: Instance) -> int:
    return _round_up(len(board.holes), _MIN_SIDE)


def _round_up(value: int, minimum: int) -> int:
    """Return `minimum` for values up to it, and the next power of two for larger values."""
    return minimum if value <= minimum else 1 << (value - 1).bit_length()
