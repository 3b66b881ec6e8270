"""The gate that detects a fall of the valid rate."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engineer.gate import has_fallen
from jaxlake.statistics.paired import PairedComparison


@given(st.integers(0, 900), st.integers(0, 900), st.floats(0.1, 5))
def test_gate_uses_the_normal_quantile(gained, lost, z):
    comparison = PairedComparison(count=1800, gained=gained, lost=lost)
    if abs(comparison.p_value_of_fall - NormalDist().cdf(-z)) > 1e-9:
        assert has_fallen(comparison, z) == (comparison.p_value_of_fall < NormalDist().cdf(-z))


@pytest.mark.parametrize(("z", "rate"), [(1.96, 0.025), (1.28, 0.1)])
def test_gate_false_alarm_rate_is_nominal(z, rate):
    rng = np.random.default_rng(4)
    count, trials, num_falls = 300, 4000, 0
    for _ in range(trials):
        # Boards differ in difficulty; the two policies have equal skill.
        chance = rng.random(count)
        valid_1, valid_2 = rng.random(count) < chance, rng.random(count) < chance
        gained, lost = int((~valid_1 & valid_2).sum()), int((valid_1 & ~valid_2).sum())
        num_falls += has_fallen(PairedComparison(count, gained, lost), z)
    deviation = math.sqrt(rate * (1 - rate) / trials)
    # An exact test of counts is conservative.
    assert 0.5 * rate < num_falls / trials < rate + 5 * deviation
