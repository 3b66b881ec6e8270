import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from engineer import GroupEvidence, StageEvidence, StageView, Tally
from engineer.domain import Slices
from engineer.lake import Bounds, LakeConfiguration, lake_domain, lake_evidence
from engineer.scoring.learnability import DROP, LearnabilityModel, learnability_model
from tests.engineer import words
from tests.engineer.builders import lake
from tests.engineer.random_views import views_and_proposals
from tests.engineer.test_evidence import draw_outcomes

TENTHS = ("0-9%", "10-19%", "20-29%", "30-39%", "40-49%")
GRID = [round(0.05 * n, 2) for n in range(1, 9)]  # hole ratios between the tenths' middles


def tally(count: int, valid: int) -> Tally:
    return Tally(count=count, valid=valid, failures={"hole": count - valid})


def sliced(p, counts: dict[tuple[int, int], int]) -> GroupEvidence:
    """Answers by (tenth, wait) of which the share p(hole ratio, wait) is valid, rounded."""
    valid = {
        (tenth, wait): round(count * p(0.025 + 0.1 * tenth, wait))
        for (tenth, wait), count in counts.items()
    }

    def part(axis: int, level: int) -> Tally:
        cells = [cell for cell in counts if cell[axis] == level]
        return tally(sum(counts[cell] for cell in cells), sum(valid[cell] for cell in cells))

    count, right = sum(counts.values()), sum(valid.values())
    return GroupEvidence(
        count=count,
        valid=right,
        failures={"hole": count - right},
        slices={
            "holes": {TENTHS[tenth]: part(0, tenth) for tenth in {cell[0] for cell in counts}},
            "waits": {
                ("no wait needed", "wait needed")[wait]: part(1, wait)
                for wait in {cell[1] for cell in counts}
            },
        },
    )


def even(tenths: range, count: int) -> dict[tuple[int, int], int]:
    return dict.fromkeys(itertools.product(tenths, (0, 1)), count)


def model_of(
    validation: dict[str, GroupEvidence],
    current: LakeConfiguration | None = None,
    bounds: Bounds | None = None,
) -> LearnabilityModel:
    bounds = bounds or Bounds(sizes=(3, 4))
    current = current or lake((0.5, 0.2, 0.2), (0.5, 0.2, 0.2))
    view = StageView(lake_domain(bounds), StageEvidence(stage=1, validation=validation), current)
    return learnability_model(view)


def knobs(holes: float, waits: float) -> dict[str, float]:
    return {"hole_ratio": holes, "wait_ratio": waits}


@pytest.mark.parametrize(("start", "holes", "waits"), [(0.9, -1.2, -0.3), (0.2, 0.6, 0.4)])
def test_rates_that_are_linear_in_the_knobs_are_recovered(start, holes, waits):
    def p(h: float, w: float) -> float:
        return start + holes * h + waits * w

    model = model_of({"3": sliced(p, even(range(5), 1000))})
    for h, w in itertools.product(GRID, np.linspace(0.0, 1.0, 11)):
        assert model.rate("3", knobs(h, w)) == pytest.approx(p(h, w), abs=0.01)


def test_what_a_mixture_is_assumed_to_cost_does_not_hang_on_its_bound():
    straight = {"3": sliced(lambda h, w: 0.8, {(tenth, 0): 100 for tenth in range(5)})}
    # Only boards without a wait: what waits cost comes from the prior, 0.5 from none to all.
    for most in (0.1, 0.5, 1.0):
        model = model_of(straight, bounds=Bounds(sizes=(3, 4), max_wait_ratio=most))
        assert model.rate("3", knobs(0.2, 0.1)) == pytest.approx(0.8 - 0.1 * DROP, abs=0.01)


def test_levels_that_the_validation_lacks_lie_on_the_line_of_the_others():
    def p(h: float, w: float) -> float:
        return 0.9 - 1.6 * h - 0.1 * w

    model = model_of({"3": sliced(p, even(range(1, 4), 2000))})
    for h in GRID:
        assert model.rate("3", knobs(h, 0.5)) == pytest.approx(p(h, 0.5), abs=0.02)


def test_a_group_with_one_level_learns_the_slope_from_the_other_groups():
    steep = sliced(lambda h, w: 0.9 - 1.6 * h, even(range(5), 2000))
    lower = sliced(lambda h, w: 0.8 - 1.6 * h, even(range(2, 3), 2000))
    model = model_of({"3": steep, "4": lower})
    for h in GRID:
        assert model.rate("4", knobs(h, 0.5)) == pytest.approx(0.8 - 1.6 * h, abs=0.02)


def test_groups_with_many_answers_keep_slopes_of_their_own():
    p = {"3": lambda h, w: 0.9 - 1.6 * h, "4": lambda h, w: 0.6}
    model = model_of({group: sliced(rate, even(range(1, 4), 2000)) for group, rate in p.items()})
    for group, rate in p.items():  # at levels that neither has answers of
        for h in (0.05, 0.4):
            assert model.rate(group, knobs(h, 0.5)) == pytest.approx(rate(h, 0.5), abs=0.02)


def test_a_level_with_few_answers_is_believed_less_than_one_with_many():
    def odd(counts: int) -> GroupEvidence:
        """A rate of 1/2 everywhere but in one tenth, where all answers are valid."""
        return sliced(
            lambda h, w: 1.0 if h > 0.4 else 0.5, even(range(4), 200) | even(range(4, 5), counts)
        )

    few, many = (model_of({"3": odd(count)}).rate("3", knobs(0.45, 0.5)) for count in (2, 400))
    assert 0.5 < few < 0.75 < 0.95 < many


def test_without_slices_the_rate_holds_at_the_current_knobs_and_falls_as_they_grow():
    current = lake((0.5, 0.2, 0.4), (0.5, 0.3, 0.0))
    seen = GroupEvidence(count=98, valid=69, failures={"hole": 29})
    model = model_of({"3": seen}, current)
    assert model.rate("3", knobs(0.2, 0.4)) == pytest.approx(0.7)  # (69 + 1) / (98 + 2)
    # Half a valid rate over the whole range, 0.5 of hole_ratio and 1 of wait_ratio.
    assert model.rate("3", knobs(0.3, 0.4)) == pytest.approx(0.7 - 0.1)
    assert model.rate("3", knobs(0.2, 0.2)) == pytest.approx(0.7 + 0.1)
    assert model.rate("3", knobs(0.0, 0.0)) == 1.0  # 0.7 + 0.2 + 0.2, cut
    # Without answers a group is taken to be as all of them are.
    assert model.rate("4", knobs(0.3, 0.0)) == pytest.approx(0.7)


def test_nothing_is_learned_from_a_mixture_of_what_is_solved_always_and_never():
    model = model_of({"3": sliced(lambda h, w: 1.0 - w, even(range(5), 2000))})
    half = knobs(0.2, 0.5)
    assert model.rate("3", half) == pytest.approx(0.5, abs=0.01)
    assert model.learnability("3", half) < 0.005
    # Holes are no mixture: boards halfway between solved and failed are solved half of the time.
    model = model_of({"3": sliced(lambda h, w: float(h < 0.2), even(range(5), 2000))})
    half = knobs(0.175, 0.5)
    assert model.rate("3", half) == pytest.approx(0.5, abs=0.01)
    assert model.learnability("3", half) == pytest.approx(0.25, abs=0.005)


def test_expected_learnability_is_the_sum_of_shares_times_learnability():
    half = GroupEvidence(count=98, valid=49, failures={"hole": 49})
    most = GroupEvidence(count=98, valid=89, failures={"hole": 9})
    model = model_of({"3": half, "4": most})
    at_current = lake((0.3, 0.2, 0.2), (0.7, 0.2, 0.2))
    assert model.expected(at_current) == pytest.approx(0.3 * 0.5 * 0.5 + 0.7 * 0.9 * 0.1)


@pytest.mark.parametrize("min_share", [0.0, 0.25, 0.5])
def test_the_best_is_the_largest_of_all_configurations(min_share):
    bounds = Bounds(
        sizes=(3, 4), max_hole_ratio=0.5, max_wait_ratio=0.5, step=0.25, min_share=min_share
    )
    seen = {
        "3": sliced(lambda h, w: 0.95 - 0.5 * h - 0.2 * w, even(range(5), 40)),
        "4": sliced(lambda h, w: 0.3 - 0.5 * h, even(range(5), 40)),
    }
    model = model_of(seen, bounds=bounds)
    ratios = (0.0, 0.25, 0.5)
    every = [
        lake((share, *one), (1.0 - share, *other))
        for share in (0.0, 0.25, 0.5, 0.75, 1.0)
        if min_share <= share <= 1.0 - min_share
        for one in itertools.product(ratios, ratios)
        for other in itertools.product(ratios, ratios)
    ]
    assert model.best() == pytest.approx(max(map(model.expected, every)))


@settings(max_examples=150)
@given(views_and_proposals)
def test_rates_and_learnability_stay_in_range_for_any_evidence(drawn):
    view, proposal = drawn
    model = learnability_model(view)
    for group, values in proposal.values().items():
        assert -1e-9 <= model.rate(group, values) <= 1.0 + 1e-9
        assert 0.0 <= model.learnability(group, values) <= 0.25 + 1e-9
    assert 0.0 <= model.expected(proposal) <= model.best() + 1e-9


def test_every_slice_of_the_lakes_evidence_has_its_place_on_a_knob():
    evidence = lake_evidence(1, draw_outcomes(np.random.default_rng(7))[1])
    slices = lake_domain(Bounds(sizes=(3,))).slices
    assert {one.factor for one in slices.values()} == set(evidence.validation["3"].slices)
    for one in slices.values():
        assert set(evidence.validation["3"].slices[one.factor]) <= set(one.levels)
    holes = slices["hole_ratio"].levels
    # The mean of the grid's values in each tenth.
    assert holes["0-9%"] == pytest.approx(0.025)
    assert holes["30-39%"] == pytest.approx(0.325)
    fine = lake_domain(Bounds(sizes=(3,), step=0.01)).slices["hole_ratio"].levels
    assert fine["10-19%"] == pytest.approx(math.fsum(range(10, 20)) / 1000)
    coarse = lake_domain(Bounds(sizes=(3,), step=0.1)).slices["hole_ratio"].levels
    assert coarse["10-19%"] == pytest.approx(0.1)


def test_levels_without_a_value_of_their_own_are_refused():
    with pytest.raises(ValueError, match="levels of holes must have values of their own"):
        Slices("holes", {"few": 0.1, "many": 0.1})
    with pytest.raises(ValueError, match="one at least"):
        Slices("holes", {})


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("causes", {"meteor": "length"}, "causes: got meteor, allowed are typo"),
        ("causes", {"typo": "portion"}, "causes: got portion, allowed are length, noise"),
        ("slices", {"width": Slices("x", {"y": 0.0})}, "slices: got width, allowed are length"),
    ],
)
def test_a_domain_names_only_its_own_failures_and_knobs(field, value, named):
    with pytest.raises(ValueError, match=named):
        replace(words.DOMAIN, **{field: value})
