"""Rates and paired differences over the seeds of a study, with 95% intervals.

The intervals answer two questions:

- a bootstrap over seeds and boards generalises to other seeds and other boards of the same kind;
- a paired t-test over seeds generalises to other seeds on the same boards. Its power is reported.

All seeds answer the same boards. A resample therefore draws S of the S seeds and, once for all of
them, B of the B boards, both with replacement. Its value is the mean of the S * B answers of the
drawn seeds to the drawn boards (the pigeonhole bootstrap: Owen 2007, Annals of Applied Statistics
1(2), 386-411).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

SEED = 0
"""Seed of every interval, so that intervals are independent of each other's order."""

_MAX_NUMBERS = 2**22
"""Maximum number of random numbers per batch, which bounds memory."""

RESAMPLES = 10_000
CONFIDENCE = 0.95
POWER = 0.8

_SPREADS = 10_000
"""Number of quantiles of the spread between seeds that the power is averaged over."""


@dataclass(frozen=True)
class Interval:
    """A mean with its interval."""

    value: float
    low: float
    high: float
    beyond: int  # 1 if the whole range lies above 0, -1 if below, 0 if it contains 0


def resampled_means(values: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Return the means, float (R,), of R resamples of the (S, B) values.

    A resample consists of counts per seed and per board, and its sum is the product of these counts
    with the table of values. Boards with equal columns are interchangeable, so the function draws
    counts of distinct columns.
    """
    seeds, boards = values.shape
    columns, times = np.unique(values, axis=1, return_counts=True)  # (S, C), (C,)
    table, shares = columns.T.astype(float), times / boards
    drawn_seeds = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples)
    at_once = max(1, _MAX_NUMBERS // len(shares))
    sums = [
        np.sum(rng.multinomial(boards, shares, size=len(part)) @ table * part, axis=1)
        for part in np.split(drawn_seeds, range(at_once, resamples, at_once))
    ]
    return np.concatenate(sums) / (seeds * boards)


def mean_interval(values: np.ndarray, resamples: int = RESAMPLES) -> Interval:
    """Return the mean of (S, B) values with its interval over seeds and boards.

    A value is, for example, the validity of an answer, or its difference from another engineer's
    answer with the same seed to the same board.
    """
    means = resampled_means(values, resamples, np.random.default_rng(SEED))
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    beyond = int(low > 0) - int(high < 0)
    return Interval(float(values.mean()), float(low), float(high), beyond)


@dataclass(frozen=True)
class Contrast:
    """A paired difference, as a share of all answers.

    Values that need several seeds, or a spread between seeds, are NaN without them.
    """

    seeds: tuple[int, ...]
    difference: Interval  # by the bootstrap
    deviation: float  # standard deviation of the differences of single seeds; NaN for one seed

    @property
    def over_seeds(self) -> tuple[float, float]:
        """The interval of the paired t-test over seeds."""
        if math.isnan(self.deviation):
            return math.nan, math.nan
        seeds = len(self.seeds)
        margin = stats.t.ppf((1 + CONFIDENCE) / 2, seeds - 1) * self.deviation / math.sqrt(seeds)
        return float(self.difference.value - margin), float(self.difference.value + margin)

    @property
    def detectable(self) -> float:
        """The smallest true difference that the test detects with probability `POWER`."""
        if not self.deviation > 0.0:
            return math.nan
        seeds = len(self.seeds)
        errors = optimize.brentq(lambda size: power(size, seeds) - POWER, 0.0, 100.0)
        return float(errors) * self.deviation / math.sqrt(seeds)


def power(difference: float, seeds: int) -> float:
    """Return the power of a paired two-sided t-test over two or more seeds.

    The power is averaged over quantiles of the estimated spread, because SciPy's noncentral t
    distribution gives NaN for two seeds. `difference` is in standard errors of its mean over seeds.
    """
    freedom = seeds - 1
    critical = stats.t.ppf((1 + CONFIDENCE) / 2, freedom)
    shares = (np.arange(_SPREADS) + 0.5) / _SPREADS
    thresholds = critical * np.sqrt(stats.chi2.ppf(shares, freedom) / freedom)
    powers = stats.norm.cdf(difference - thresholds) + stats.norm.cdf(-difference - thresholds)
    return float(powers.mean())


def contrast(ours: Mapping[int, np.ndarray], theirs: Mapping[int, np.ndarray]) -> Contrast:
    """Return the paired difference between two engineers over their common seeds.

    The outcomes are bool (B,) by seed.
    """
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        raise ValueError("there is no seed in common")
    first, second = (
        np.stack([answers[seed] for seed in seeds]).astype(np.int64) for answers in (ours, theirs)
    )
    differences = first.mean(axis=1) - second.mean(axis=1)
    deviation = float(differences.std(ddof=1)) if len(seeds) > 1 else math.nan
    return Contrast(tuple(seeds), mean_interval(first - second), deviation)
