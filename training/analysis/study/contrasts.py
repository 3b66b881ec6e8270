"""Rates and paired differences over the seeds of a study, with 95% intervals.

The intervals answer two questions:

- a bootstrap over seeds and boards is about other seeds on other boards of the same kind;
- a paired t-test over seeds is about other seeds on these same boards. Its power is given, too.

All seeds answer the same boards. So a resample draws S of the S seeds with replacement and, once
for all of these, B of the B boards with replacement. Its value is the mean of the S * B answers of
the drawn seeds to the drawn boards (the pigeonhole bootstrap: Owen 2007, Annals of Applied
Statistics 1(2), 386-411).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

SEED = 0
"""Every interval is drawn from this seed anew, so that it does not depend on any other interval."""

_MOST_NUMBERS = 2**22
"""How many numbers are drawn at once: memory stays small for any number of boards and resamples."""

RESAMPLES = 10_000
CONFIDENCE = 0.95
POWER = 0.8

_SPREADS = 10_000
"""How many equally probable spreads between seeds the power is the mean over."""


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
    """Return the mean of (S, B) values with its interval over seeds and boards.

    The values are whether each answer is valid, for example, or that minus the same for another
    engineer's answer of the same seed to the same board.
    """
    means = resampled_means(values, resamples, np.random.default_rng(SEED))
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    beyond = int(low > 0) - int(high < 0)
    return Interval(float(values.mean()), float(low), float(high), beyond)


@dataclass(frozen=True)
class Contrast:
    """A paired difference, in shares of all answers.

    What one seed, or no spread between seeds, can't say is NaN.
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
        reach = stats.t.ppf((1 + CONFIDENCE) / 2, seeds - 1) * self.deviation / math.sqrt(seeds)
        return float(self.difference.value - reach), float(self.difference.value + reach)

    @property
    def detectable(self) -> float:
        """The smallest true difference that is found with a probability of `POWER`."""
        if not self.deviation > 0.0:
            return math.nan
        seeds = len(self.seeds)
        errors = optimize.brentq(lambda size: power(size, seeds) - POWER, 0.0, 100.0)
        return float(errors) * self.deviation / math.sqrt(seeds)

    def power(self, difference: float) -> float:
        """Return how often these seeds find a true difference, a share of all answers.

        True differences of single seeds are taken to spread as those of these seeds.
        """
        if not self.deviation > 0.0:
            return math.nan
        error = self.deviation / math.sqrt(len(self.seeds))
        return power(abs(difference) / error, len(self.seeds))


def power(difference: float, seeds: int) -> float:
    """Return how often a paired two-sided t-test over `seeds` (2 or more) finds a difference.

    The difference is in standard errors of its mean over seeds. The power is the mean over what the
    seeds may say of their own spread; SciPy's noncentral t distribution gives NaN for two seeds.
    """
    freedom = seeds - 1
    critical = stats.t.ppf((1 + CONFIDENCE) / 2, freedom)
    shares = (np.arange(_SPREADS) + 0.5) / _SPREADS
    needed = critical * np.sqrt(stats.chi2.ppf(shares, freedom) / freedom)
    found = stats.norm.cdf(difference - needed) + stats.norm.cdf(-difference - needed)
    return float(found.mean())


def contrast(ours: Mapping[int, np.ndarray], theirs: Mapping[int, np.ndarray]) -> Contrast:
    """Compare bool (B,) answers by seed, over the seeds that both have.

    Raises:
        ValueError: They have no seed in common.
    """
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        raise ValueError("there is no seed in common")
    first, second = (
        np.stack([answers[seed] for seed in seeds]).astype(np.int64) for answers in (ours, theirs)
    )
    apart = first.mean(axis=1) - second.mean(axis=1)
    deviation = float(apart.std(ddof=1)) if len(seeds) > 1 else math.nan
    return Contrast(tuple(seeds), mean_interval(first - second), deviation)
