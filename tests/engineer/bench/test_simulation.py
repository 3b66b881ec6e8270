"""Compare learners, `train_learners` and `train_with_policy` with plain Python."""

import math

import jax
import numpy as np
import pytest

from engineer import scripted_engineer
from engineer.bench import (
    Decision,
    FeatureEngineer,
    Prior,
    draw_learners,
    select_learners,
    tabulate_grid,
    train_learners,
    train_with_policy,
)
from engineer.bench.learners import count_valid_answers, train_skill, validation_rates
from engineer.lake import Bounds
from tests.engineer.builders import make_lake

NUM_STAGES = 4
DOMAIN = make_lake(Bounds(sizes=(3, 4, 6), max_hole_ratio=0.4, min_share=0.05, edit_steps=3))
LEARNERS = draw_learners(Prior(), DOMAIN, 12, NUM_STAGES, (7,))


def sigmoid(logit: float) -> float:
    return 1.0 / (1.0 + math.exp(-logit))


def train_one_learner(i: int, skill: list[float], shares, levels, drift) -> list[float]:
    """Train one learner for a stage in plain Python."""
    groups, knobs = LEARNERS.cost.shape[1:]
    signals = []
    for g in range(groups):
        p = sigmoid(skill[g] - sum(LEARNERS.cost[i, g, k] * levels[g][k] for k in range(knobs)))
        usefulness = 1.0
        for k in range(knobs):
            narrowing = max(LEARNERS.validation[i, g, k] - levels[g][k], 0.0)
            usefulness -= LEARNERS.narrow[i, k] * narrowing
        signals.append(groups * shares[g] * 4.0 * p * (1.0 - p) * usefulness)
    mean, transfer = sum(signals) / groups, LEARNERS.transfer[i]
    return [
        s
        + LEARNERS.speed[i] * ((1.0 - transfer) * signals[g] + transfer * mean)
        - LEARNERS.forgetting[i] * (s - LEARNERS.skill[i, g])
        + drift[g]
        for g, s in enumerate(skill)
    ]


def decide_by_learnability(features) -> Decision:
    """Follow learnability, and raise knobs with the valid rate and its trend."""
    rise = 0.4 * (features.valid - 0.3) + 0.2 * features.trend
    return Decision(
        features.learnability + 0.01 * features.progress, features.levels + rise[..., None]
    )


def test_trained_skill_agrees_with_one_learner_at_a_time():
    rng = np.random.default_rng(0)
    skill, levels = LEARNERS.skill + rng.normal(size=LEARNERS.skill.shape), rng.random((12, 3, 2))
    shares, drift = rng.dirichlet([1.0] * 3, 12), LEARNERS.drift[:, 1]
    trained_skill = train_skill(LEARNERS, skill, shares, levels, drift)
    for i in range(12):
        expected = train_one_learner(i, skill[i].tolist(), shares[i], levels[i], drift[i])
        np.testing.assert_allclose(trained_skill[i], expected, rtol=1e-12)


def test_training_on_fixed_configuration_matches_equations():
    result = train_learners(lambda run: scripted_engineer("fixed", run), LEARNERS, DOMAIN)
    for i in range(12):
        skill = LEARNERS.skill[i].tolist()
        for stage in range(NUM_STAGES):
            skill = train_one_learner(
                i, skill, LEARNERS.shares[i], LEARNERS.levels[i], LEARNERS.drift[i, stage]
            )
        rates = [sigmoid(s - c) for s, c in zip(skill, 0.5 * LEARNERS.cost[i].sum(1), strict=True)]
        assert result.final_rates[i] == pytest.approx(sum(rates) / 3, rel=1e-12)


def test_train_with_policy_agrees_with_train_learners():
    result = train_learners(
        lambda run: FeatureEngineer(decide_by_learnability, "curious"), LEARNERS, DOMAIN
    )
    grid = tabulate_grid(DOMAIN)
    rates = jax.jit(lambda learners: train_with_policy(decide_by_learnability, learners, grid))(
        LEARNERS
    )
    np.testing.assert_allclose(rates, result.rates, atol=1e-5)
    assert result.usable == result.designs == result.calls == 12 * (NUM_STAGES - 1)


def test_draw_learners_is_independent_of_the_count():
    subset = select_learners(draw_learners(Prior(), DOMAIN, 15, NUM_STAGES, (7,)), slice(12))
    for expected, actual in zip(LEARNERS, subset, strict=True):
        np.testing.assert_array_equal(expected, actual)


def test_valid_answers_have_binomial_moments():
    normals = np.random.default_rng(0).normal(size=100_000)
    for p in (0.05, 0.5, 0.9):
        valid_counts = count_valid_answers(450, p, normals)
        assert valid_counts.min() >= 0
        assert valid_counts.max() <= 450
        assert valid_counts.mean() == pytest.approx(450 * p, abs=0.2)
        assert valid_counts.std() == pytest.approx(math.sqrt(450 * p * (1 - p)), rel=0.02)


def test_draw_learners_start_from_the_prior():
    prior = Prior(group_spread=0.0, start=(0.7, 0.0), slope=(1.2, 1.2), validation=0.25)
    learners = draw_learners(prior, DOMAIN, 3, 2, (1,))
    rates = validation_rates(learners, learners.skill)
    np.testing.assert_allclose(np.log(rates / (1 - rates)), [[1.3, 0.7, 0.1]] * 3, rtol=1e-9)


@pytest.mark.parametrize(("count", "stages"), [(0, 3), (3, 0)])
def test_draw_learners_rejects_numbers_below_1(count, stages):
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        draw_learners(Prior(), DOMAIN, count, stages, (0,))
