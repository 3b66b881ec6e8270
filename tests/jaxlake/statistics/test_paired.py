"""Paired comparisons of two policies on the same boards."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxlake.statistics.paired import PairedComparison, compare


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=300))
def test_difference_is_the_mean_of_the_paired_differences(pairs):
    old_outcomes, new_outcomes = (np.array(column) for column in zip(*pairs, strict=True))
    comparison = compare(old_outcomes, new_outcomes)
    difference = (new_outcomes.astype(float) - old_outcomes).mean()
    assert comparison.difference == pytest.approx(difference, abs=1e-12)
    assert (comparison.gained, comparison.lost) == (
        (~old_outcomes & new_outcomes).sum(),
        (old_outcomes & ~new_outcomes).sum(),
    )


@given(st.integers(0, 900), st.integers(0, 900))
def test_p_values_match_the_exact_binomial_test(gained, lost):
    comparison = PairedComparison(count=1800, gained=gained, lost=lost)
    if gained + lost == 0:
        assert (comparison.p_value, comparison.p_value_of_fall) == (1.0, 1.0)
        return
    from scipy import stats

    one_sided = stats.binomtest(lost, gained + lost, alternative="greater").pvalue
    assert comparison.p_value_of_fall == pytest.approx(one_sided, rel=1e-9)
    assert comparison.p_value == pytest.approx(
        stats.binomtest(lost, gained + lost).pvalue, rel=1e-9
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((0, 0, 0), "count must be at least 1, got 0"),
        ((10, -1, 0), "gained and lost must be at least 0, got -1 and 0"),
        ((10, 4, 7), r"gained 4 \+ lost 7 must be at most count 10"),
    ],
)
def test_inconsistent_comparison_is_rejected(values, message):
    with pytest.raises(ValueError, match=message):
        PairedComparison(*values)


def test_interval_coverage_is_nominal():
    """Sum the probabilities of all outcomes of 40 boards whose interval covers the truth."""
    from scipy import stats

    for gain_rate, loss_rate in ((0.05, 0.05), (0.2, 0.1), (0.3, 0.3), (0.02, 0.0), (0.5, 0.1)):
        coverage = 0.0
        for gained in range(41):
            for lost in range(41 - gained):
                low, high = PairedComparison(40, gained, lost).interval()
                outcome = [gained, lost, 40 - gained - lost]
                if low <= gain_rate - loss_rate <= high:
                    probabilities = [gain_rate, loss_rate, 1.0 - gain_rate - loss_rate]
                    coverage += stats.multinomial.pmf(outcome, 40, probabilities)
        assert 0.93 < coverage <= 1.0


@given(st.integers(0, 900), st.integers(0, 900))
def test_interval_mirrors_swapped_gains_and_losses(gained, lost):
    low, high = PairedComparison(1800, gained, lost).interval()
    mirror = PairedComparison(1800, lost, gained).interval()
    assert (-high, -low) == pytest.approx(mirror)
    half_interval = PairedComparison(1800, gained, lost).interval(0.5)
    assert -1.0 <= low < half_interval[0] < half_interval[1] < high <= 1.0
