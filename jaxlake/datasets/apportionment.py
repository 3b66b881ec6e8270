"""Whole shares of whole quotas, by which shards and parts of a set divide its boards."""

import heapq
from fractions import Fraction

import numpy as np


def webster(weights: np.ndarray, seats: int) -> np.ndarray:
    """Whole shares of `seats` in proportion to whole weights, by Webster's method.

    The method is monotone (Balinski and Young, *Fair Representation*, 1982): one more seat never
    costs anyone a seat. So differences of two allotments are allotments too, and for all seats
    everyone has its weight.
    """
    whole = [int(weight) for weight in weights]
    # All thresholds (2 i + 1) / (2 weight) up to `level` are passed, which are at most `seats`.
    level = max(Fraction(0), Fraction(2 * seats - len(whole), 2 * sum(whole)))
    shares = [int(level * weight + Fraction(1, 2)) for weight in whole]

    def threshold(i: int) -> tuple[Fraction, int]:
        return Fraction(2 * shares[i] + 1, 2 * whole[i]), i

    queue = [threshold(i) for i, weight in enumerate(whole) if weight]
    heapq.heapify(queue)
    for _ in range(seats - sum(shares)):
        i = queue[0][1]
        shares[i] += 1
        heapq.heapreplace(queue, threshold(i))
    return np.array(shares, np.int64)
