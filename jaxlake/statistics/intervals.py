"""Intervals of proportions, in NumPy."""

from statistics import NormalDist
from typing import Any

import numpy as np


def wilson_interval(
    successes: Any, total: Any, confidence: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the score interval of a proportion (Wilson 1927), elementwise in NumPy float64.

    There are 0 to `total` successes; where the total is 0 the interval is (0, 1). The `confidence`,
    its coverage, lies strictly between 0 and 1. Gives (low, high), within 0 and 1.

    Raises:
        ValueError: An argument is out of range.
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence: got {confidence}, above 0 and below 1 is allowed")
    k = np.asarray(successes, np.float64)
    n = np.asarray(total, np.float64)
    if np.any(n < 0) or np.any(k < 0) or np.any(k > n):
        raise ValueError(f"successes: got {successes} of total {total}, 0 to total are allowed")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    trials = np.maximum(n, 1.0)
    share = k / trials
    scale = 1.0 + z**2 / trials
    centre = (share + z**2 / (2 * trials)) / scale
    half = z / scale * np.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))
    # At the ends the bounds are 0 and 1 exactly; the formula gives them up to rounding.
    low = np.where(k == 0, 0.0, np.maximum(centre - half, 0.0))
    high = np.where(k == n, 1.0, np.minimum(centre + half, 1.0))
    return np.where(n == 0, 0.0, low), np.where(n == 0, 1.0, high)
