"""What is measured of one engineer's runs: plain functions on arrays.

Shapes: S seeds, T stages (validations), B boards. Rates lie in 0..1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from training.study.reading import Boards


@dataclass(frozen=True)
class Cell:
    """The boards of one size, hole tenth (floor(10 * holes / cells)) and need of a wait."""

    size: int
    hole_tenth: int
    needs_wait: bool
    rows: np.ndarray  # int (n,), n > 0

    @property
    def name(self) -> str:
        """For people: `4x4, holes 10-19%, wait`."""
        wait = "wait" if self.needs_wait else "no wait"
        return f"{self.size}x{self.size}, holes {holes_name(self.hole_tenth)}, {wait}"


@dataclass(frozen=True)
class Spread:
    """A mean over seeds and the range it is made of."""

    mean: float
    low: float
    high: float


def holes_name(tenth: int) -> str:
    """A hole tenth for people: `10-19%`."""
    return f"{10 * tenth}-{10 * tenth + 9}%"


def cells_of(boards: Boards) -> list[Cell]:
    """All cells that hold a board, by size, holes and waits."""
    keys = list(
        zip(
            boards.size.tolist(),
            boards.hole_tenth.tolist(),
            boards.needs_wait.tolist(),
            strict=True,
        )
    )
    return [
        Cell(*key, np.array([row for row, other in enumerate(keys) if other == key]))
        for key in sorted(set(keys))
    ]


def spread(values: Sequence[float]) -> Spread:
    """The mean, the least and the largest of one value a seed."""
    return Spread(float(np.mean(values)), float(min(values)), float(max(values)))


def rate_spread(answers: np.ndarray) -> Spread:
    """The rates of bool (S, n) answers: a rate for each seed."""
    return spread(answers.mean(axis=1).tolist())


def worst_cell(answers: np.ndarray, cells: Sequence[Cell], least_boards: int) -> Cell | None:
    """The cell of the lowest rate over all seeds; of equal ones the first.

    Args:
        answers: bool (S, B).
        cells: of these boards.
        least_boards: a cell of fewer boards doesn't count.

    Returns:
        The cell; None where every cell is too small.
    """
    large = [cell for cell in cells if len(cell.rows) >= least_boards]
    return min(large, key=lambda cell: answers[:, cell.rows].mean(), default=None)


def learnability(answers: np.ndarray) -> Spread:
    """p(1-p), p the rate of bool (S, n) answers in one cell, for each seed."""
    rates = answers.mean(axis=1)
    return spread((rates * (1 - rates)).tolist())


def flow(before: np.ndarray, after: np.ndarray, kinds: int) -> np.ndarray:
    """How answers moved between kinds, board by board.

    Args:
        before: int (S, B), the kind of each answer, below `kinds`.
        after: int (S, B), of the same boards later.
        kinds: K.

    Returns:
        int (K, K): answers of kind i before and j after, over all seeds.
    """
    table = np.zeros((kinds, kinds), np.int64)
    np.add.at(table, (before.ravel(), after.ravel()), 1)
    return table


def mixture(
    configurations: Sequence[Sequence[Mapping[str, Mapping[str, float]]]],
) -> list[dict[str, dict[str, Spread]]]:
    """The knobs of each stage over seeds.

    Args:
        configurations: by seed, then stage: size -> knob -> value, the same sizes everywhere.

    Returns:
        By stage: size -> knob -> spread over the seeds.
    """
    return [
        {
            size: {knob: spread([one[size][knob] for one in stage]) for knob in stage[0][size]}
            for size in stage[0]
        }
        for stage in zip(*configurations, strict=True)
    ]
