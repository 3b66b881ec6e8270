"""Counts and sums of outcomes, and intervals of rates."""

import random
from collections import Counter
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxlake
from benchmarks import oracles
from jaxlake import Failure, Outcome, Solution, Status
from jaxlake.statistics.summaries import (
    COUNTERS,
    Summary,
    merge_summaries,
    summarize,
    summary_columns,
)
from jaxlake.statistics.tables import AXES, Statistics, join_words, merge_statistics
from tests.jaxlake.solver.boards import assert_same, make_instances, select_rows

B, K = 240, 4


@pytest.fixture(scope="module")
def batch():
    rng = random.Random(2)
    draw = np.random.default_rng(2)
    sizes = [rng.randint(2, 7) for _ in range(B)]
    agents = np.array([rng.randint(2, 2 if size == 2 else K) for size in sizes])
    grids = [
        oracles.random_grid(rng, size, rng.uniform(0, 0.5), int(k))
        for size, k in zip(sizes, agents, strict=True)
    ]
    failure = draw.integers(0, len(Failure), B).astype(np.int8)
    valid = failure == Failure.NONE
    parsed = failure != Failure.PARSE_ERROR
    has_failure_time = ~valid & parsed
    present = np.arange(K) < agents[:, None]
    outcomes = Outcome(
        parsed=parsed,
        valid=valid,
        optimal_sum_of_costs=valid & (draw.random(B) < 0.5),
        optimal_makespan=valid & (draw.random(B) < 0.5),
        failure=failure,
        agent=np.where(has_failure_time, draw.integers(0, 2, B), -1).astype(np.int8),
        time=np.where(has_failure_time, draw.integers(0, 90, B), -1).astype(np.int16),
        sum_of_costs=np.where(valid, draw.integers(0, 32768, B), -1).astype(np.int16),
        makespan=np.where(valid, draw.integers(20, 90, B), -1).astype(np.int16),
        at_goal=present & parsed[:, None] & (valid[:, None] | (draw.random((B, K)) < 0.5)),
    )
    solutions = Solution(
        status=draw.choice([Status.OPTIMAL, Status.OPTIMAL, Status.UNKNOWN], B).astype(np.int8),
        sum_of_costs=np.maximum(outcomes.sum_of_costs - draw.integers(0, 9, B), 0).astype(np.int16),
        makespan=np.maximum(outcomes.makespan - draw.integers(0, 9, B), 0).astype(np.int16),
        needs_wait=draw.random(B) < 0.3,
        plan=np.zeros((B, 0, K), np.int8),
        makespan_plan=np.zeros((B, 0, K), np.int8),
        expansions=np.zeros(B, np.int32),
    )
    return grids, make_instances(grids, 7, K), outcomes, solutions, draw.random(B) < 0.8


def _count_by_hand(batch) -> dict[tuple, dict]:
    """Count the rows by all axes in exact arithmetic, one plan at a time."""
    grids, _, outcomes, solutions, mask = batch
    groups: dict[tuple, list[int]] = {}
    for i in np.flatnonzero(mask):
        cells = [letter for row in grids[i] for letter in row.split(" ")]
        agents = sum(letter in "SsABC" for letter in cells)
        hole_tenth = 10 * cells.count("H") // len(cells)
        group = (len(grids[i]), agents, hole_tenth, bool(solutions.needs_wait[i]))
        groups.setdefault(group, []).append(int(i))
    table = {}
    for group, members in groups.items():
        valid = [i for i in members if outcomes.failure[i] == Failure.NONE]
        compared = [i for i in valid if solutions.status[i] == Status.OPTIMAL]
        row = {"total": len(members), "valid": len(valid), "compared": len(compared)}
        row["csr"] = Fraction(len(valid), len(members))
        at_goal = sum(int(outcomes.at_goal[i].sum()) for i in members)
        row["isr"] = Fraction(at_goal, group[1] * len(members))
        for name in ("optimal_sum_of_costs", "optimal_makespan"):
            row[name] = sum(bool(getattr(outcomes, name)[i]) for i in members)
        for kind in Failure:
            if kind != Failure.NONE:
                row[kind.label] = sum(outcomes.failure[i] == kind for i in members)
        for name in ("sum_of_costs", "makespan"):
            costs = [int(getattr(outcomes, name)[i]) for i in valid]
            excess = [
                int(getattr(outcomes, name)[i]) - int(getattr(solutions, name)[i]) for i in compared
            ]
            row[f"mean_{name}"] = Fraction(sum(costs), len(costs)) if costs else None
            row[f"mean_excess_{name}"] = Fraction(sum(excess), len(excess)) if excess else None
        table[group] = row
    return table


def _tabulate(batch, mask=None):
    _, boards, outcomes, solutions, _ = batch
    return _jitted_tabulate(boards, solutions.needs_wait, outcomes, mask, solutions)


_jitted_tabulate = jax.jit(jaxlake.tabulate)


def test_tabulate_matches_counting_by_hand(batch):
    _, _, outcomes, _, mask = batch
    statistics = _tabulate(batch, mask)
    assert {leaf.dtype for leaf in jax.tree.leaves(statistics)} == {jnp.dtype(jnp.int32)}
    expected = _count_by_hand(batch)
    table = jaxlake.statistics_rows(statistics, by=AXES)
    assert len(table) == len(expected)
    for row in table:
        by_hand = expected[tuple(row.pop(name) for name in AXES)]
        assert row.keys() == by_hand.keys()
        for name, value in row.items():
            exact = by_hand[name]
            assert value == (float(exact) if isinstance(exact, Fraction) else exact), name

    failure_times = Counter(
        (int(outcomes.failure[i]), min(int(outcomes.time[i]), 64))
        for i in np.flatnonzero(mask)
        if outcomes.time[i] >= 0
    )
    histogram = np.asarray(statistics.first_failure_time)
    assert {
        index: histogram[index] for index in zip(*histogram.nonzero(), strict=True)
    } == failure_times
    assert histogram[:, 64].sum() > 0


def test_tables_of_parts_add_up(batch):
    mask = batch[-1]
    whole = _tabulate(batch, np.ones(B, bool))
    parts = [_tabulate(batch, mask), _tabulate(batch, ~mask)]
    assert_same(parts[0] + parts[1], whole)
    assert_same(sum(parts), whole)
    assert_same(merge_statistics(jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)), whole)
    assert_same(_tabulate(batch), whole)


def test_tabulate_supports_vmap_and_named_axes(batch):
    _, boards, outcomes, solutions, mask = batch
    arguments = (boards, solutions.needs_wait, outcomes, mask, solutions)
    batches = jax.tree.map(lambda leaf: leaf.reshape(4, B // 4, *leaf.shape[1:]), arguments)
    whole = _tabulate(batch, mask)
    assert_same(merge_statistics(jax.vmap(jaxlake.tabulate)(*batches)), whole)
    tabulate_over_axis = partial(jaxlake.tabulate, axis_name="batches")
    replicated = jax.vmap(tabulate_over_axis, axis_name="batches")(*batches)
    for index in range(4):
        assert_same(select_rows(replicated, index), whole)


def test_sums_stay_exact_far_beyond_32_bits(batch):
    """Doubling a table 24 times multiplies its sums, of about a million, by 2**24."""
    single = _tabulate(batch)
    repeated = single
    for _ in range(24):
        repeated = repeated + repeated
    words = np.asarray(repeated.sum_of_costs)
    assert words.min() >= 0
    assert words[..., 1].max() < 2**16
    assert (join_words(words) == join_words(single.sum_of_costs) * 2**24).all()
    total = int(batch[2].sum_of_costs[batch[2].valid].sum(dtype=int))
    assert join_words(words).sum() == total * 2**24
    assert join_words(words).max() > 2**36
    tables = map(jaxlake.statistics_rows, (single, repeated))
    means = [[row["mean_sum_of_costs"] for row in table] for table in tables]
    assert means[0] == means[1]


def _costly_outcomes(plans):
    """Return arguments of `tabulate`: plans with the largest cost that an outcome can hold."""
    board = jaxlake.parse_grid(["S G", "s g"], max_size=2)
    boards = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (plans, *np.shape(leaf))), board)
    true, max_cost = np.ones(plans, bool), np.full(plans, 32767, np.int16)
    no_agent, no_time = np.full(plans, -1, np.int8), np.full(plans, -1, np.int16)
    at_goal, no_failure = np.ones((plans, 2), bool), np.zeros(plans, np.int8)
    return (
        boards,
        ~true,
        Outcome(
            true, true, ~true, ~true, no_failure, no_agent, no_time, max_cost, max_cost, at_goal
        ),
    )


def test_sums_carry_between_words_over_chunks_and_axes():
    """129 plans cost 64 * 2**16 + 32,639, and four times as many 257 * 2**16 + 65,020."""
    chunks = jax.tree.map(lambda leaf: leaf.reshape(4, 129, *leaf.shape[1:]), _costly_outcomes(516))
    per_chunk = jax.vmap(jaxlake.tabulate)(*chunks)
    tabulate_over_axis = partial(jaxlake.tabulate, axis_name=("chunks",))
    replicated = jax.vmap(tabulate_over_axis, axis_name="chunks")(*chunks)

    def sum_words(statistics):
        sums = (statistics.sum_of_costs, statistics.makespan)
        return [np.asarray(leaf)[2, 2, 0, 0].tolist() for leaf in sums]

    for index in range(4):
        assert sum_words(select_rows(per_chunk, index)) == [[64, 32639]] * 2
        assert sum_words(select_rows(replicated, index)) == [[257, 65020]] * 2
    assert sum_words(merge_statistics(per_chunk)) == [[257, 65020]] * 2
    assert sum_words(sum(select_rows(per_chunk, index) for index in range(4))) == [[257, 65020]] * 2


def test_merge_statistics_is_exact_for_any_number_of_tables():
    count, draw = 40_000, np.random.default_rng(3)
    zeros = Statistics.zeros(max_size=0, max_agents=0)
    tables = jax.tree.map(lambda leaf: np.zeros((count, *leaf.shape), np.int32), zeros)
    for name in ("sum_of_costs", "makespan"):
        words = getattr(tables, name)
        words[..., 0] = draw.integers(0, 1 << 15, words.shape[:-1])
        words[..., 1] = draw.integers(60_000, 1 << 16, words.shape[:-1])
    tables.failures[..., 0] = 1 << 15
    merged = merge_statistics(tables)
    for name in ("sum_of_costs", "makespan", "excess_makespan"):
        words = getattr(merged, name)
        assert (join_words(words) == join_words(getattr(tables, name)).sum(axis=0)).all()
        assert ((np.asarray(words) >= 0) & (np.asarray(words[..., 1:]) < 1 << 16)).all()
    assert (merged.failures[..., 0] == count << 15).all()
    tables.failures[..., 0] = 1 << 16
    with pytest.raises(OverflowError, match=r"at most 2\*\*31 - 1 plans per cell"):
        merge_statistics(tables)


def test_empty_tables_change_no_sum(batch):
    whole = _tabulate(batch)
    zeros = Statistics.zeros(max_size=7, max_agents=K)
    assert_same(zeros + whole, whole)
    no_tables = jax.tree.map(lambda leaf: jnp.zeros((0, *leaf.shape), leaf.dtype), whole)
    assert_same(merge_statistics(no_tables), zeros)


def _summarize_rows(batch, rows=slice(None), **counts):
    _, boards, outcomes, solutions, mask = batch
    return summarize(*select_rows((boards, outcomes, solutions, mask), rows), **counts)


def test_summarize_matches_counting_by_hand(batch):
    _, boards, outcomes, solutions, mask = batch
    columns = summary_columns(_summarize_rows(batch, candidates=2**31 - 1, unknown=5, missing=7))
    assert list(columns) == ["boards", *COUNTERS]
    expected = dict.fromkeys(columns, 0) | {"candidates": 2**31 - 1, "unknown": 5, "missing": 7}
    for i in np.flatnonzero(mask).tolist():
        kind, needs_wait = Failure(int(outcomes.failure[i])), bool(solutions.needs_wait[i])
        expected["boards"] += 1
        expected["valid" if kind is Failure.NONE else kind.label] += 1
        expected["needs_wait"] += needs_wait
        expected["agents"] += int(boards.agent_mask[i].sum())
        expected["agents_at_goal"] += int(outcomes.at_goal[i].sum())
        for name in ("optimal_sum_of_costs", "optimal_makespan"):
            expected[name] += bool(getattr(outcomes, name)[i])
        if kind is not Failure.NONE:
            continue
        compared = solutions.status[i] == Status.OPTIMAL
        expected["valid_needs_wait"] += needs_wait
        expected["compared"] += int(compared)
        for name in ("sum_of_costs", "makespan"):
            cost, optimum = (int(getattr(source, name)[i]) for source in (outcomes, solutions))
            expected[name] += cost
            expected[f"{name}_squared"] += cost**2
            expected[f"excess_{name}"] += (cost - optimum) * int(compared)
    assert columns == expected
    assert columns["sum_of_costs_squared"] > 2**32


def test_summaries_are_exact_far_beyond_40_bits(batch):
    """Add up 33,000 summaries of about 2**34 each, and the result 40 times."""
    single = _summarize_rows(batch)
    count = 33_000
    repeated = Summary(jnp.broadcast_to(single.words, (count, *single.words.shape)))
    merged = merge_summaries(repeated)
    total = sum([merged] * 40, Summary.zeros())
    columns, expected = summary_columns(total), summary_columns(single)
    assert columns == {name: value * count * 40 for name, value in expected.items()}
    assert columns["sum_of_costs_squared"] > 2**50
    halves = [_summarize_rows(batch, slice(0, 100)), _summarize_rows(batch, slice(100, None))]
    assert_same(halves[0] + halves[1], single)
    with pytest.raises(ValueError, match="summaries must have a leading axis"):
        merge_summaries(single)


def test_wilson_bounds_solve_the_score_equation():
    """The bounds are the p at which |share - p| is z standard errors of p (Wilson 1927)."""
    for k, n in [(1, 10), (5, 10), (37, 150), (899, 900)]:
        for confidence, z in [(0.95, 1.959963985), (0.9, 1.644853627)]:
            for bound in jaxlake.wilson_interval(k, n, confidence):
                error = np.sqrt(bound * (1 - bound) / n)
                assert abs(k / n - bound) == pytest.approx(z * error, rel=1e-6)


def test_wilson_intervals_are_elementwise():
    low, high = jaxlake.wilson_interval([0, 10, 0, 5], [10, 10, 0, 10])
    assert (low[0], high[1], low[2], high[2]) == (0.0, 1.0, 0.0, 1.0)
    assert (low <= [0, 1, 0, 0.5]).all()
    assert (high >= [0, 1, 0, 0.5]).all()


@pytest.mark.parametrize(
    "arguments", [(5, 4), (-1, 4), (1, 2, 1.0), (1, 2, 0.0), (1, 2, float("nan"))]
)
def test_wilson_arguments_out_of_range_are_named(arguments):
    with pytest.raises(ValueError, match="got"):
        jaxlake.wilson_interval(*arguments)
