"""Rates of an engineer and paired differences between engineers, with 95% intervals.

The intervals answer two questions:

- A bootstrap over seeds and boards generalises to other seeds and other boards of the same kind.
- A paired t-test over seeds generalises to other seeds on the same boards. Its power is reported.

All S seeds answer the same B boards. A resample draws S seeds with replacement, and B boards with
replacement that are common to all of its seeds. Its value is the mean of the S * B answers of the
drawn seeds to the drawn boards (the pigeonhole bootstrap: Owen 2007, Annals of Applied Statistics
1(2), 386-411).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

SEED = 0
"""Seed of every interval, so that results do not depend on the order of the calls."""

_MAX_BATCH_ELEMENTS = 2**22
"""Maximum number of random numbers per batch of resamples, which bounds memory."""

RESAMPLES = 10_000
CONFIDENCE = 0.95
POWER = 0.8

_NUM_QUANTILES = 10_000
"""Number of quantiles of the estimated deviation that the power is averaged over."""


@dataclass(frozen=True)
class Interval:
    """A mean with its interval."""

    value: float
    low: float
    high: float
    beyond: int  # 1 if the whole interval lies above 0, -1 if below, 0 if it contains 0


def resampled_means(values: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Return the means, float (R,), of R resamples of the (S, B) values.

    A resample is represented by how often each seed and each board occurs in it. Boards with equal
    columns are interchangeable, so the function draws the frequencies of distinct columns.
    """
    num_seeds, num_boards = values.shape
    columns, multiplicities = np.unique(values, axis=1, return_counts=True)  # (S, C), (C,)
    column_table, shares = columns.T.astype(float), multiplicities / num_boards
    seed_counts = rng.multinomial(
        num_seeds, np.full(num_seeds, 1 / num_seeds), size=resamples
    )  # (R, S)
    batch_size = max(1, _MAX_BATCH_ELEMENTS // len(shares))
    sums = [
        np.sum(rng.multinomial(num_boards, shares, size=len(batch)) @ column_table * batch, axis=1)
        for batch in np.split(seed_counts, range(batch_size, resamples, batch_size))
    ]
    return np.concatenate(sums) / (num_seeds * num_boards)


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
    """A paired difference between two engineers, as a share of all answers."""

    seeds: tuple[int, ...]
    difference: Interval  # by the bootstrap
    deviation: float  # standard deviation over seeds of the difference; NaN for one seed

    @property
    def over_seeds(self) -> tuple[float, float]:
        """The interval of the paired t-test over seeds; NaN for one seed."""
        if math.isnan(self.deviation):
            return math.nan, math.nan
        num_seeds = len(self.seeds)
        margin = (
            stats.t.ppf((1 + CONFIDENCE) / 2, num_seeds - 1) * self.deviation / math.sqrt(num_seeds)
        )
        return float(self.difference.value - margin), float(self.difference.value + margin)

    @property
    def detectable(self) -> float:
        """The smallest true difference that the t-test detects with probability `POWER`, or NaN."""
        if not self.deviation > 0.0:
            return math.nan
        num_seeds = len(self.seeds)
        standard_errors = optimize.brentq(lambda size: power(size, num_seeds) - POWER, 0.0, 100.0)
        return float(standard_errors) * self.deviation / math.sqrt(num_seeds)


def power(difference: float, num_seeds: int) -> float:
    """Return the power of a paired two-sided t-test over two or more seeds.

    The power is averaged over quantiles of the estimated deviation, because SciPy's noncentral t
    distribution gives NaN for two seeds. `difference` is in standard errors of its mean over seeds.
    """
    degrees = num_seeds - 1
    critical_value = stats.t.ppf((1 + CONFIDENCE) / 2, degrees)
    probabilities = (np.arange(_NUM_QUANTILES) + 0.5) / _NUM_QUANTILES
    thresholds = critical_value * np.sqrt(stats.chi2.ppf(probabilities, degrees) / degrees)
    powers = stats.norm.cdf(difference - thresholds) + stats.norm.cdf(-difference - thresholds)
    return float(powers.mean())


def contrast(outcomes: Mapping[int, np.ndarray], baselines: Mapping[int, np.ndarray]) -> Contrast:
    """Return the paired difference between two engineers over their common seeds.

    Args:
        outcomes: Outcomes of the first engineer by seed, bool (B,).
        baselines: Outcomes of the second engineer.

    Raises:
        ValueError: The engineers have no common seed.
    """
    seeds = sorted(outcomes.keys() & baselines.keys())
    if not seeds:
        raise ValueError("outcomes and baseline_outcomes must have a common seed, got none")
    values, baseline_values = (
        np.stack([arm[seed] for seed in seeds]).astype(np.int64) for arm in (outcomes, baselines)
    )
    differences = values.mean(axis=1) - baseline_values.mean(axis=1)
    deviation = float(differences.std(ddof=1)) if len(seeds) > 1 else math.nan
    return Contrast(tuple(seeds), mean_interval(values - baseline_values), deviation)
