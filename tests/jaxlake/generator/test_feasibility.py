"""The feasibility map: its counts, its guarantees for generation, and its table."""

import json
import math
from importlib import resources

import jax
import numpy as np
import pytest

import jaxlake
from benchmarks import oracles
from jaxlake.generator import KindSurvey, acceptance, feasibility_map
from tools import feasibility_table

NUM_CANDIDATES = 512
KIND_OPTIONS = {"sizes": (2, 3), "hole_ratios": (0.0, 0.3, 0.5), "wait_ratios": (0.0, 0.5)}


@pytest.fixture(scope="module")
def rows():
    return feasibility_map(jax.random.key(0), **KIND_OPTIONS, candidates=NUM_CANDIDATES, horizon=32)


def test_infeasibility_gives_a_reason(rows):
    problems = {(row.size, row.hole_ratio, row.wait_ratio): row.problem for row in rows}
    assert problems[2, 0.3, 0.0] == jaxlake.infeasibility(2, 0.3, 2)
    assert problems[2, 0.0, 0.5] == f"of {NUM_CANDIDATES} candidates none needed a wait"
    assert problems[2, 0.0, 0.0] is problems[3, 0.5, 0.5] is None
    assert {row.candidates for row in rows if row.size == 2 and row.hole_ratio} == {0}


def test_shares_match_oracle_shares(rows):
    """Compare the shares on 3x3 with two holes with a random sample."""
    row = next(r for r in rows if (r.size, r.hole_ratio, r.wait_ratio) == (3, 0.3, 0.0))
    assert row.holes == 2
    assert row.boards == math.comb(9, 2) * 7 * 6 * 5 * 4
    rng = np.random.default_rng(0)
    outcomes = []
    for _ in range(400):
        cells = np.array(list("HHSsGgFFF"))
        grid = [" ".join(line) for line in rng.permutation(cells).reshape(3, 3)]
        outcomes.append(oracles.least_sum_of_costs(grid))
    solvable_share = np.mean([outcome is not None for outcome in outcomes])
    wait_share = np.mean([outcome[1] for outcome in outcomes if outcome is not None])
    # The tolerance is five standard deviations of the difference of the two samples.
    shares = (row.optimal / row.candidates, row.wait_share)
    for share, expected in zip(shares, (solvable_share, wait_share), strict=True):
        assert abs(share - expected) < 5 * math.sqrt(
            expected * (1 - expected) * (1 / 400 + 1 / 350)
        )


@pytest.mark.parametrize(
    ("wait", "no_wait", "wait_ratio", "rate"),
    [
        (10, 60, 0.0, 0.6),
        (10, 60, 1.0, 0.1),
        (10, 60, 0.5, 0.2),
        (10, 60, 1 / 7, 0.7),
        (0, 60, 0.01, 0.0),
        (10, 0, 0.5, 0.0),
        (10, 0, 1.0, 0.1),
    ],
)
def test_acceptance_rate_is_set_by_the_scarcer_kind(wait, no_wait, wait_ratio, rate):
    survey = KindSurvey(2, 5, 3, 100, wait, no_wait, 100 - wait - no_wait, 0)
    assert survey.acceptance(wait_ratio) == pytest.approx(rate)
    low, high = survey.acceptance_interval(wait_ratio)
    assert 0 <= low <= rate <= high <= 1


def test_shipped_table_is_complete():
    content = json.loads(
        resources.files("jaxlake.generator").joinpath("feasibility_table.json").read_text()
    )
    surveys = [KindSurvey(**fields) for fields in content["strata"]]
    assert [(s.num_agents, s.size, s.holes) for s in surveys] == feasibility_table.list_kinds()
    for s in surveys:
        assert s.wait + s.no_wait + s.unsolvable + s.unknown == s.candidates > 0
    for size in feasibility_table.SIZES:
        for hole_ratio in feasibility_table.HOLE_RATIOS:
            rate = acceptance(size, hole_ratio, 0.25, 2)
            assert rate is not None
            assert (rate == 0) == (size == 2)


def test_shipped_table_matches_the_solver(rows):
    for row in rows:
        if not row.candidates:
            continue
        num_waits = row.optimal * row.wait_share
        for wait_ratio, count in ((0.0, row.optimal - num_waits), (1.0, num_waits)):
            rate = acceptance(row.size, row.hole_ratio, wait_ratio, 2)
            standard_error = math.sqrt(rate * (1 - rate) * (1 / NUM_CANDIDATES + 1 / 4096))
            assert abs(count / NUM_CANDIDATES - rate) <= 5 * standard_error


def test_acceptance_interpolates_hole_counts():
    rate = acceptance(10, 0.37, 0.0, 2)
    high_rate, low_rate = acceptance(10, 0.35, 0.0, 2), acceptance(10, 0.4, 0.0, 2)
    assert low_rate < rate < high_rate
    assert acceptance(11, 0.2, 0.0, 2) is None
    assert acceptance(10, 0.6, 0.0, 2) is None
    assert acceptance(10, 0.99, 0.0, 2) == 0.0
    with pytest.raises(ValueError, match=r"wait_ratio must be in \[0, 1\], got 2"):
        acceptance(4, 0.2, 2, 2)
