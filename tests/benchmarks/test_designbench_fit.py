"""Fits of simulated runs recover the true parameters; the committed figure is complete."""

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.designbench_fit import (
    RESULTS,
    Fit,
    Point,
    Run,
    draw_points,
    fit_costs,
    fit_learner,
    make_learners,
    rank_correlations,
)
from engineer.bench.learners import train_skill, validation_rates

TRUE_FIT = Fit(0.4, 0.25, 0.5, (0.8, 1.5), (), 1.0, (0.0, 0.0))


def make_cells(hole_cost: float, wait_cost: float) -> dict:
    """Return answer counts whose logits fall by these costs over the ranges of the knobs."""
    counts = {}
    for size in range(4):
        for ratio in (0.0, 0.2, 0.4):
            for needs_wait in (False, True):
                logit = 1.0 - 0.3 * size - hole_cost * ratio / 0.4 - wait_cost * needs_wait / 0.6
                counts[size, ratio, needs_wait] = (round(1e6 / (1 + np.exp(-logit))), 10**6)
    return counts


def simulate_run(rng: np.random.Generator) -> Run:
    """Train a learner with known parameters on three random configurations."""
    shares, levels = rng.dirichlet([1.0] * 4, 3), rng.random((3, 4, 2))
    run = Run(0, "", np.full((1, 4), 0.4), shares, levels, make_cells(1.2, 0.4), np.ones((4, 6)))
    learners = make_learners([run], TRUE_FIT)
    skill, rates = learners.skill, [validation_rates(learners, learners.skill)[0]]
    for stage in range(3):
        skill = train_skill(learners, skill, shares[[stage]], levels[[stage]], 0.0)
        rates.append(validation_rates(learners, skill)[0])
    return replace(run, rates=np.stack(rates))


def test_fit_costs_recovers_both_knob_costs():
    costs = fit_costs(simulate_run(np.random.default_rng(0)))
    np.testing.assert_allclose(costs, [[1.2, 0.4]] * 4, atol=1e-3)


def test_fit_learner_recovers_simulated_parameters():
    rng = np.random.default_rng(1)
    fit = fit_learner([simulate_run(rng) for _ in range(8)])
    assert fit[:3] == pytest.approx(TRUE_FIT[:3], abs=1e-3)
    assert fit.narrow == pytest.approx(TRUE_FIT.narrow, abs=1e-3)
    assert fit.explained == pytest.approx(1.0, abs=1e-3)


def test_draw_points_labels_every_tracked_point(tmp_path):
    content = json.loads((RESULTS / "designbench-validity.json").read_text())
    points = [Point(**point) for point in content["points"]]
    assert rank_correlations(points, held_out=True) == content["rank_correlation_held_out"]
    draw_points(points, tmp_path / "x.svg")
    svg = (tmp_path / "x.svg").read_text()
    assert all(point.arm in svg for point in points)
    assert len(svg) < 100_000
