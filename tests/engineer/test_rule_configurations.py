"""The configurations that the rule engineer comes to: steps, bounds, and what can be made."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engineer import (
    BLOCKS,
    GroupEvidence,
    RuleEngineer,
    StageEvidence,
    StageView,
    review_answer,
)
from engineer.context.symbols import read_out
from engineer.edits import edits_text
from engineer.engineers.rule import (
    next_configuration,
    teacher_edits,
)
from engineer.lake import Bounds, lake_domain
from engineer.space import answer_text
from tests.engineer import words
from tests.engineer.builders import BOUNDS, CURRENT, column, lake, on_grid, roomy, tally
from tests.engineer.engineers.tasks import proposed, training
from tests.engineer.random_views import readable_view

LAKE = roomy()


def with_rates(valid: Mapping[int, int]) -> StageEvidence:
    groups = {str(size): tally(n) for size, n in valid.items()}
    return StageEvidence(stage=1, validation=groups)


def test_steps_are_those_of_the_space():
    domain = roomy(Bounds(sizes=(3, 4, 5), edit_steps=3))
    current = lake((0.5, 0.2, 0.4), (0.4, 0.2, 0.4), (0.1, 0.2, 0.4))
    new = next_configuration(StageView(domain, with_rates({3: 50, 4: 60, 5: 0}), current))
    assert column(new, "data_ratio") == [0.6, 0.4, 0.0]
    assert column(new, "hole_ratio") == [0.2, 0.35, 0.05]
    assert column(new, "wait_ratio") == [0.4, 0.4, 0.4]


def test_shares_off_the_grid_or_below_the_bounds_are_rounded_first():
    domain = roomy(Bounds(sizes=(3, 4, 5), min_share=0.1))
    current = lake((0.9, 0.2, 0.4), (0.07, 0.2, 0.4), (0.03, 0.2, 0.4))
    new = next_configuration(StageView(domain, with_rates({3: 50, 4: 50, 5: 50}), current))
    assert column(new, "data_ratio") == [0.8, 0.1, 0.1]


def test_a_group_that_is_new_starts_from_zero():
    bounds = Bounds(sizes=(4, 5, 6))
    current = lake((0.4, 0.2, 0.4), (0.3, 0.2, 0.4), (0.3, 0.2, 0.4))
    known = bounds.knobs_of(current)
    assert list(known) == ["4", "5", "6"]
    assert known["4"] == current.values()["4"]
    assert known["6"] == dict.fromkeys(bounds.knobs, 0.0)
    new = next_configuration(StageView(roomy(bounds), with_rates({4: 30, 5: 10, 6: 60}), current))
    assert new.values()["6"] | {"data_ratio": 0.0} == {
        "data_ratio": 0.0,
        "hole_ratio": 0.05,
        "wait_ratio": 0.0,
    }
    assert new.values()["6"]["data_ratio"] > 0


def test_the_rule_takes_the_nearest_knobs_of_which_boards_can_be_made():
    domain = lake_domain(
        BOUNDS,
        feasibility=lambda size, holes, agents: "too full" if holes > 0.2 else None,
        acceptance=lambda size, holes, waits, agents: 0.0 if (size, holes) == (5, 0.15) else 1.0,
    )
    current = lake((0.35, 0.2, 0.2), (0.35, 0.15, 0.2), (0.3, 0.2, 0.2))
    new = next_configuration(StageView(domain, with_rates({3: 70, 4: 70, 5: 0}), current))
    assert column(new, "hole_ratio")[:2] == [0.2, 0.2]
    assert column(new, "hole_ratio")[2] != 0.15
    assert column(new, "wait_ratio") == [0.2, 0.2, 0.2]


def test_where_nothing_can_be_made_the_rule_leaves_that_to_be_refused():
    domain = lake_domain(BOUNDS, acceptance=lambda *kind: 0.0)
    view = StageView(domain, with_rates({3: 50, 4: 50, 5: 50}), CURRENT)
    new = next_configuration(view)
    assert new == CURRENT
    assert review_answer(answer_text(new), CURRENT, domain).kind == "rejected"


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
        "a.b": {"portion": 0.45, "length": 0.25, "noise": 0.1},
        "c+": {"portion": 0.55, "length": 0.8, "noise": 0.0},
    }


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_rules_proposals_are_accepted_as_written_in_any_environment(seed):
    view = readable_view(np.random.default_rng(seed))
    new = next_configuration(view)
    decision = review_answer(answer_text(new), view.current, view.domain)
    assert (decision.kind, decision.repairs) == ("accepted", ())


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_rules_edits_lead_to_its_proposal_but_for_what_cannot_be_made(seed):
    view = readable_view(np.random.default_rng(seed))
    edits = teacher_edits(read_out(view, BLOCKS), view.domain)
    decision = review_answer(edits_text(edits, view.domain), view.current, view.domain)
    assert {repair.name for repair in decision.repairs} <= {"feasibility"}
    assert decision.configuration is not None
    share = view.domain.space.share
    for group, knobs in next_configuration(view).values().items():
        # The review leaves knobs alone that no instance has.
        if knobs[share]:
            assert decision.configuration.values()[group] == knobs


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


@given(valid=st.tuples(*[st.integers(0, 100)] * 3), before=on_grid(BOUNDS))
def test_applied_again_and_again_the_rule_gathers_data_where_most_is_learned(valid, before):
    evidence = StageEvidence(
        stage=1,
        validation=with_rates(dict(zip((3, 4, 5), valid, strict=True))).validation,
        training=training({str(n + 3): p * (100 - p) / 10_000 for n, p in enumerate(valid)}),
    )
    after = before
    for _ in range(41):
        after = next_configuration(StageView(LAKE, evidence, after))
    tenths = [int(4 * p * (100 - p) / 1000 + 0.5) for p in valid]
    for share, value in zip(column(after, "data_ratio"), tenths, strict=True):
        assert share == 0 or value == max(tenths)


@pytest.mark.parametrize("seed", [0, 7])
def test_the_engineer_answers_with_the_rule_s_configuration_whatever_the_seed(view, seed):
    assert proposed(RuleEngineer(), view, seed) == next_configuration(view)
