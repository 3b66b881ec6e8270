import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engineer import GateSettings
from engineer.gate import has_fallen, rollback_notice
from jaxlake.statistics.paired import PairedComparison
from tests.engineer.builders import lake


@given(st.integers(0, 900), st.integers(0, 900), st.floats(0.1, 5))
def test_fall_is_judged_at_the_level_of_a_normal_number(gained, lost, z):
    comparison = PairedComparison(count=1800, gained=gained, lost=lost)
    if abs(comparison.p_value_of_fall - NormalDist().cdf(-z)) > 1e-9:
        assert has_fallen(comparison, z) == (comparison.p_value_of_fall < NormalDist().cdf(-z))


def test_few_lost_instances_of_many_are_no_fall():
    # A normal approximation takes four losses without a gain for two standard errors.
    assert not has_fallen(PairedComparison(count=1800, gained=0, lost=4), 1.96)
    assert has_fallen(PairedComparison(count=1800, gained=0, lost=6), 1.96)


@pytest.mark.parametrize(("z", "rate"), [(1.96, 0.025), (1.28, 0.1)])
def test_gate_seldom_sees_a_fall_where_nothing_changed(z, rate):
    rng = np.random.default_rng(4)
    count, trials, falls = 300, 4000, 0
    for _ in range(trials):
        # Boards differ in difficulty, the two policies don't.
        chance = rng.random(count)
        before, after = rng.random(count) < chance, rng.random(count) < chance
        gained, lost = int((~before & after).sum()), int((before & ~after).sum())
        falls += has_fallen(PairedComparison(count, gained, lost), z)
    deviation = math.sqrt(rate * (1 - rate) / trials)
    # An exact test of counts errs to the side of no fall.
    assert 0.5 * rate < falls / trials < rate + 5 * deviation


@pytest.mark.parametrize("values", [{"z": 0.0}, {"rollback": "all"}])
def test_settings_of_a_gate_that_make_no_sense_are_refused(values):
    with pytest.raises(ValidationError, match=next(iter(values))):
        GateSettings(**values)


def test_the_notice_says_how_far_it_fell_and_what_was_restored():
    fall = PairedComparison(count=240, gained=7, lost=37)
    tried, before = lake((1, 0.4, 0)), lake((1, 0.1, 0))
    told = rollback_notice(fall, "configuration", tried=tried, current=before)
    assert told == (
        "The valid rate fell by 12.5 points, more than its noise: 37 instances were lost,"
        " 7 gained of 240. The configuration before was restored. Write something else than what"
        ' was tried: {"3":{"data_ratio":1.00,"hole_ratio":0.40,"wait_ratio":0.00}}'
    )
    weights = "The weights that the stage began with were restored; the failures shown are theirs."
    assert weights not in told
    assert weights in rollback_notice(fall, "checkpoint", tried=tried, current=before)
