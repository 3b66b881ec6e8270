"""The difference of two engineers over the seeds that both have, with two 95% intervals.

The intervals answer two questions:

- `difference` is about other seeds on other boards of the same kind: a bootstrap over seeds and
  boards (`bootstrap.py`);
- `over_seeds` is about other seeds on these same boards: a paired t-test over seeds.

The power is that of this t-test. Everything is NaN where one seed, or no spread between seeds,
says nothing about other seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from training.analysis.study.bootstrap import Interval, paired_interval

POWER = 0.8
LEVEL = 0.05

_SPREADS = 10_000
"""How many equally probable spreads between seeds the power is the mean over."""


@dataclass(frozen=True)
class Contrast:
    """A paired difference, in shares of all answers."""

    seeds: tuple[int, ...]
    difference: Interval
    deviation: float  # standard deviation of the differences of single seeds; NaN for one seed

    @property
    def over_seeds(self) -> tuple[float, float]:
        """The interval of the paired t-test over seeds."""
        if math.isnan(self.deviation):
            return math.nan, math.nan
        seeds = len(self.seeds)
        reach = stats.t.ppf(1 - LEVEL / 2, seeds - 1) * self.deviation / math.sqrt(seeds)
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
    critical = stats.t.ppf(1 - LEVEL / 2, freedom)
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
    first, second = (np.stack([answers[seed] for seed in seeds]) for answers in (ours, theirs))
    apart = first.mean(axis=1) - second.mean(axis=1)
    deviation = float(apart.std(ddof=1)) if len(seeds) > 1 else math.nan
    return Contrast(tuple(seeds), paired_interval(first, second), deviation)
