import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxlake.paired import PairedComparison, compare


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=300))
def test_difference_is_the_mean_of_the_paired_differences(pairs):
    before, after = (np.array(column) for column in zip(*pairs, strict=True))
    found = compare(before, after)
    assert found.difference == pytest.approx((after.astype(float) - before).mean(), abs=1e-12)
    assert (found.gained, found.lost) == ((~before & after).sum(), (before & ~after).sum())


@given(st.integers(0, 900), st.integers(0, 900))
def test_p_values_are_those_of_the_exact_binomial_test(gained, lost):
    found = PairedComparison(count=1800, gained=gained, lost=lost)
    if gained + lost == 0:
        assert (found.p_value, found.p_value_of_fall) == (1.0, 1.0)
        return
    from scipy import stats

    one_sided = stats.binomtest(lost, gained + lost, alternative="greater").pvalue
    assert found.p_value_of_fall == pytest.approx(one_sided, rel=1e-9)
    assert found.p_value == pytest.approx(stats.binomtest(lost, gained + lost).pvalue, rel=1e-9)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((0, 0, 0), "count must be at least 1, got 0"),
        ((10, -1, 0), "gained and lost must be at least 0, got -1 and 0"),
        ((10, 4, 7), r"gained 4 \+ lost 7 must be at most count 10"),
    ],
)
def test_comparison_that_does_not_add_up_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        PairedComparison(*values)


def test_answers_to_different_numbers_of_boards_are_refused():
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        compare([True, False], [True])
