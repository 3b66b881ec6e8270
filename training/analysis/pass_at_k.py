"""pass@k: rates over several answers per board, with intervals over the boards."""

import math
from collections.abc import Hashable, Iterable

import numpy as np

from jaxlake.statistics.intervals import wilson_interval
from training.errors import UserError


def pass_rate(outcomes: Iterable[tuple[Hashable, bool]], k: int = 1) -> tuple[float, float, float]:
    """Estimate the probability that at least one of `k` answers to a board succeeds.

    Each board has the unbiased estimate of Chen et al. (2021), equation 1. Boards with fewer than
    `k` answers are ignored. Answers to the same board are correlated. The 95% Wilson interval
    therefore uses the effective number of trials that matches the variance over boards. With one
    answer per board, it is the Wilson interval of the counts.

    Returns:
        (estimate, low, high); NaN, 0 and 1 if no board has `k` answers.
    """
    boards: dict[Hashable, list[bool]] = {}
    for board, success in outcomes:
        boards.setdefault(board, []).append(success)
    counts = [(len(hits), sum(hits)) for hits in boards.values() if len(hits) >= k]
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
    """Return the powers of two below the number of samples, and the number itself."""
    return [*(2**power for power in range((samples - 1).bit_length())), samples]


def check_samples(samples: int, temperature: float) -> None:
    """Raise a `UserError` for several samples with greedy decoding."""
    if samples > 1 and temperature == 0.0:
        raise UserError(
            f"--samples is {samples}; it must be 1 with validation.temperature = 0, which gives "
            "equal answers"
        )
