"""Rates over several answers per board: pass@k, with intervals over the boards."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable

import numpy as np

from jaxlake.statistics.intervals import wilson_interval
from training.errors import UserError


def pass_rate(outcomes: Iterable[tuple[Hashable, bool]], k: int = 1) -> tuple[float, float, float]:
    """Estimate the chance that at least one of `k` answers to a board succeeds.

    The estimate of a board is the unbiased one of Chen et al. (2021), equation 1; boards with fewer
    than `k` answers are left out. The 95% interval is Wilson's, with as many trials as would give
    the variance over the boards: answers to one board are alike. With one answer per board it is
    Wilson's interval of the counts.

    Args:
        outcomes: One board and whether it succeeded per answer.
        k: Number of answers.

    Returns:
        (estimate, low, high); NaN, 0 and 1 if no board has `k` answers.
    """
    boards: dict[Hashable, list[bool]] = {}
    for board, success in outcomes:
        boards.setdefault(board, []).append(success)
    counts = [(len(own), sum(own)) for own in boards.values() if len(own) >= k]
    if not counts:
        return math.nan, 0.0, 1.0
    shares = np.array([1.0 - math.comb(n - c, k) / math.comb(n, k) for n, c in counts])
    share, variance = float(shares.mean()), float(shares.var()) / len(shares)
    trials = float(len(shares))
    if 0.0 < share < 1.0:
        answers = sum(n for n, _ in counts)
        trials = min(share * (1.0 - share) / variance, answers) if variance else answers
    low, high = wilson_interval(share * trials, trials)
    return share, float(low), float(high)


def pass_sizes(samples: int) -> list[int]:
    """Return the powers of two below the number of samples, and this number."""
    return [*(2**power for power in range((samples - 1).bit_length())), samples]


def check_samples(samples: int, temperature: float) -> None:
    """Refuse several samples of greedy decoding."""
    if samples > 1 and temperature == 0.0:
        raise UserError(
            f"--samples: got {samples}, allowed is 1 with validation.temperature = 0, which gives "
            "equal answers"
        )
