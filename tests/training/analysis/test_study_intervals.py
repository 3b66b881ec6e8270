"""Intervals of a study: how often they hold the truth, and what lies beyond one of them."""

import math

import numpy as np
import pytest

from tests.paths import ROOT
from training.analysis.study.bootstrap import (
    mean_interval,
    misses_by_chance,
    paired_interval,
    resampled_means,
)


def simulated_coverage(
    seeds: int, deviation: float, boards: int, own_share: float = 0.0
) -> tuple[float, float]:
    """Return how often 95% intervals of a rate, and of a difference of 0, contain the truth.

    Two engineers of equal strength answer the same boards, whose chances have a beta distribution;
    on `own_share` of the boards the engineers' chances are independent. The true rates of runs
    differ by `deviation`.
    """
    rng, rate, repeats = np.random.default_rng(11), 0.3, 200
    rates = differences = 0

    def answers(chances: np.ndarray) -> np.ndarray:
        moved = rng.normal(0.0, deviation, size=(seeds, 1))
        room = np.where(moved > 0, (1 - chances) / (1 - rate), chances / rate)
        return rng.random((seeds, boards)) < chances + moved * room

    for _ in range(repeats):
        shared, other = rng.beta(rate / 3, (1 - rate) / 3, size=(2, boards))
        ours = answers(shared)
        theirs = answers(np.where(rng.random(boards) < own_share, other, shared))
        one = mean_interval(ours, resamples=400, confidence=0.95)
        two = paired_interval(ours, theirs, resamples=400, confidence=0.95)
        rates += one.low <= rate <= one.high
        differences += two.low <= 0 <= two.high
    return rates / repeats, differences / repeats


def test_intervals_contain_the_truth_about_as_often_as_they_say():
    for share in simulated_coverage(seeds=20, deviation=0.05, boards=100):
        assert 0.9 <= share <= 0.99


@pytest.mark.parametrize("own_share", [0.0, 0.25])
def test_intervals_know_that_all_seeds_answer_the_same_boards(own_share):
    rates, differences = simulated_coverage(3, 0.0, 900, own_share)
    assert rates >= 0.91
    assert differences >= 0.93


def documented_coverage() -> dict[int, list[float]]:
    """By number of seeds, the first table of coverage in the documentation, from top to bottom."""
    text = (ROOT / "docs/how_to/studies.md").read_text(encoding="utf-8")
    title = "standard deviation of a run's true rate between seeds"
    lines = text[text.index(f"| {title} |") :].split("\n\n", 1)[0].splitlines()
    heads, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return {
        int(head.split()[0]): [int(row[column].rstrip("%")) / 100 for row in rows]
        for column, head in enumerate(heads)
        if column
    }


def test_misses_by_chance_come_from_the_documented_coverage():
    for seeds, shares in documented_coverage().items():
        least, most = misses_by_chance(100, seeds=seeds, confidence=0.95)
        assert (least, most) == pytest.approx((100 * (1 - max(shares)), 100 * (1 - min(shares))))
    # For a number of seeds that was not measured, the next lower one; 0.5 was not measured at all.
    four, three = (misses_by_chance(9, seeds=seeds, confidence=0.95) for seeds in (4, 3))
    assert four == three
    assert misses_by_chance(10, seeds=3, confidence=0.5) == (5, 5)


def test_resamples_vary_as_crossed_draws_of_seeds_and_boards_do():
    rng = np.random.default_rng(3)
    values = (rng.random((12, 1500)) < rng.beta(0.3, 0.7, size=1500)).astype(int)
    seeds, boards = values.shape
    means = resampled_means(values, 10_000, np.random.default_rng(0))
    # For multinomial counts, E[w_s w_t] = 1 - 1/S, and 1 more where s = t.
    few, more = 1 - 1 / seeds, 1 - 1 / boards
    squares = (
        few * more * values.sum() ** 2
        + few * (values.sum(axis=0) ** 2).sum()
        + more * (values.sum(axis=1) ** 2).sum()
        + (values**2).sum()
    )
    variance = squares / values.size**2 - values.mean() ** 2
    assert means.mean() == pytest.approx(values.mean(), abs=4 * math.sqrt(variance / 10_000))
    assert len(means) == 10_000
    assert means.var() == pytest.approx(variance, rel=0.06)


@pytest.mark.parametrize(
    ("values", "low", "high", "beyond"),
    [
        # Of two boards, a quarter of the resamples draw one of them twice.
        ([0, 1], 0, 1, 0),
        ([-1, 0], -1, 0, 0),
        ([0, 0], 0, 0, 0),
        ([-1, 1], -1, 1, 0),
        ([1, 2], 1, 2, 1),
        ([-2, -1], -2, -1, -1),
    ],
)
def test_an_interval_that_ends_at_0_is_not_beyond_it(values, low, high, beyond):
    found = mean_interval(np.array([values]), resamples=500, confidence=0.95)
    assert (found.low, found.high, found.beyond) == (low, high, beyond)
    assert found.value == sum(values) / 2
