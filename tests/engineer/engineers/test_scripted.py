"""Scripted engineers: worked examples, and properties on random evidence."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engineer import (
    SCRIPTED_ENGINEERS,
    Context,
    DesignSettings,
    Engineer,
    GroupEvidence,
    RunSettings,
    StageEvidence,
    StageView,
    review_answer,
    run_design,
    scripted_engineer,
)
from engineer.engineers.adaptive import LearnabilityEngineer, SecBanditEngineer
from engineer.engineers.baselines import EasyToHardEngineer, RandomEngineer
from engineer.engineers.computed import split_shares
from engineer.engineers.controls import CONTROLS
from engineer.lake import Bounds, LakeConfiguration, lake_domain
from engineer.space import apportion
from tests.engineer import words
from tests.engineer.builders import (
    BOUNDS,
    column,
    from_rows,
    make_history,
    make_task,
    make_training,
    make_view,
    on_grid,
    propose,
    random_view,
)

ENGINEER_NAMES = (
    *SCRIPTED_ENGINEERS,
    *(f"{control}:{name}" for control in CONTROLS for name in SCRIPTED_ENGINEERS),
)


def propose_shares(engineer: Engineer, view: StageView) -> list[float]:
    """Return the proposed data shares, and check that the other knobs are unchanged."""
    configuration = propose(engineer, view)
    for knob in ("hole_ratio", "wait_ratio"):
        assert column(configuration, knob) == column(view.current, knob)
    return column(configuration, "data_ratio")


# Worked examples


@pytest.mark.parametrize(
    ("stage", "rows"),
    [
        (0, ((1, 0, 0), (0, 0, 0), (0, 0, 0))),
        (1, ((0.5, 0.15, 0.25), (0.5, 0.15, 0.25), (0, 0.15, 0.25))),
        (2, ((0, 0.25, 0.5), (1, 0.25, 0.5), (0, 0.25, 0.5))),
        (3, ((0, 0.4, 0.75), (0.5, 0.4, 0.75), (0.5, 0.4, 0.75))),
        (4, ((0, 0.5, 1), (0, 0.5, 1), (1, 0.5, 1))),
        (9, ((0, 0.5, 1), (0, 0.5, 1), (1, 0.5, 1))),
    ],
)
def test_easy_to_hard_follows_its_schedule(stage, rows):
    engineer = EasyToHardEngineer(stages=5)
    assert propose(engineer, make_view({"3": 50}, stage=stage)) == from_rows(*rows)


@pytest.mark.parametrize(
    ("weights", "min_share", "shares"),
    [
        # 0.18, 0.5 and 0.92 are 2.25, 6.25 and 11.5 of 20 steps.
        ((0.18, 0.5, 0.92), 0.05, [0.1, 0.3, 0.6]),
        # An unknown weight is the mean of the others: 3.33, 6.67 and 10 of 20 steps.
        ((0.2, None, 0.6), 0.05, [0.15, 0.35, 0.5]),
        ((0, 0, 1), 0.05, [0.05, 0.05, 0.9]),
        ((0, 0, 1), 0.2, [0.2, 0.2, 0.6]),
        ((0, 0, 1), 0.0, [0, 0, 1]),
        # Minimum shares that don't fit are reduced equally.
        ((0, 0, 1), 0.9, [0.3, 0.3, 0.4]),
        # Without a positive weight, the current shares remain.
        ((0, 0, 0), 0.05, [0.5, 0.3, 0.2]),
    ],
)
def test_shares_are_proportional_above_a_minimum(weights, min_share, shares):
    weights_by_group = dict(zip(BOUNDS.groups, weights, strict=True))
    assert list(split_shares(weights_by_group, make_view({"3": 50}), min_share).values()) == shares


def test_learnability_uses_training_measurements():
    # 0.11, 0.23 and 0.02 are 6.11, 12.78 and 1.11 of 20 steps; 82% is easy and 8% hard.
    evidence = make_training({"3": 0.11, "4": 0.23, "5": 0.02})
    view = make_view({"3": 82, "4": 50, "5": 8}, training=evidence)
    assert propose(LearnabilityEngineer(), view) == from_rows(
        (0.3, 0.25, 0.3), (0.65, 0.1, 0.5), (0.05, 0.0, 0.95)
    )


# The bandit against a plain loop


RATES = st.dictionaries(st.sampled_from(BOUNDS.groups), st.floats(0, 1))


@st.composite
def bandit_views(draw) -> StageView:
    weights = st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(any)

    def draw_shares() -> LakeConfiguration:
        return from_rows(*((n / 20, 0.2, 0.2) for n in apportion(draw(weights), 20)))

    history = [
        make_history(draw(RATES), draw(RATES), stage, configuration=draw_shares())
        for stage in range(1, draw(st.integers(1, 4)))
    ]
    learnability = draw(st.dictionaries(st.sampled_from(BOUNDS.groups), st.floats(0, 0.25)))
    instances = draw(st.integers(0, 5000))
    counts = draw(st.dictionaries(st.sampled_from(BOUNDS.groups), st.integers(0, 100), min_size=1))
    return make_view(
        counts,
        current=draw_shares(),
        history=history,
        training=draw(st.none() | st.just(make_training(learnability, instances))),
    )


def compute_reward(view: StageView, stage: int, group: str) -> float | None:
    """Return the mean absolute advantage: (1-p)/s for valid rollouts and p/s for invalid ones."""
    tally, evidence = view.evidence.validation.get(group), view.evidence.training
    if stage < len(view.history):
        past_stage = view.history[stage]
        rates = [r[group] for r in (past_stage.valid_before, past_stage.valid_after) if group in r]
        if not rates:
            return None
        rate = sum(rates) / len(rates)
    elif evidence and group in evidence.learnability:
        rate = (1 - math.sqrt(max(0.0, 1 - 4 * evidence.learnability[group]))) / 2
    elif tally:
        rate = tally.valid / tally.count
    else:
        return None
    deviation = math.sqrt(rate * (1 - rate))
    return (
        rate * (1 - rate) / deviation + (1 - rate) * rate / deviation if deviation > 1e-12 else 0.0
    )


@settings(max_examples=100)
@given(view=bandit_views(), alpha=st.floats(0.05, 1), tau=st.floats(0.05, 2))
def test_sec_bandit_matches_a_loop_over_stages(view, alpha, tau):
    values = {"3": 0.0, "4": 0.0, "5": 0.0}
    for stage in range(len(view.history) + 1):
        for group in values:
            reward = compute_reward(view, stage, group)
            if reward is not None:
                values[group] = (1 - alpha) * values[group] + alpha * reward
    engineer = SecBanditEngineer(alpha, tau)
    assert engineer.values(view) == pytest.approx(values, abs=1e-6)
    largest = max(values.values())
    weights = [math.exp((value - largest) / tau) for value in values.values()]
    for share, weight in zip(propose_shares(engineer, view), weights, strict=True):
        assert abs(20 * share - 20 * weight / sum(weights)) < 1 + 1e-3


# Random engineers


def test_random_engineer_is_uniform_over_the_grid():
    view = make_view({"3": 50})
    designs = [propose(RandomEngineer(), view, seed) for seed in range(2000)]
    hole_counts = Counter(value for design in designs for value in column(design, "hole_ratio"))
    wait_counts = Counter(value for design in designs for value in column(design, "wait_ratio"))
    assert (len(hole_counts), len(wait_counts)) == (11, 21)
    # The expected counts are 545 and 286 of 6000; allow five standard deviations.
    assert all(abs(n - 6000 / 11) < 5 * math.sqrt(6000 / 11) for n in hole_counts.values())
    assert all(abs(n - 6000 / 21) < 5 * math.sqrt(6000 / 21) for n in wait_counts.values())
    # For a uniform point of the simplex, a share is below x with probability 1 - (1-x)^2.
    for group in range(3):
        num_below = sum(column(design, "data_ratio")[group] < 0.125 for design in designs)
        assert abs(num_below / 2000 - (1 - 0.875**2)) < 5 * math.sqrt(0.25 / 2000)


def test_random_engineer_redraws_unless_it_has_a_seed():
    view, later_view = make_view({"3": 50}), make_view({"3": 0, "5": 100}, stage=4)
    fixed_engineer = RandomEngineer(seed=3)
    assert propose(fixed_engineer, view, 0) == propose(fixed_engineer, later_view, 1)
    assert propose(fixed_engineer, view) != propose(RandomEngineer(seed=4), view)
    assert propose(RandomEngineer(), view, 0) != propose(RandomEngineer(), view, 1)
    assert propose(RandomEngineer(), view, 0) == propose(RandomEngineer(), later_view, 0)


# All engineers on random evidence


@st.composite
def spaces(draw) -> Bounds:
    sizes = draw(st.lists(st.integers(3, 8), min_size=1, max_size=5, unique=True))
    step = draw(st.sampled_from([0.01, 0.05, 0.1, 0.25]))
    units = round(1 / step)
    max_units = draw(st.integers(0, units // len(sizes)))
    return Bounds(
        sizes=tuple(sizes),
        step=step,
        min_share=round(step * draw(st.sampled_from([0, max_units])), 2),
        max_hole_ratio=round(step * draw(st.integers(0, units // 2)), 2),
        max_wait_ratio=round(step * draw(st.integers(0, units)), 2),
    )


@settings(max_examples=150)
@given(data=st.data(), name=st.sampled_from(ENGINEER_NAMES), seed=st.integers(0, 2**63 - 1))
def test_engineers_are_deterministic_and_in_bounds(data, name, seed):
    bounds = data.draw(spaces())
    view = random_view(np.random.default_rng(seed), lake_domain(bounds))
    start = data.draw(on_grid(bounds))
    stages = data.draw(st.integers(1, 6))
    engineer = scripted_engineer(name, RunSettings(bounds, start, stages, seed=7))
    task = make_task(view, seed)
    proposal = engineer.propose(task)
    decision = review_answer(proposal.text, view.current, view.domain)
    assert decision.configuration is not None, decision.reason
    assert {repair.name for repair in decision.repairs} <= {"feasibility"}
    if name.rpartition(":")[2] != "fixed":
        assert decision.kind == ("accepted" if decision.diff else "unchanged")
        assert decision.repairs == ()
    assert bounds.violation(decision.configuration) is None
    assert math.fsum(column(decision.configuration, "data_ratio")) == pytest.approx(1.0)
    assert proposal.tokens == 0
    twin = scripted_engineer(name, RunSettings(bounds, start, stages, seed=7))
    other_prompt = Context("other words", cut=(), tokens=2)
    assert twin.propose(replace(task, context=other_prompt, attempt=5)).text == proposal.text


@pytest.mark.parametrize("name", list(SCRIPTED_ENGINEERS))
def test_scripted_engineers_support_other_environments(name):
    validation = {
        "a.b": GroupEvidence(count=4, valid=1, failures={"typo": 3}),
        "c+": GroupEvidence(count=4, valid=4),
    }
    view = StageView(words.DOMAIN, StageEvidence(stage=1, validation=validation), words.CURRENT)
    engineer = scripted_engineer(name, RunSettings(words.SPACE, words.CURRENT, stages=2, seed=0))
    record = run_design(engineer, view, DesignSettings(attempts=1))
    expected_kind = "accepted" if record.diff else "unchanged"
    assert (record.kind, record.engineer) == (expected_kind, name)
    assert record.spent.engineer_tokens == 0
