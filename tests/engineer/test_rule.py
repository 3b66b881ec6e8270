from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engineer import GroupEvidence, StageEvidence, StageView, review_answer
from engineer.engineers.rule import next_configuration
from engineer.lake import Bounds, LakeConfiguration, SizeKnobs, lake_domain
from engineer.space import answer_text
from tests.engineer import words
from tests.engineer.builders import BOUNDS, lake, on_grid, roomy, tally


def with_rates(valid: dict[int, int], count: int = 100) -> StageEvidence:
    groups = {str(size): tally(n, count) for size, n in valid.items()}
    return StageEvidence(stage=1, validation=groups)


def flat(hole_ratio: float, wait_ratio: float) -> LakeConfiguration:
    return lake(*((share, hole_ratio, wait_ratio) for share in (0.35, 0.35, 0.3)))


def rule(
    evidence: StageEvidence, current: LakeConfiguration, bounds: Bounds = BOUNDS
) -> dict[int, SizeKnobs]:
    """The rule on the lake, where every kind of board can be made that has room for two agents."""
    new = next_configuration(StageView(roomy(bounds), evidence, current))
    assert isinstance(new, LakeConfiguration)
    return new.sizes


def shares_after(
    valid: dict[int, int], before: Sequence[float], bounds: Bounds = BOUNDS
) -> list[float]:
    current = lake(*((share, 0.2, 0.2) for share in before))
    return [knobs.data_ratio for knobs in rule(with_rates(valid), current, bounds).values()]


def test_one_step_of_data_moves_from_the_least_to_the_most_learnable_size():
    before = (0.35, 0.35, 0.3)
    assert shares_after({3: 80, 4: 79, 5: 19}, before) == [0.35, 0.4, 0.25]
    assert shares_after({3: 0, 4: 90, 5: 55}, before) == [0.3, 0.35, 0.35]
    assert shares_after({3: 49, 4: 98, 5: 3}, before) == [0.4, 0.3, 0.3]


def test_among_equally_learnable_sizes_the_smallest_takes_and_the_largest_gives():
    before = (0.35, 0.35, 0.3)
    assert shares_after({3: 45, 4: 55, 5: 0}, before) == [0.4, 0.35, 0.25]
    assert shares_after({3: 0, 4: 100, 5: 50}, before) == [0.35, 0.3, 0.35]
    assert shares_after({3: 30, 4: 70, 5: 30}, before) == list(before)


def test_a_size_at_its_least_share_gives_nothing():
    valid = {3: 50, 4: 80, 5: 0}
    assert shares_after(valid, (0.05, 0.9, 0.05)) == [0.1, 0.85, 0.05]
    assert shares_after(valid, (0.9, 0.05, 0.05)) == [0.9, 0.05, 0.05]
    assert shares_after(valid, (0.9, 0.1, 0.0)) == [0.9, 0.05, 0.05]
    tight = Bounds(sizes=(3, 4, 5), min_share=0.3)
    assert shares_after(valid, (0.35, 0.35, 0.3), bounds=tight) == [0.4, 0.3, 0.3]
    assert shares_after(valid, (0.4, 0.3, 0.3), bounds=tight) == [0.4, 0.3, 0.3]


@given(
    valid=st.tuples(*[st.integers(0, 100)] * 3),
    cuts=st.lists(st.integers(1, 19), min_size=2, max_size=2, unique=True).map(sorted),
)
def test_applied_again_and_again_the_rule_gathers_data_where_most_is_learned(valid, cuts):
    rates = dict(zip((3, 4, 5), valid, strict=True))
    steps = (cuts[0], cuts[1] - cuts[0], 20 - cuts[1])
    before = tuple(5 * share / 100 for share in steps)
    after = shares_after(rates, before)
    shifts = sorted(round(20 * (new - old)) for new, old in zip(after, before, strict=True))
    assert shifts in ([-1, 0, 1], [0, 0, 0])
    for _ in range(20):
        after = shares_after(rates, after)
    assert round(20 * sum(after)) == 20
    values = [p * (100 - p) for p in valid]
    for value, share in zip(values, after, strict=True):
        assert share >= 0.05
        assert share == 0.05 or value == max(values)


def test_holes_and_waits_go_up_where_easy_down_where_hard_and_stay_between():
    new = rule(with_rates({3: 60, 4: 59, 5: 19}), flat(0.2, 0.4))
    assert [new[s].hole_ratio for s in (3, 4, 5)] == [0.25, 0.2, 0.15]
    assert [new[s].wait_ratio for s in (3, 4, 5)] == [0.45, 0.4, 0.35]
    assert rule(with_rates({3: 20, 4: 20, 5: 20}), flat(0.2, 0.4))[3].hole_ratio == 0.2


def test_the_rule_stays_within_the_bounds():
    bounds = Bounds(sizes=(3, 4, 5), max_hole_ratio=0.3, max_wait_ratio=0.5)
    top = rule(with_rates({3: 100, 4: 100, 5: 100}), flat(0.3, 0.5), bounds=bounds)
    assert {(k.hole_ratio, k.wait_ratio) for k in top.values()} == {(0.3, 0.5)}
    bottom = rule(with_rates({3: 0, 4: 0, 5: 0}), flat(0.0, 0.0), bounds=bounds)
    assert {(k.hole_ratio, k.wait_ratio) for k in bottom.values()} == {(0.0, 0.0)}


def test_a_size_that_was_not_validated_keeps_its_knobs():
    new = rule(with_rates({3: 100, 4: 50}), flat(0.2, 0.2))
    assert (new[5].hole_ratio, new[5].wait_ratio) == (0.2, 0.2)
    assert [new[s].data_ratio for s in (3, 4, 5)] == [0.3, 0.4, 0.3]


def test_the_rule_takes_the_nearest_knobs_of_which_boards_can_be_made():
    domain = lake_domain(
        BOUNDS,
        feasibility=lambda size, holes, agents: "too full" if holes > 0.2 else None,
        acceptance=lambda size, holes, waits, agents: 0.0 if (size, waits) == (4, 0.25) else 1.0,
    )
    view = StageView(domain, with_rates({3: 70, 4: 70, 5: 0}), flat(0.2, 0.2))
    new = next_configuration(view).values()
    assert [knobs["hole_ratio"] for knobs in new.values()] == [0.2, 0.2, 0.15]
    assert [knobs["wait_ratio"] for knobs in new.values()] == [0.25, 0.2, 0.15]


def test_where_nothing_can_be_made_the_rule_leaves_that_to_be_refused():
    domain = lake_domain(BOUNDS, acceptance=lambda *kind: 0.0)
    view = StageView(domain, with_rates({3: 50, 4: 50, 5: 50}), flat(0.2, 0.2))
    new = next_configuration(view)
    assert {knobs["hole_ratio"] for knobs in new.values().values()} == {0.2}
    assert review_answer(answer_text(new), flat(0.2, 0.2), domain).kind == "rejected"


def test_a_group_that_is_new_starts_from_zero():
    bounds = Bounds(sizes=(4, 5, 6))
    current = flat(0.2, 0.4)
    known = bounds.knobs_of(current)
    assert list(known) == ["4", "5", "6"]
    assert known["4"] == current.values()["4"]
    assert known["6"] == dict.fromkeys(bounds.knobs, 0.0)
    new = rule(with_rates({4: 50, 5: 10, 6: 90}), current, bounds)
    assert (new[6].hole_ratio, new[6].wait_ratio) == (0.05, 0.05)
    assert new[6].data_ratio > 0


@pytest.mark.parametrize(
    ("knob", "value", "steps", "expected"),
    [
        ("noise", 0.1, 1, 0.15),
        ("noise", 0.4, 1, 0.4),
        ("noise", 0.0, -1, 0.0),
        ("noise", 0.12, 0, 0.1),
        ("length", 0.75, 9, 0.8),
        ("portion", 0.5, -20, 0.0),
    ],
)
def test_a_knob_moves_on_the_grid_within_its_limits(knob, value, steps, expected):
    assert words.SPACE.moved(knob, value, steps) == expected


def test_the_rule_works_for_any_environment():
    easy = GroupEvidence(count=10, valid=9, failures={"typo": 1})
    half = GroupEvidence(count=10, valid=5, failures={"typo": 5})
    evidence = StageEvidence(stage=1, validation={"a.b": easy, "c+": half})
    assert next_configuration(StageView(words.DOMAIN, evidence, words.CURRENT)).values() == {
        "a.b": {"portion": 0.45, "length": 0.25, "noise": 0.15},
        "c+": {"portion": 0.55, "length": 0.8, "noise": 0.0},
    }


@settings(max_examples=60)
@given(data=st.data(), num_agents=st.integers(2, 5), step=st.sampled_from([0.01, 0.05, 0.1]))
def test_the_rules_proposals_are_accepted_as_written_for_any_number_of_agents(
    data, num_agents, step
):
    bounds = Bounds(sizes=(5, 6, 10), step=step, max_hole_ratio=0.5)
    domain, current = lake_domain(bounds, num_agents), data.draw(on_grid(bounds))
    evidence = with_rates({size: data.draw(st.integers(0, 100)) for size in bounds.sizes})
    new = next_configuration(StageView(domain, evidence, current))
    decision = review_answer(answer_text(new), current, domain)
    assert (decision.kind, decision.repairs) == ("accepted", ())
