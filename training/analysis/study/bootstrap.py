"""Percentile intervals of a mean over seeds and boards, by a bootstrap that resamples both.

All seeds answer the same boards. So a resample draws S of the S seeds with replacement and, once
for all of these, B of the B boards with replacement. Its value is the mean of the S * B answers of
the drawn seeds to the drawn boards (the pigeonhole bootstrap: Owen 2007, Annals of Applied
Statistics 1(2), 386-411). The interval reaches from one quantile of these values to another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SEED = 0
"""Every interval is drawn from this seed anew, so that it does not depend on any other interval."""

_MOST_NUMBERS = 2**22
"""How many numbers are drawn at once: memory stays small for any number of boards and resamples."""

RESAMPLES = 10_000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean, and the range in which its resamples lie."""

    value: float
    low: float
    high: float
    beyond: int  # 1 if the whole range lies above 0, -1 if below, 0 if it contains 0


def resampled_means(values: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Return the float (R,) means of R resamples of (S, B) values.

    A resample says how often each seed and each board is drawn; its sum is the product of these
    counts with the table of values. Boards whose columns are equal are interchangeable, so it is
    enough to draw how often each distinct column comes.
    """
    seeds, boards = values.shape
    columns, times = np.unique(values, axis=1, return_counts=True)  # (S, C), (C,)
    table, shares = columns.T.astype(float), times / boards
    drawn_seeds = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples)
    at_once = max(1, _MOST_NUMBERS // len(shares))
    sums = [
        np.sum(rng.multinomial(boards, shares, size=len(part)) @ table * part, axis=1)
        for part in np.split(drawn_seeds, range(at_once, resamples, at_once))
    ]
    return np.concatenate(sums) / (seeds * boards)


def mean_interval(values: np.ndarray, resamples: int = RESAMPLES) -> Interval:
    """Return the mean of (S, B) values with its 95% interval over seeds and boards.

    The values are whether each answer is valid, for example, or that minus the same for another
    engineer's answer of the same seed to the same board.
    """
    means = resampled_means(values, resamples, np.random.default_rng(SEED))
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    beyond = int(low > 0) - int(high < 0)
    return Interval(float(values.mean()), float(low), float(high), beyond)


def paired_interval(ours: np.ndarray, theirs: np.ndarray, resamples: int = RESAMPLES) -> Interval:
    """Return the mean of bool (S, B) answers minus others of the same seeds to the same boards."""
    return mean_interval(ours.astype(np.int64) - theirs.astype(np.int64), resamples)
