"""Intervals of a study: their coverage, and the values beyond them."""

import math

import numpy as np
import pytest
from scipy import stats

from training.analysis.study.contrasts import (
    Contrast,
    Interval,
    contrast,
    mean_interval,
    power,
    resampled_means,
)


def simulate_coverage(
    num_seeds: int, deviation: float, num_boards: int, independent_share: float = 0.0
) -> tuple[float, float]:
    """Return how often 95% intervals of a rate, and of a difference of 0, contain the truth.

    Two engineers of equal strength answer the same boards, whose chances have a beta distribution.
    The chances are independent on `independent_share` of the boards. The true rates of runs differ
    by `deviation`.
    """
    rng, rate, num_repeats = np.random.default_rng(11), 0.3, 200
    rate_hits = difference_hits = 0

    def draw_answers(probabilities: np.ndarray) -> np.ndarray:
        shifts = rng.normal(0.0, deviation, size=(num_seeds, 1))
        scales = np.where(shifts > 0, (1 - probabilities) / (1 - rate), probabilities / rate)
        return rng.random((num_seeds, num_boards)) < probabilities + shifts * scales

    for _ in range(num_repeats):
        shared, other = rng.beta(rate / 3, (1 - rate) / 3, size=(2, num_boards))
        first = draw_answers(shared)
        second = draw_answers(np.where(rng.random(num_boards) < independent_share, other, shared))
        rate_interval = mean_interval(first, resamples=400)
        difference_interval = mean_interval(first.astype(int) - second, resamples=400)
        rate_hits += rate_interval.low <= rate <= rate_interval.high
        difference_hits += difference_interval.low <= 0 <= difference_interval.high
    return rate_hits / num_repeats, difference_hits / num_repeats


def test_interval_coverage_is_nominal():
    for share in simulate_coverage(num_seeds=20, deviation=0.05, num_boards=100):
        assert 0.9 <= share <= 0.99


@pytest.mark.parametrize("independent_share", [0.0, 0.25])
def test_intervals_account_for_shared_boards(independent_share):
    rate_coverage, difference_coverage = simulate_coverage(3, 0.0, 900, independent_share)
    assert rate_coverage >= 0.91
    assert difference_coverage >= 0.93


def test_resamples_have_the_crossed_variance():
    rng = np.random.default_rng(3)
    values = (rng.random((12, 1500)) < rng.beta(0.3, 0.7, size=1500)).astype(int)
    num_seeds, num_boards = values.shape
    means = resampled_means(values, 10_000, np.random.default_rng(0))
    # For multinomial counts, E[w_s w_t] = 1 - 1/S, and 1 more where s = t.
    seed_factor, board_factor = 1 - 1 / num_seeds, 1 - 1 / num_boards
    squares = (
        seed_factor * board_factor * values.sum() ** 2
        + seed_factor * (values.sum(axis=0) ** 2).sum()
        + board_factor * (values.sum(axis=1) ** 2).sum()
        + (values**2).sum()
    )
    variance = squares / values.size**2 - values.mean() ** 2
    assert means.mean() == pytest.approx(values.mean(), abs=4 * math.sqrt(variance / 10_000))
    assert len(means) == 10_000
    assert means.var() == pytest.approx(variance, rel=0.06)


@pytest.mark.parametrize(
    ("values", "low", "high", "beyond"),
    [
        # With two boards, 25% of the resamples draw the first one twice, and 25% the second.
        ([0, 1], 0, 1, 0),
        ([-1, 0], -1, 0, 0),
        ([0, 0], 0, 0, 0),
        ([-1, 1], -1, 1, 0),
        ([1, 2], 1, 2, 1),
        ([-2, -1], -2, -1, -1),
    ],
)
def test_interval_ending_at_zero_is_not_beyond(values, low, high, beyond):
    interval = mean_interval(np.array([values]), resamples=500)
    assert (interval.low, interval.high, interval.beyond) == (low, high, beyond)
    assert interval.value == sum(values) / 2


@pytest.mark.parametrize("num_seeds", [2, 3, 8])
def test_power_matches_simulated_t_tests(num_seeds: int):
    deviation = 0.01
    result = Contrast(tuple(range(num_seeds)), Interval(0.0, 0.0, 0.0, 0), deviation)
    error = deviation / np.sqrt(num_seeds)
    rng = np.random.default_rng(num_seeds)
    for difference in (result.detectable, 0.02):
        samples = rng.normal(difference, deviation, (20_000, num_seeds))
        simulated_power = np.mean(stats.ttest_1samp(samples, 0.0, axis=1).pvalue < 0.05)
        assert power(difference / error, num_seeds) == pytest.approx(simulated_power, abs=0.015)
    assert power(result.detectable / error, num_seeds) == pytest.approx(0.8)
    assert power(0.0, num_seeds) == pytest.approx(0.05, rel=1e-3)


@pytest.mark.parametrize("num_seeds", [2, 3, 8])
def test_interval_over_seeds_is_a_paired_t_test(num_seeds: int):
    rng = np.random.default_rng(num_seeds)
    first, second = (dict(enumerate(rng.random((num_seeds, 50)) < rate)) for rate in (0.6, 0.5))
    del second[0], first[num_seeds - 1]
    if num_seeds == 2:
        with pytest.raises(ValueError, match="must have a common seed"):
            contrast(first, second)
        return
    result = contrast(first, second)
    assert result.seeds == tuple(range(1, num_seeds - 1))
    if num_seeds == 3:
        assert np.isnan([*result.over_seeds, result.detectable]).all()
        return
    rates = [[answers[seed].mean() for seed in result.seeds] for answers in (first, second)]
    expected = stats.ttest_rel(*rates).confidence_interval(0.95)
    assert result.over_seeds == pytest.approx((expected.low, expected.high))
    assert result.difference.value == pytest.approx(np.mean(rates[0]) - np.mean(rates[1]))
