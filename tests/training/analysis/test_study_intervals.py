"""Intervals of a study: how often they hold the truth, and what lies beyond one of them."""

import math

import numpy as np
import pytest

from benchmarks.study_coverage import DEVIATIONS, SEEDS, Setting, coverage
from tests.paths import ROOT
from training.analysis.study.bootstrap import mean_interval, misses_by_chance, resampled_means


def test_intervals_contain_the_truth_about_as_often_as_they_say():
    many = coverage(Setting(seeds=20, deviation=0.05, boards=100), repeats=150, resamples=300)
    assert all(0.9 <= share <= 0.99 for share in (many.rate, many.difference))


@pytest.mark.parametrize("setting", [Setting(3, 0.0, 0.9), Setting(3, 0.0, own_share=0.25)])
def test_intervals_know_that_all_seeds_answer_the_same_boards(setting):
    contained = coverage(setting, repeats=300, resamples=400)
    assert contained.rate >= 0.91
    assert contained.difference >= 0.93


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


def test_documented_coverage_is_what_the_simulation_finds():
    held = documented_coverage()
    assert list(held) == list(SEEDS)
    assert all(len(shares) == len(DEVIATIONS) for shares in held.values())
    repeats = 300
    for seeds in (1, 3):
        found = coverage(Setting(seeds, DEVIATIONS[-1]), repeats=repeats, resamples=400).difference
        assert found == pytest.approx(held[seeds][-1], abs=4 * math.sqrt(0.25 / repeats))


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
