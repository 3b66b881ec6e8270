"""Solved boards for imitation, and held-out boards for evaluation."""

from __future__ import annotations

from itertools import product
from string import ascii_lowercase
from typing import NamedTuple

import numpy as np

from examples.base_model.recipe import Recipe
from jaxlake.board.dynamics import ACTION_DELTAS
from jaxlake.board.instance import Instance
from jaxlake.generator.board_digests import DigestSet
from jaxlake.language.prompts import action_names, render, target
from training.rollout.instances import BoardRequest, InstanceSet, draw_boards
from training.run.seeds import derive_key

CANDIDATES_PER_BOARD = 500
"""Maximum number of drawn boards per held-out board of a cell."""
_HELD_OUT_STREAM, _PLAN_STREAM = 0, 1
"""Random streams of the boards; `train.py` uses others."""


class HeldOut(NamedTuple):
    """Boards, and their row numbers by size, hole ratio and need of a wait: `5x5_hr0.2_wait`."""

    boards: InstanceSet
    cells: dict[str, np.ndarray]


def draw_held_out(recipe: Recipe, boards_per_cell: int) -> HeldOut:
    """Draw up to `boards_per_cell` boards for each cell; cells without any board are left out."""
    settings = recipe.boards
    kinds = list(product(settings.sizes, settings.hole_ratios))
    boards, reports = draw_boards(
        derive_key(recipe.seed, "pretrain", _HELD_OUT_STREAM),
        [BoardRequest(*kind, 0.5, 2 * boards_per_cell, settings.num_agents) for kind in kinds],
        max_size=max(settings.sizes),
        max_candidates=CANDIDATES_PER_BOARD * boards_per_cell,
    )
    board_counts = [report.count - report.missing for report in reports]
    kind_by_board = np.repeat(np.arange(len(kinds)), board_counts)
    needs_wait = np.asarray(boards.solutions.needs_wait)
    cells = {
        f"{size}x{size}_hr{holes:g}_{'wait' if waits else 'go'}": np.flatnonzero(
            (kind_by_board == kind_index) & (needs_wait == waits)
        )
        for kind_index, (size, holes) in enumerate(kinds)
        for waits in (False, True)
    }
    return HeldOut(boards, {name: rows for name, rows in cells.items() if len(rows)})


def draw_plans(recipe: Recipe, held_out: HeldOut) -> list[tuple[str, str]]:
    """Draw boards that are not held out; return pairs of a prompt and an optimal plan.

    A kind with too few boards gets fewer than its share.
    """
    settings = recipe.boards
    boards, _ = draw_boards(
        derive_key(recipe.seed, "pretrain", _PLAN_STREAM),
        [
            BoardRequest(size, hole_ratio, settings.wait_ratio, count, settings.num_agents)
            for size in settings.sizes
            for hole_ratio, share in settings.hole_ratios.items()
            if (count := round(settings.count * settings.shares[size] * share))
        ],
        max_size=max(settings.sizes),
        max_candidates=settings.max_candidates,
        seen_boards=DigestSet(held_out.boards.instances),
    )
    return [
        (render(board, "compact"), _format_answer(board, plan, with_steps=settings.steps))
        for board, plan in zip(boards, boards.solutions.plan, strict=True)
    ]


def _format_answer(board: Instance, plan: np.ndarray, *, with_steps: bool) -> str:
    lines = target(plan)
    return f"{write_steps(np.asarray(board.starts), plan)}\n{lines}" if with_steps else lines


def write_steps(starts: np.ndarray, plan: np.ndarray) -> str:
    """Return the agents' cells before each step of a plan and after the last, one line per step.

    A cell is a letter for its row and a digit for its column: `a0 c2` is agent 0 at (0, 0) and
    agent 1 at (2, 2). A tokenizer trained on such lines gives each cell one token.

    Args:
        starts: The agents' first cells, int (K, 2).
        plan: The agents' actions, int (T, K); waits after the last arrival are left out.
    """
    length = max(map(len, action_names(plan)))
    moves = ACTION_DELTAS[np.asarray(plan)[:length]]
    cells = np.cumsum(np.concatenate([np.asarray(starts)[None], moves]), axis=0)
    return "\n".join(
        " ".join(f"{ascii_lowercase[row]}{column}" for row, column in step) for step in cells
    )
