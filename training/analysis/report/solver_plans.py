"""The solver's plans for the boards of a validation set, which no file of a run holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from jaxlake.board.grids import GridError, parse_grid
from jaxlake.board.instance import Instance
from jaxlake.language.prompts import action_names
from jaxlake.solver import Status
from jaxlake.solver.tiers import solve_batch
from training.rollout.instances import InstanceSet

BATCH_SIZE = 512
"""All calls have this size, so that one compiled program serves every run of a kind; a page has a
few thousand boards, and the compiler takes longer than they do. A run hands over the plans it has.
"""
_SIDES = (10, 16, 32)
"""Boards are padded to one of these, so that few programs are compiled, and kept on disk."""


def known_plans(boards: InstanceSet) -> dict[tuple[str, ...], list[list[str]] | None]:
    """Return the plans of least sum of costs of solved boards, by the rows of the board."""
    status, moves = np.asarray(boards.solutions.status), np.asarray(boards.solutions.plan)
    plans: dict[tuple[str, ...], list[list[str]] | None] = {}
    for row, board in enumerate(boards):
        agents = int(np.sum(board.agent_mask))
        found = status[row] == Status.OPTIMAL
        plans[tuple(boards.grid(row))] = action_names(moves[row, :, :agents]) if found else None
    return plans


def solver_plans(grids: Sequence[Sequence[str]]) -> list[list[list[str]] | None]:
    """Return a plan of least sum of costs for each board: the action names of each agent.

    It is None where the grid is no board, or where the solver finds no plan within its budget.
    """
    plans: list[list[list[str]] | None] = [None] * len(grids)
    alike: dict[tuple[int, int], list[tuple[int, Instance]]] = {}
    for place, grid in enumerate(grids):
        try:
            side = min(side for side in _SIDES if side >= len(grid))
            board = parse_grid(grid, max_size=side)
        except (GridError, ValueError):
            continue  # more rows than the solver takes, or no board at all
        alike.setdefault((side, len(board.agent_mask)), []).append((place, board))
    for boards in alike.values():
        for begin in range(0, len(boards), BATCH_SIZE):
            _solve_into(plans, boards[begin : begin + BATCH_SIZE])
    return plans


def _solve_into(
    plans: list[list[list[str]] | None], boards: Sequence[tuple[int, Instance]]
) -> None:
    """Solve one batch, filled up with boards without agents, and keep the plans found."""
    places = [place for place, _ in boards]
    filled = [board for _, board in boards]
    nobody: Any = np.zeros_like(filled[-1].agent_mask)
    filled += [replace(filled[-1], agent_mask=nobody)] * (BATCH_SIZE - len(filled))
    batch = jax.tree.map(lambda *leaves: np.stack(leaves), *filled)
    solution = solve_batch(batch)
    found, moves = np.asarray(solution.status), np.asarray(solution.plan)
    for row, place in enumerate(places):
        if found[row] == Status.OPTIMAL:
            agents = int(np.sum(boards[row][1].agent_mask))
            plans[place] = action_names(moves[row, :, :agents])
