"""Solved boards whose plans are imitated, and held-out ones that are answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from jaxlake.generator.board_digests import DigestSet
from jaxlake.language.prompts import PromptStyle, render, target
from training.pretraining.schema import PretrainConfig
from training.rollout.instances import BoardRequest, InstanceSet, draw_boards
from training.run.records import RequestOutcome
from training.run.seeds import key_for

PROMPT_STYLE: PromptStyle = "compact"

HELD_OUT_CANDIDATES = 500
"""The most boards drawn per held-out board of a cell."""


@dataclass(frozen=True)
class CellBoards:
    """The held-out boards, by cell of size, holes and need of a wait."""

    boards: InstanceSet
    cells: tuple[tuple[int, float, bool], ...]  # in the order of the boards
    rows: tuple[tuple[int, ...], ...]  # of each cell

    @property
    def names(self) -> list[str]:
        """How records and messages call the cells: 5x5_hr0.2_wait."""
        return [
            f"{size}x{size}_hr{holes:g}_{'wait' if waits else 'go'}"
            for size, holes, waits in self.cells
        ]


def draw_held_out(config: PretrainConfig, per_cell: int) -> CellBoards:
    """Draw up to `per_cell` boards for each cell; cells without any board are left out."""
    lake = config.boards
    wanted = list(product(lake.sizes, lake.hole_ratios))
    requests = [BoardRequest(*cell, 0.5, 2 * per_cell, lake.num_agents) for cell in wanted]
    boards, outcomes = _draw(config, 0, requests, DigestSet(), HELD_OUT_CANDIDATES * per_cell)
    numbers = _request_of_each(outcomes)
    needs_wait = np.asarray(boards.solutions.needs_wait)
    found = {
        (*cell, waits): tuple(np.flatnonzero((numbers == number) & (needs_wait == waits)).tolist())
        for number, cell in enumerate(wanted)
        for waits in (False, True)
    }
    found = {cell: rows for cell, rows in found.items() if rows}
    return CellBoards(boards, tuple(found), tuple(found.values()))


def draw_plans(config: PretrainConfig, held_out: CellBoards) -> list[tuple[str, str]]:
    """Draw boards that are not held out, and pair each one's prompt with its optimal plan.

    Kinds of boards that run out are fewer than their share.
    """
    lake = config.boards
    requests = [
        BoardRequest(size, holes, lake.wait_ratio, count, lake.num_agents)
        for size in lake.sizes
        for holes, share in lake.hole_ratios.items()
        if (count := round(lake.count * lake.shares[size] * share))
    ]
    seen = DigestSet(held_out.boards.instances)
    boards, _ = _draw(config, 1, requests, seen, lake.max_candidates)
    return [
        (render(board, PROMPT_STYLE), target(plan))
        for board, plan in zip(boards, boards.solutions.plan, strict=True)
    ]


def _draw(
    config: PretrainConfig,
    place: int,
    requests: Sequence[BoardRequest],
    seen: DigestSet,
    max_candidates: int,
) -> tuple[InstanceSet, list[RequestOutcome]]:
    return draw_boards(
        key_for(config.seed, "pretrain", place),
        requests,
        max_size=max(config.boards.sizes),
        max_candidates=max_candidates,
        seen=seen,
    )


def _request_of_each(outcomes: Sequence[RequestOutcome]) -> np.ndarray:
    """Return the number of the request that each board was drawn for, int (B,)."""
    return np.repeat(np.arange(len(outcomes)), [one.count - one.missing for one in outcomes])
