"""pass@k: rates over several answers per board, with intervals over the boards."""

import math
from collections.abc import Hashable, Iterable

import numpy as np

from jaxlake.statistics.intervals import wilson_interval
from training.errors import UserError


def pass_rate(outcomes: Iterable[tuple[Hashable, bool]], k: int = 1) -> tuple[float, float, float]:
    """Estimate the probability that at least one of `k` answers to a board succeeds.

    The result is the mean over boards of the unbiased estimate of Chen et al. (2021), equation 1:
    1 - C(n-c, k) / C(n, k) for a board with n answers, of which c succeed. Boards with fewer than
    `k` answers are ignored.

    Answers to the same board are correlated. The 95% Wilson interval therefore uses the effective
    number of trials that matches the variance over boards. With one answer per board, it is the
    Wilson interval of the counts.

    Returns:
        (estimate, low, high); NaN, 0 and 1 if no board has `k` answers.
    """
    boards: dict[Hashable, list[bool]] = {}
    for board, success in outcomes:
        boards.setdefault(board, []).append(success)
    counts = [(len(successes), sum(successes)) for successes in boards.values()]
    counts = [(n, c) for n, c in counts if n >= k]
    if not counts:
        return math.nan, 0.0, 1.0
    estimates = np.array([1.0 - math.comb(n - c, k) / math.comb(n, k) for n, c in counts])
    mean, variance = float(estimates.mean()), float(estimates.var()) / len(estimates)
    trials = float(len(estimates))
    if 0.0 < mean < 1.0:
        num_answers = sum(n for n, _ in counts)
        trials = min(mean * (1.0 - mean) / variance, num_answers) if variance else num_answers
    low, high = wilson_interval(mean * trials, trials)
    return mean, float(low), float(high)


def pass_sizes(num_samples: int) -> list[int]:
    """Return the values of k to report: powers of two below `num_samples`, and itself."""
    return [*(2**power for power in range((num_samples - 1).bit_length())), num_samples]


def check_samples(num_samples: int, temperature: float) -> None:
    """Raise a `UserError` for several samples with greedy decoding."""
    if num_samples > 1 and temperature == 0.0:
        raise UserError(
            "--samples must be 1 with validation.temperature = 0, because all answers would be "
            f"equal, got {num_samples}"
        )
