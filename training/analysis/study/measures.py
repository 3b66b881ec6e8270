"""What is measured of one engineer's runs: plain functions on arrays.

Shapes: S seeds, T stages (validations), B boards. Rates lie in 0..1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from training.analysis.study.reading import ValidationSet


@dataclass(frozen=True)
class BoardSlice:
    """The boards that agree in size, in the tenth of holes, and in whether they need a wait."""

    size: int
    hole_tenth: int
    needs_wait: bool
    rows: np.ndarray  # int (n,), n > 0: their numbers in the validation set


@dataclass(frozen=True)
class Spread:
    """A mean over seeds, and the range of the values that it is made of."""

    mean: float
    low: float
    high: float


def holes_name(tenth: int) -> str:
    """A hole tenth for people: `10-19%`."""
    return f"{10 * tenth}-{10 * tenth + 9}%"


def slices_of(boards: ValidationSet) -> list[BoardSlice]:
    """All slices that hold a board, by size, holes and waits."""
    kinds = np.stack([boards.size, boards.hole_tenth, boards.needs_wait], axis=1)
    keys, numbers = np.unique(kinds, axis=0, return_inverse=True)
    return [
        BoardSlice(int(size), int(tenth), bool(wait), np.flatnonzero(numbers.ravel() == number))
        for number, (size, tenth, wait) in enumerate(keys)
    ]


def spread(values: Sequence[float]) -> Spread:
    """The mean, the least and the largest of one value per seed."""
    return Spread(float(np.mean(values)), float(min(values)), float(max(values)))


def rate_spread(answers: np.ndarray) -> Spread:
    """The rates of bool (S, n) answers: a rate for each seed."""
    return spread(answers.mean(axis=1).tolist())


def worst_slice(
    answers: np.ndarray, slices: Sequence[BoardSlice], least_boards: int
) -> BoardSlice | None:
    """The slice of the lowest rate over all seeds; of equal ones the first.

    Args:
        answers: bool (S, B).
        slices: Of these boards.
        least_boards: A slice of fewer boards does not count.

    Returns:
        The slice; None if every slice is too small.
    """
    large = [one for one in slices if len(one.rows) >= least_boards]
    return min(large, key=lambda one: answers[:, one.rows].mean(), default=None)


def learnability(answers: np.ndarray) -> Spread:
    """p(1-p) for each seed, where p is the rate of bool (S, n) answers in one slice."""
    rates = answers.mean(axis=1)
    return spread((rates * (1 - rates)).tolist())


def flow(before: np.ndarray, after: np.ndarray, kinds: int) -> np.ndarray:
    """Count how answers moved between kinds, board by board.

    Args:
        before: int (S, B), the kind of each answer, below `kinds`.
        after: int (S, B), the same for later answers to the same boards.
        kinds: How many kinds there are, K.

    Returns:
        int (K, K): answers of kind i before and j after, over all seeds.
    """
    table = np.zeros((kinds, kinds), np.int64)
    np.add.at(table, (before.ravel(), after.ravel()), 1)
    return table


def mixture(
    configurations: Sequence[Sequence[Mapping[str, Mapping[str, float]]]],
) -> list[dict[str, dict[str, Spread]]]:
    """Summarise the knobs of each stage over seeds.

    Args:
        configurations: By seed, then stage: size -> knob -> value, the same sizes everywhere.

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
