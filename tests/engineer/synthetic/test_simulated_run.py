"""Simulated runs: their stages, counts and rollbacks."""

import math
from itertools import pairwise

import numpy as np
import pytest

from engineer import Domain
from engineer.evidence import GroupEvidence
from engineer.lake import Bounds
from engineer.synthetic import simulate_run
from tests.engineer import words
from tests.engineer.builders import ADDITION, make_lake

LAKE = make_lake()
ENVIRONMENTS = {
    "lake": LAKE,
    "tight lake": make_lake(
        Bounds(sizes=(2, 5, 9, 10), min_share=0.1, max_hole_ratio=0.2, edit_steps=4)
    ),
    "a lake of one size": make_lake(Bounds(sizes=(6,), max_wait_ratio=0.0)),
    "words": words.DOMAIN,
    "sums": ADDITION,
}


@pytest.fixture(params=ENVIRONMENTS)
def domain(request: pytest.FixtureRequest) -> Domain:
    return ENVIRONMENTS[request.param]


def simulate_runs(domain: Domain, count: int = 40, num_stages: int = 6, seed: int = 0):
    rng = np.random.default_rng(seed)
    return [simulate_run(rng, domain, num_stages) for _ in range(count)]


def compute_rates(validation: dict[str, GroupEvidence]) -> dict[str, float]:
    return {group: tally.valid / tally.count for group, tally in validation.items()}


def test_simulated_stages_continue_each_other(domain):
    for views in simulate_runs(domain):
        assert [view.evidence.stage for view in views] == list(range(1, len(views) + 1))
        assert views[0].designed_from is None
        assert views[0].history == ()
        for previous_view, next_view in pairwise(views):
            assert next_view.designed_from == previous_view.current
            assert next_view.valid_before == compute_rates(previous_view.evidence.validation)
            assert tuple(next_view.history[:-1]) == tuple(previous_view.history)
            entry = next_view.history[-1]
            assert entry.stage == previous_view.evidence.stage
            assert entry.configuration == previous_view.trained
            assert entry.valid_before == previous_view.valid_before
            assert entry.valid_after == next_view.valid_before
            has_fallen = bool(previous_view.notice)
            is_first = previous_view.designed_from is None
            decision = "rolled_back" if has_fallen else "initial" if is_first else "accepted"
            assert entry.decision == decision


def test_simulated_run_accepts_every_configuration(domain):
    for views in simulate_runs(domain):
        for view in views:
            for configuration in (view.current, view.trained, view.designed_from):
                if configuration is not None:
                    assert domain.space.violation(configuration) is None
                    assert domain.space.grid_violation(configuration) is None


def test_simulated_counts_add_up_to_the_request(domain):
    rng = np.random.default_rng(1)
    seen_counts = set()
    for _ in range(60):
        for view in simulate_run(rng, domain, 3, counts=(20, 23)):
            counts = {tally.count for tally in view.evidence.validation.values()}
            assert tuple(view.evidence.validation) == domain.space.groups
            assert len(counts) == 1
            seen_counts |= counts
            for tally in view.evidence.validation.values():
                assert tally.valid + sum(tally.failures.values()) == tally.count
                assert set(tally.failures) <= {label.key for label in domain.failures}
                assert set(tally.scores) == {label.key for label in domain.scores}
            assert view.evidence.training is not None
            assert tuple(view.evidence.training.learnability) == domain.space.groups
    assert seen_counts == {20, 21, 22, 23}


def test_simulated_fall_rolls_back_and_is_reported(domain):
    num_rolled_back = num_kept = 0
    for views in simulate_runs(domain, count=120):
        for view in views:
            rates = compute_rates(view.evidence.validation)
            count = sum(tally.count for tally in view.evidence.validation.values())
            mean_before = math.fsum(view.valid_before.values()) / len(rates)
            mean_now = math.fsum(rates.values()) / len(rates)
            pooled_rate = (mean_before + mean_now) / 2
            standard_error = math.sqrt(max(2 * pooled_rate * (1 - pooled_rate), 1 / count) / count)
            assert bool(view.notice) == (mean_before - mean_now > 1.96 * standard_error)
            if view.notice:
                num_rolled_back += 1
                assert view.current == (view.designed_from or view.trained)
            else:
                num_kept += 1
                assert view.current == view.trained
    assert num_rolled_back > 10
    assert num_kept > 100
