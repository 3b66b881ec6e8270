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
    learners_of,
    rank_correlations,
)
from engineer.bench.learners import trained_skill, validation_rates

TRUE = Fit(0.4, 0.25, 0.5, (0.8, 1.5), (), 1.0, (0.0, 0.0))


def cells(holes: float, waits: float) -> dict:
    """Answers whose logits fall by these numbers over the ranges of the knobs."""
    counts = {}
    for size in range(4):
        for ratio in (0.0, 0.2, 0.4):
            for needs_wait in (False, True):
                logit = 1.0 - 0.3 * size - holes * ratio / 0.4 - waits * needs_wait / 0.6
                counts[size, ratio, needs_wait] = (round(1e6 / (1 + np.exp(-logit))), 10**6)
    return counts


def simulated_run(rng: np.random.Generator) -> Run:
    """Let a learner of known numbers train on three random configurations."""
    shares, levels = rng.dirichlet([1.0] * 4, 3), rng.random((3, 4, 2))
    run = Run(0, "", np.full((1, 4), 0.4), shares, levels, cells(1.2, 0.4), np.ones((4, 6)))
    learners = learners_of([run], TRUE)
    skill, rates = learners.skill, [validation_rates(learners, learners.skill)[0]]
    for stage in range(3):
        skill = trained_skill(learners, skill, shares[[stage]], levels[[stage]], 0.0)
        rates.append(validation_rates(learners, skill)[0])
    return replace(run, rates=np.stack(rates))


def test_fit_costs_recovers_both_knob_costs():
    costs = fit_costs(simulated_run(np.random.default_rng(0)))
    np.testing.assert_allclose(costs, [[1.2, 0.4]] * 4, atol=1e-3)


def test_fit_learner_recovers_simulated_parameters():
    rng = np.random.default_rng(1)
    found = fit_learner([simulated_run(rng) for _ in range(8)])
    assert found[:3] == pytest.approx(TRUE[:3], abs=1e-3)
    assert found.narrow == pytest.approx(TRUE.narrow, abs=1e-3)
    assert found.explained == pytest.approx(1.0, abs=1e-3)


def test_draw_points_labels_every_tracked_point(tmp_path):
    content = json.loads((RESULTS / "designbench-validity.json").read_text())
    points = [Point(**point) for point in content["points"]]
    assert rank_correlations(points, held_out=True) == content["rank_correlation_held_out"]
    draw_points(points, tmp_path / "x.svg")
    text = (tmp_path / "x.svg").read_text()
    assert all(point.arm in text for point in points)
    assert len(text) < 100_000
