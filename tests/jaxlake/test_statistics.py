"""Counts of outcomes and intervals of rates."""

import random
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxlake
from jaxlake import Failure, Outcome
from tests import oracles

B = 240


@pytest.fixture(scope="module")
def batch():
    rng = random.Random(2)
    draw = np.random.default_rng(2)
    grids = [oracles.random_grid(rng, rng.randint(2, 7), rng.uniform(0, 0.5)) for _ in range(B)]
    instances = jaxlake.stack_instances([jaxlake.parse_grid(grid, max_size=7) for grid in grids])
    failure = draw.integers(0, len(Failure), B).astype(np.int8)
    valid = failure == Failure.NONE
    timed = ~valid & (failure != Failure.PARSE_ERROR)
    outcomes = Outcome(
        parsed=failure != Failure.PARSE_ERROR,
        valid=valid,
        optimal_sum_of_costs=valid & (draw.random(B) < 0.5),
        optimal_makespan=valid & (draw.random(B) < 0.5),
        failure=failure,
        agent=np.where(timed, draw.integers(0, 2, B), -1).astype(np.int8),
        time=np.where(timed, draw.integers(0, 90, B), -1).astype(np.int16),
        sum_of_costs=np.where(valid, 9, -1).astype(np.int16),
        makespan=np.where(valid, 5, -1).astype(np.int16),
    )
    return grids, instances, draw.random(B) < 0.3, outcomes, draw.random(B) < 0.8


def test_counts_agree_with_counting_by_hand(batch):
    grids, instances, waits, outcomes, mask = batch
    statistics = jax.jit(jaxlake.tabulate)(instances, waits, outcomes, mask)
    expected, times = Counter(), Counter()
    for i in np.flatnonzero(mask):
        cells = [letter for row in grids[i] for letter in row.split(" ")]
        group = (len(grids[i]), 10 * cells.count("H") // len(cells), bool(waits[i]))
        kind = Failure(outcomes.failure[i])
        expected[group, "total"] += 1
        expected[group, "valid" if kind == Failure.NONE else kind.label] += 1
        for name in ("optimal_sum_of_costs", "optimal_makespan"):
            expected[group, name] += int(getattr(outcomes, name)[i])
        if outcomes.time[i] >= 0:
            times[int(kind), min(int(outcomes.time[i]), 64)] += 1
    table = jaxlake.rows(statistics, by=("size", "hole_tenth", "needs_wait"))
    got = Counter()
    for row in table:
        group = (row.pop("size"), row.pop("hole_tenth"), row.pop("needs_wait"))
        got.update({(group, name): value for name, value in row.items()})
    assert +got == +expected
    histogram = np.asarray(statistics.first_failure_time)
    assert {index: histogram[index] for index in zip(*histogram.nonzero(), strict=True)} == times
    assert histogram[:, 64].sum() > 0


def test_parts_add_up_to_the_whole_and_no_mask_means_all(batch):
    _, instances, waits, outcomes, mask = batch
    whole = jaxlake.tabulate(instances, waits, outcomes)
    parts = jaxlake.tabulate(instances, waits, outcomes, mask) + jaxlake.tabulate(
        instances, waits, outcomes, ~mask
    )
    for x, y in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
        assert x.dtype == jnp.int32
        assert (x == y).all()
    (total,) = jaxlake.rows(whole, by=())
    assert total["total"] == B
    assert sum(total[kind.label] for kind in Failure if kind != Failure.NONE) == B - total["valid"]


def test_rows_can_be_grouped_in_any_order_and_add_up(batch):
    _, instances, waits, outcomes, _ = batch
    statistics = jaxlake.tabulate(instances, waits, outcomes)
    by_size = jaxlake.rows(statistics)
    by_both = jaxlake.rows(statistics, by=("needs_wait", "size"))
    assert [row["size"] for row in by_size] == [2, 3, 4, 5, 6, 7]
    for row in by_size:
        parts = [other for other in by_both if other["size"] == row["size"]]
        for name in set(row) - {"size"}:
            assert sum(part[name] for part in parts) == row[name]
    assert list(by_both[0])[:2] == ["needs_wait", "size"]


@pytest.mark.parametrize("by", [("colour",), ("size", "size")])
def test_unknown_groups_are_refused(batch, by):
    _, instances, waits, outcomes, _ = batch
    with pytest.raises(ValueError, match="by: got"):
        jaxlake.rows(jaxlake.tabulate(instances, waits, outcomes), by=by)


def test_statistics_can_be_vmapped_over_batches(batch):
    _, instances, waits, outcomes, mask = batch
    folded = jax.tree.map(
        lambda leaf: jnp.asarray(leaf).reshape(4, B // 4, *leaf.shape[1:]),
        (instances, waits, outcomes, mask),
    )
    parts = jax.vmap(jaxlake.tabulate)(*folded)
    whole = jaxlake.tabulate(instances, waits, outcomes, mask)
    for x, y in zip(jax.tree.leaves(parts), jax.tree.leaves(whole), strict=True):
        assert (x.sum(axis=0) == y).all()


def test_wilson_bounds_solve_the_score_equation():
    """The bounds are the p at which |share - p| is z standard errors of p (Wilson 1927)."""
    for k, n in [(1, 10), (5, 10), (37, 150), (899, 900)]:
        for confidence, z in [(0.95, 1.959963985), (0.9, 1.644853627)]:
            for bound in jaxlake.wilson_interval(k, n, confidence):
                error = np.sqrt(bound * (1 - bound) / n)
                assert abs(k / n - bound) == pytest.approx(z * error, rel=1e-6)


def test_wilson_intervals_are_elementwise_and_hold_at_the_ends():
    low, high = jaxlake.wilson_interval([0, 10, 0, 5], [10, 10, 0, 10])
    assert low.tolist()[0] == 0.0
    assert high.tolist()[1] == 1.0
    assert (low[2], high[2]) == (0.0, 1.0)
    assert (low <= [0, 1, 0, 0.5]).all()
    assert (high >= [0, 1, 0, 0.5]).all()


@pytest.mark.parametrize(
    "arguments", [(5, 4), (-1, 4), (1, 2, 1.0), (1, 2, 0.0), (1, 2, float("nan"))]
)
def test_wilson_arguments_out_of_range_are_named(arguments):
    with pytest.raises(ValueError, match="got"):
        jaxlake.wilson_interval(*arguments)
