"""Percentile intervals of a mean over seeds and boards, by a bootstrap that resamples both.

All seeds answer the same boards, so a resample draws S seeds with replacement from the S that there
are and, once for all of these, B boards with replacement from the B that there are. Its value is
the mean of the S * B answers where drawn seeds and drawn boards cross (the pigeonhole bootstrap,
Owen 2007, Annals of Applied Statistics 1(2), 386-411). The interval reaches from one quantile of
the resamples to the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SEED = 0
"""Every interval is drawn from this seed anew, so that none depends on which others are made."""

_MOST_NUMBERS = 2**22
"""Drawn at once, so that memory stays small whatever the number of boards and resamples."""

MEASURED_CONFIDENCE = 0.95
MEASURED_COVERAGE = {
    1: (0.45, 0.96),
    2: (0.74, 1.0),
    3: (0.83, 1.0),
    5: (0.89, 1.0),
    10: (0.93, 1.0),
}
"""By number of seeds, how often a 95% interval of the difference of equal engineers held 0.

The least and the largest share that `python -m tests.training.study_coverage` finds, for seeds 3
and 0 points apart; the first table of `docs/studies.md`.
"""


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

    A resample is how often each seed and each board comes, and its sum is the table between these
    two. Boards with the same column are alike, so only how often each distinct column comes is
    drawn.

    Args:
        values: (S, B), a row a seed, a column a board.
        resamples: R.
        rng: where the draws come from.

    Returns:
        float (R,).
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


def misses_by_chance(count: int, *, seeds: int, confidence: float) -> tuple[float, float]:
    """How many intervals of differences leave 0 out if nothing makes a difference: least and most.

    Args:
        count: intervals.
        seeds: of each engineer, at least 1; the nearest number below counts that was measured.
        confidence: if it was not measured, intervals are taken to hold what they say.
    """
    if confidence != MEASURED_CONFIDENCE:
        return count * (1 - confidence), count * (1 - confidence)
    low, high = MEASURED_COVERAGE[max(known for known in MEASURED_COVERAGE if known <= seeds)]
    return count * (1 - high), count * (1 - low)
