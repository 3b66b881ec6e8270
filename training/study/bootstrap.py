"""Percentile intervals of a mean over seeds and boards, by a bootstrap that resamples both.

A resample draws S seeds with replacement from the S that there are, and for each draw of a seed
B boards with replacement from the B that there are; its value is the mean over the S * B drawn
values (Davison and Hinkley 1997, section 3.8, both levels with replacement). The interval reaches
from one quantile of the resamples to the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SEED = 0
"""Every interval is drawn from this seed anew, so that none depends on which others are made."""


@dataclass(frozen=True)
class Interval:
    """A mean and where its resamples lie."""

    value: float
    low: float
    high: float

    @property
    def beyond(self) -> int:
        """1 if the whole interval lies above 0, -1 if below, 0 if it holds 0."""
        return int(self.low > 0) - int(self.high < 0)


def resampled_means(values: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """The means of the resamples.

    Drawing B boards with replacement and adding up is drawing how often each distinct value comes,
    which is multinomial: so no board is drawn by itself.

    Args:
        values: (S, B), a row a seed, a column a board; few distinct values.
        resamples: R.
        rng: where the draws come from.

    Returns:
        float (R,).
    """
    seeds, boards = values.shape
    levels = np.unique(values)
    shares = (values[..., None] == levels).mean(axis=1)  # (S, L)
    drawn = rng.integers(seeds, size=(resamples, seeds))
    counts = rng.multinomial(boards, shares[drawn])  # (R, S, L)
    return counts.sum(axis=1) @ levels.astype(float) / (seeds * boards)


def mean_interval(values: np.ndarray, *, resamples: int, confidence: float) -> Interval:
    """The mean of a table of seeds and boards with its interval.

    Args:
        values: (S, B), such as whether each answer is valid, or the difference of that to the
            answer of another engineer of the same seed to the same board.
        resamples: of the bootstrap.
        confidence: share of the resamples that the interval holds.
    """
    means = resampled_means(values, resamples, np.random.default_rng(SEED))
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(values.mean()), float(low), float(high))


def paired_interval(
    ours: np.ndarray, theirs: np.ndarray, *, resamples: int, confidence: float
) -> Interval:
    """The mean difference of two tables whose rows are the same seeds and columns the same boards.

    Args:
        ours: bool (S, B).
        theirs: bool (S, B), what is subtracted.
        resamples: see `mean_interval`.
        confidence: see `mean_interval`.
    """
    difference = ours.astype(np.int64) - theirs.astype(np.int64)
    return mean_interval(difference, resamples=resamples, confidence=confidence)
