import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats

from engineer import Comparison, GateSettings, GroupEvidence, LakeConfiguration, StageEvidence
from engineer.gate import floors, notice


def comparison_of(before: np.ndarray, after: np.ndarray) -> Comparison:
    return Comparison(
        count=len(before), gained=int((~before & after).sum()), lost=int((before & ~after).sum())
    )


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=300))
def test_the_difference_is_the_mean_of_the_paired_differences(pairs):
    before, after = (np.array(column) for column in zip(*pairs, strict=True))
    difference = after.astype(float) - before
    assert comparison_of(before, after).difference == pytest.approx(difference.mean(), abs=1e-12)


@settings(deadline=None)
@given(st.integers(0, 900), st.integers(0, 900), st.floats(0.1, 5))
def test_a_fall_is_judged_by_the_exact_binomial_test(gained, lost, z):
    comparison = Comparison(count=1800, gained=gained, lost=lost)
    changed = gained + lost
    expected = stats.binomtest(lost, changed, alternative="greater").pvalue if changed else 1.0
    assert comparison.p_value == pytest.approx(expected, rel=1e-9)
    if abs(expected - stats.norm.sf(z)) > 1e-9:
        assert comparison.fell(z) == (expected < stats.norm.sf(z))


def test_a_few_lost_instances_of_many_are_no_fall():
    # A normal approximation takes four losses without a gain for two standard errors.
    assert not Comparison(count=1800, gained=0, lost=4).fell(1.96)
    assert Comparison(count=1800, gained=0, lost=6).fell(1.96)


@pytest.mark.parametrize(("z", "rate"), [(1.96, 0.025), (1.28, 0.1)])
def test_where_nothing_changed_the_gate_seldom_sees_a_fall(z, rate):
    rng = np.random.default_rng(4)
    count, trials, falls = 300, 4000, 0
    for _ in range(trials):
        # Boards differ in difficulty, the two policies don't.
        chance = rng.random(count)
        before, after = rng.random(count) < chance, rng.random(count) < chance
        falls += comparison_of(before, after).fell(z)
    deviation = math.sqrt(rate * (1 - rate) / trials)
    # An exact test of counts errs to the side of no fall.
    assert 0.5 * rate < falls / trials < rate + 5 * deviation


def test_a_real_fall_is_seen_most_of_the_time():
    rng = np.random.default_rng(5)
    count, trials, falls = 300, 500, 0
    for _ in range(trials):
        lost, gained, _ = rng.multinomial(count, [0.17, 0.07, 0.76])
        falls += Comparison(count=count, gained=int(gained), lost=int(lost)).fell(1.96)
    # Ten points on 300 boards, 2.4 boards in ten of which change: 3.6 standard errors.
    assert falls / trials > 0.9


def test_neither_a_gain_nor_a_standstill_is_a_fall():
    for gained, lost in [(0, 0), (50, 50), (100, 0), (30, 29)]:
        assert not Comparison(count=100, gained=gained, lost=lost).fell(0.01)
    assert Comparison(count=100, gained=0, lost=100).fell(10.0)


@settings(deadline=None)
@given(st.integers(0, 40), st.integers(0, 40), st.floats(0.1, 5), st.floats(0.1, 5))
def test_a_fall_beyond_more_noise_is_one_beyond_less(gained, lost, z, other):
    comparison = Comparison(count=100, gained=gained, lost=lost)
    if comparison.fell(max(z, other)):
        assert comparison.fell(min(z, other))
        assert Comparison(count=100, gained=gained, lost=lost + 1).fell(max(z, other))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 0, "gained": 0, "lost": 0}, "count\n.*greater than or equal to 1"),
        ({"count": 10, "gained": -1, "lost": 0}, "gained\n.*greater than or equal to 0"),
        ({"count": 10, "gained": 4, "lost": 7}, r"gained 4 \+ lost 7 must be at most count 10"),
    ],
)
def test_a_comparison_that_does_not_add_up_is_refused(values, message):
    with pytest.raises(ValidationError, match=message):
        Comparison(**values)


@pytest.mark.parametrize("values", [{"z": 0.0}, {"rollback": "all"}, {"protect_from": 1.5}])
def test_settings_of_a_gate_that_make_no_sense_are_refused(values):
    with pytest.raises(ValidationError, match=next(iter(values))):
        GateSettings(**values)


def test_the_notice_says_how_far_it_fell_and_what_was_restored():
    fall = Comparison(count=240, gained=7, lost=37)
    tried, before = lake(0.4), lake(0.1)
    told = notice(fall, "configuration", tried=tried, current=before)
    assert told == (
        "The valid rate fell by 12.5 points, more than its noise: 37 instances were lost,"
        " 7 gained of 240. The configuration before was restored. Write something else than what"
        ' was tried: {"3":{"data_ratio":1.00,"hole_ratio":0.40,"wait_ratio":0.00}}'
    )
    weights = "The weights that the stage began with were restored; the failures shown are theirs."
    assert weights not in told
    assert weights in notice(fall, "checkpoint", tried=tried, current=before)


def test_the_first_stage_has_no_configuration_to_go_back_to_and_the_notice_says_so():
    fall = Comparison(count=240, gained=7, lost=37)
    told = notice(fall, "configuration", tried=lake(0.4), current=lake(0.4))
    assert told.endswith("7 gained of 240. No other configuration was in force before.")
    told = notice(fall, "checkpoint", tried=lake(0.4), current=lake(0.4))
    assert "weights that the stage began with were restored" in told
    assert "was tried" not in told


def lake(holes: float) -> LakeConfiguration:
    return LakeConfiguration.model_validate(
        {"sizes": {3: {"data_ratio": 1.0, "hole_ratio": holes, "wait_ratio": 0.0}}}
    )


def rated(**valid: int) -> StageEvidence:
    return StageEvidence(
        stage=1,
        validation={
            group[1:]: GroupEvidence(count=20, valid=n, failures={"hole": 20 - n})
            for group, n in valid.items()
        },
    )


def test_mastered_groups_keep_the_protected_share(bounds, current):
    gate = GateSettings(protect_from=0.8, protect_share=0.25)
    evidence = rated(s3=16, s4=15, s5=20)
    # Size 5 has 0.2 of the data: a protection raises no share.
    assert floors(evidence, current, bounds, gate) == {"3": 0.25, "5": 0.2}


def test_nothing_is_protected_unless_it_is_asked_for(bounds, current):
    assert floors(rated(s3=20, s4=20, s5=20), current, bounds, GateSettings()) == {}
    everything = GateSettings(protect_from=0.0, protect_share=1.0)
    shares = {"3": 0.5, "4": 0.3, "5": 0.2}
    assert floors(rated(s3=0, s4=0, s5=0), current, bounds, everything) == shares


def test_what_was_not_validated_or_is_not_trained_on_is_not_protected(bounds, current):
    gate = GateSettings(protect_from=0.0, protect_share=0.1)
    empty = GroupEvidence(count=0, valid=0)
    evidence = rated(s3=20, s9=20)
    evidence = evidence.model_copy(update={"validation": evidence.validation | {"4": empty}})
    assert floors(evidence, current, bounds, gate) == {"3": 0.1}
