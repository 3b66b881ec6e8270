"""Confidence intervals of proportions, in NumPy."""

from statistics import NormalDist
from typing import Any

import numpy as np


def wilson_interval(
    successes: Any, total: Any, confidence: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """Return the score interval of a proportion (Wilson 1927), elementwise in float64.

    Args:
        successes: Numbers of successes, 0 to `total`.
        total: Numbers of trials. A total of 0 gives the interval (0, 1).
        confidence: Coverage of the interval, strictly between 0 and 1.

    Returns:
        Arrays (low, high) of bounds in [0, 1].

    Raises:
        ValueError: An argument is out of range.
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}")
    k = np.asarray(successes, np.float64)
    n = np.asarray(total, np.float64)
    if np.any(n < 0) or np.any(k < 0) or np.any(k > n):
        raise ValueError(f"successes must be in [0, total], got {successes} with total {total}")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    trials = np.maximum(n, 1.0)
    p = k / trials
    scale = 1.0 + z**2 / trials
    centre = (p + z**2 / (2 * trials)) / scale
    half_width = z / scale * np.sqrt(p * (1 - p) / trials + z**2 / (4 * trials**2))
    # The formula has rounding errors where the bounds are exactly 0 and 1.
    low = np.where(k == 0, 0.0, np.maximum(centre - half_width, 0.0))
    high = np.where(k == n, 1.0, np.minimum(centre + half_width, 1.0))
    return np.where(n == 0, 0.0, low), np.where(n == 0, 1.0, high)
