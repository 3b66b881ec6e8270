import itertools
import json
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from engineer import Configuration, Guard, Review, answer_text, review_answer
from engineer.lake import Bounds, lake_domain
from tests.engineer.builders import (
    BOUNDS,
    CURRENT,
    SIZES,
    boundses,
    column,
    lake,
    on_grid,
    roomy,
    shares_of,
)


def answer(*rows: Sequence[float]) -> str:
    """An answer with rows of data, hole and wait ratio, which may be out of bounds."""
    knobs = (dict(zip(Bounds.knobs, row, strict=True)) for row in rows)
    return json.dumps(dict(zip(map(str, SIZES), knobs, strict=True)))


def ask(
    text: str, guard: Guard, *, current: Configuration = CURRENT, bounds: Bounds = BOUNDS
) -> Review:
    return review_answer(text, current, roomy(bounds), guard)


def in_steps(one: Configuration | None, knob: str, bounds: Bounds = BOUNDS) -> list[int]:
    return [round(value / bounds.step) for value in column(one, knob)]


def test_a_knob_that_moves_too_far_stops_on_the_way_and_it_is_said():
    text = answer((0.5, 0.5, 0.0), (0.3, 0.15, 0.45), (0.2, 0.05, 0.95))
    decision = ask(text, Guard(max_step=0.1))
    assert decision.kind == "repaired"
    assert [(r.name, r.field, r.old, r.new) for r in decision.repairs] == [
        ("bounded_step", "3.hole_ratio", 0.5, 0.3),
        ("bounded_step", "3.wait_ratio", 0.0, 0.15),
    ]
    assert column(decision.configuration, "hole_ratio") == [0.3, 0.15, 0.05]
    assert column(decision.configuration, "wait_ratio") == [0.15, 0.45, 0.95]


def test_shares_that_move_too_far_stop_as_near_as_can_be_and_still_sum_to_one():
    text = answer((0.1, 0.2, 0.25), (0.1, 0.1, 0.5), (0.8, 0.0, 1.0))
    decision = ask(text, Guard(max_step=0.1))
    assert shares_of(decision) == [0.4, 0.3, 0.3]
    assert {repair.name for repair in decision.repairs} == {"bounded_step"}


def test_without_a_guard_a_stage_may_change_everything():
    text = answer((0.0, 0.5, 1.0), (0.0, 0.5, 0.0), (1.0, 0.5, 0.0))
    assert ask(text, Guard()).kind == "accepted"
    assert ask(text, Guard(max_step=1.0)).kind == "accepted"


@pytest.mark.parametrize(
    ("max_step", "steps"), [(0.0, 1), (0.01, 1), (0.05, 1), (0.09, 1), (0.1, 2), (0.35, 7)]
)
def test_a_largest_step_counts_in_whole_steps_of_the_grid_and_at_least_one(max_step, steps):
    text = answer((0.5, 0.2, 1.0), (0.3, 0.5, 0.5), (0.2, 0.5, 1.0))
    decision = ask(text, Guard(max_step=max_step))
    assert in_steps(decision.configuration, "hole_ratio") == [4, 2 + steps, steps]


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), True, "0.1"])
def test_a_guard_is_made_of_ratios(value):
    with pytest.raises(ValidationError, match="max_step"):
        Guard(max_step=value)
    with pytest.raises(ValidationError, match="floors"):
        Guard(floors={"3": value})


def compositions(units: int, parts: int) -> list[tuple[int, ...]]:
    """All ways to split whole units into parts."""
    cuts = itertools.combinations(range(units + parts - 1), parts - 1)
    return [
        tuple(b - a - 1 for a, b in itertools.pairwise((-1, *cut, units + parts - 1)))
        for cut in cuts
    ]


max_steps = st.sampled_from([0.05, 0.1, 0.15, 0.3, 0.5])


def whole_steps(max_step: float, bounds: Bounds) -> int:
    return max(1, int(Fraction(str(max_step)) / Fraction(str(bounds.step))))


@settings(max_examples=200)
@given(data=st.data(), bounds=boundses, max_step=max_steps)
def test_knobs_and_shares_come_as_near_to_what_was_asked_as_the_guard_lets_them(
    data, bounds, max_step
):
    current, asked = data.draw(on_grid(bounds)), data.draw(on_grid(bounds))
    guard = Guard(max_step=max_step)
    decision = ask(answer_text(asked), guard, current=current, bounds=bounds)
    configurations = (current, asked, decision.configuration)
    most, least = whole_steps(max_step, bounds), round(bounds.min_share / bounds.step)
    for knob in ("hole_ratio", "wait_ratio"):
        columns = (in_steps(one, knob, bounds) for one in configurations)
        for here, wish, found in zip(*columns, strict=True):
            reach = [n for n in range(bounds.units + 1) if abs(n - here) <= most]
            assert found == min(reach, key=lambda n: abs(n - wish))

    here, wish, found = (in_steps(one, "data_ratio", bounds) for one in configurations)
    allowed = [
        parts
        for parts in compositions(bounds.units, len(SIZES))
        if min(parts) >= least and all(abs(a - b) <= most for a, b in zip(parts, here, strict=True))
    ]
    assert tuple(found) in allowed

    def distance(parts: Sequence[int]) -> int:
        return sum((a - b) ** 2 for a, b in zip(parts, wish, strict=True))

    assert distance(found) == min(map(distance, allowed))


def test_a_share_below_its_floor_is_lifted_and_the_others_pay_for_it():
    text = answer((0.1, 0.2, 0.25), (0.6, 0.1, 0.5), (0.3, 0.0, 1.0))
    decision = ask(text, Guard(floors={"3": 0.4}))
    assert decision.kind == "repaired"
    assert shares_of(decision) == [0.4, 0.4, 0.2]
    assert {repair.name for repair in decision.repairs} == {"minimum_share"}


def test_a_floor_between_two_grid_points_is_kept_by_the_upper_one():
    text = answer((0.9, 0.2, 0.25), (0.1, 0.1, 0.5), (0.0, 0.0, 1.0))
    assert shares_of(ask(text, Guard(floors={"5": 0.21})))[2] == 0.25


def test_a_floor_on_the_grid_is_kept_whatever_its_float_says():
    assert 0.07 * 100 > 7  # so rounding up alone would make 8 steps of it
    fine = Bounds(sizes=SIZES, step=0.01, min_share=0.01)
    text = answer((0.98, 0.2, 0.25), (0.01, 0.1, 0.5), (0.01, 0.0, 1.0))
    assert shares_of(ask(text, Guard(floors={"5": 0.07}), bounds=fine))[2] == 0.07


def test_a_floor_of_an_unknown_group_protects_nothing():
    text = answer((0.1, 0.2, 0.25), (0.6, 0.1, 0.5), (0.3, 0.0, 1.0))
    assert ask(text, Guard(floors={"7": 0.9})).kind == "accepted"


@pytest.mark.parametrize("asked", [(1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.3, 0.3, 0.4)])
@pytest.mark.parametrize("max_step", [None, 1.0])
def test_floors_that_do_not_fit_together_are_scaled(asked, max_step):
    text = answer(*((share, 0.1, 0.1) for share in asked))
    guard = Guard(floors={"3": 0.8, "4": 0.8, "5": 0.4}, max_step=max_step)
    assert shares_of(ask(text, guard)) == [0.4, 0.4, 0.2]
    # The least share of all stays untouched by that.
    tight = Bounds(sizes=SIZES, min_share=0.2)
    one = Guard(floors={"3": 1.0}, max_step=max_step)
    assert shares_of(ask(text, one, bounds=tight)) == [0.6, 0.2, 0.2]


def test_floors_weigh_more_than_the_bounded_step():
    text = answer((0.5, 0.2, 0.25), (0.3, 0.1, 0.5), (0.2, 0.0, 1.0))
    decision = ask(text, Guard(max_step=0.05, floors={"5": 0.6}))
    assert shares_of(decision)[2] >= 0.6
    assert sum(in_steps(decision.configuration, "data_ratio")) == 20


def test_repairs_come_in_the_order_of_the_steps_and_feasibility_is_last():
    def feasibility(size: int, holes: float, agents: int) -> str | None:
        return "too full" if size == 5 and holes > 0.05 else None

    domain = lake_domain(BOUNDS, feasibility=feasibility, acceptance=None)
    text = answer((0.8, 0.9, 0.25), (0.8, 0.1, 0.52), (0.1, 0.23, 1.0))
    guard = Guard(max_step=0.1, floors={"5": 0.2})
    decision = review_answer(text, CURRENT, domain, guard)
    order = ["clamp", "normalise", "minimum_share", "round", "bounded_step", "feasibility"]
    assert list(dict.fromkeys(repair.name for repair in decision.repairs)) == order
    assert [(r.name, r.old, r.new) for r in decision.repairs if r.field == "5.hole_ratio"] == [
        ("round", 0.23, 0.25),
        ("bounded_step", 0.25, 0.1),
        ("feasibility", 0.1, 0.05),
    ]
    assert decision.reason == f"used after {', '.join(order)}"


def test_what_can_be_made_counts_more_than_the_bounded_step():
    def feasibility(size: int, holes: float, agents: int) -> str | None:
        return "too full" if holes > 0.05 else None

    domain = lake_domain(BOUNDS, feasibility=feasibility, acceptance=None)
    decision = review_answer(answer_text(CURRENT), CURRENT, domain, Guard(max_step=0.05))
    assert column(decision.configuration, "hole_ratio") == [0.05, 0.05, 0.0]
    assert {repair.name for repair in decision.repairs} == {"feasibility"}


def test_a_configuration_in_force_above_the_bounds_comes_down_to_them_at_once():
    bounds = Bounds(sizes=SIZES, max_hole_ratio=0.1, max_wait_ratio=0.5)
    text = answer((0.5, 0.1, 0.25), (0.3, 0.1, 0.5), (0.2, 0.0, 0.5))
    decision = ask(text, Guard(max_step=0.05), bounds=bounds)
    assert decision.configuration is not None
    assert bounds.violation(decision.configuration) is None
    assert column(decision.configuration, "hole_ratio") == [0.1, 0.1, 0.0]
    assert column(decision.configuration, "wait_ratio") == [0.25, 0.5, 0.5]


def test_a_group_that_is_new_starts_with_a_small_share_and_any_knobs():
    knobs = {"hole_ratio": 0.5, "wait_ratio": 0.0}
    asked = {"4": {"data_ratio": 0.0}, "5": {"data_ratio": 0.0}, "6": {"data_ratio": 1.0}}
    text = json.dumps({group: share | knobs for group, share in asked.items()})
    decision = ask(text, Guard(max_step=0.1), bounds=Bounds(sizes=(4, 5, 6)))
    # Sizes 4 and 5 had 0.3 and 0.2 of all, which is 0.6 and 0.4 of what they had together.
    assert shares_of(decision) == [0.5, 0.4, 0.1]
    assert column(decision.configuration, "hole_ratio") == [0.2, 0.1, 0.5]
    assert column(decision.configuration, "wait_ratio") == [0.4, 0.9, 0.0]


def test_where_no_group_is_in_force_there_is_nothing_to_step_from():
    knobs = {"data_ratio": 0.5, "hole_ratio": 0.5, "wait_ratio": 0.0}
    text = json.dumps({"6": knobs, "7": knobs})
    assert ask(text, Guard(max_step=0.05), bounds=Bounds(sizes=(6, 7))).kind == "accepted"


@settings(max_examples=100)
@given(
    shares=st.tuples(*[st.floats(0.01, 1)] * 3),
    knobs=st.tuples(*[st.tuples(st.floats(0, 0.5), st.floats(0, 1))] * 3),
    data=st.data(),
)
def test_from_a_configuration_off_the_grid_steps_are_counted_from_its_nearest_point(
    shares, knobs, data
):
    total = sum(shares)
    current = lake(*((share / total, *pair) for share, pair in zip(shares, knobs, strict=True)))
    asked = data.draw(on_grid(BOUNDS))
    decision = ask(json.dumps(asked.values()), Guard(max_step=0.1), current=current)
    assert decision.configuration is not None
    assert BOUNDS.violation(decision.configuration) is None
    for group, new in decision.configuration.values().items():
        for knob, value in new.items():
            # A share moves to the grid by less than a step, another knob by half of one.
            slack = BOUNDS.step if knob == "data_ratio" else BOUNDS.step / 2
            assert abs(value - current.values()[group][knob]) <= 0.1 + slack + 1e-9
