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

COUNT, MAX_AGENTS = 240, 4


@pytest.fixture(scope="module")
def batch():
    py_rng = random.Random(2)
    rng = np.random.default_rng(2)
    sizes = [py_rng.randint(2, 7) for _ in range(COUNT)]
    agent_counts = np.array([py_rng.randint(2, 2 if size == 2 else MAX_AGENTS) for size in sizes])
    grids = [
        oracles.random_grid(py_rng, size, py_rng.uniform(0, 0.5), int(k))
        for size, k in zip(sizes, agent_counts, strict=True)
    ]
    failure = rng.integers(0, len(Failure), COUNT).astype(np.int8)
    valid = failure == Failure.NONE
    parsed = failure != Failure.PARSE_ERROR
    has_failure_time = ~valid & parsed
    agent_mask = np.arange(MAX_AGENTS) < agent_counts[:, None]
    outcomes = Outcome(
        parsed=parsed,
        valid=valid,
        optimal_sum_of_costs=valid & (rng.random(COUNT) < 0.5),
        optimal_makespan=valid & (rng.random(COUNT) < 0.5),
        failure=failure,
        agent=np.where(has_failure_time, rng.integers(0, 2, COUNT), -1).astype(np.int8),
        time=np.where(has_failure_time, rng.integers(0, 90, COUNT), -1).astype(np.int16),
        sum_of_costs=np.where(valid, rng.integers(0, 32768, COUNT), -1).astype(np.int16),
        makespan=np.where(valid, rng.integers(20, 90, COUNT), -1).astype(np.int16),
        at_goal=agent_mask
        & parsed[:, None]
        & (valid[:, None] | (rng.random((COUNT, MAX_AGENTS)) < 0.5)),
    )
    solutions = Solution(
        status=rng.choice([Status.OPTIMAL, Status.OPTIMAL, Status.UNKNOWN], COUNT).astype(np.int8),
        sum_of_costs=np.maximum(outcomes.sum_of_costs - rng.integers(0, 9, COUNT), 0).astype(
            np.int16
        ),
        makespan=np.maximum(outcomes.makespan - rng.integers(0, 9, COUNT), 0).astype(np.int16),
        needs_wait=rng.random(COUNT) < 0.3,
        plan=np.zeros((COUNT, 0, MAX_AGENTS), np.int8),
        makespan_plan=np.zeros((COUNT, 0, MAX_AGENTS), np.int8),
        expansions=np.zeros(COUNT, np.int32),
    )
    return grids, make_instances(grids, 7, MAX_AGENTS), outcomes, solutions, rng.random(COUNT) < 0.8


def _count_rows(batch) -> dict[tuple, dict]:
    """Count the rows by all axes in exact arithmetic, one plan at a time."""
    grids, _, outcomes, solutions, mask = batch
    rows_by_key: dict[tuple, list[int]] = {}
    for i in np.flatnonzero(mask):
        symbols = [symbol for row in grids[i] for symbol in row.split(" ")]
        num_agents = sum(symbol in "SsABC" for symbol in symbols)
        hole_decile = 10 * symbols.count("H") // len(symbols)
        key = (len(grids[i]), num_agents, hole_decile, bool(solutions.needs_wait[i]))
        rows_by_key.setdefault(key, []).append(int(i))
    table = {}
    for key, rows in rows_by_key.items():
        valid_rows = [i for i in rows if outcomes.failure[i] == Failure.NONE]
        comparable_rows = [i for i in valid_rows if solutions.status[i] == Status.OPTIMAL]
        entry = {"total": len(rows), "valid": len(valid_rows), "compared": len(comparable_rows)}
        entry["csr"] = Fraction(len(valid_rows), len(rows))
        at_goal = sum(int(outcomes.at_goal[i].sum()) for i in rows)
        entry["isr"] = Fraction(at_goal, key[1] * len(rows))
        for name in ("optimal_sum_of_costs", "optimal_makespan"):
            entry[name] = sum(bool(getattr(outcomes, name)[i]) for i in rows)
        for kind in Failure:
            if kind != Failure.NONE:
                entry[kind.label] = sum(outcomes.failure[i] == kind for i in rows)
        for name in ("sum_of_costs", "makespan"):
            costs = [int(getattr(outcomes, name)[i]) for i in valid_rows]
            excesses = [
                int(getattr(outcomes, name)[i]) - int(getattr(solutions, name)[i])
                for i in comparable_rows
            ]
            entry[f"mean_{name}"] = Fraction(sum(costs), len(costs)) if costs else None
            entry[f"mean_excess_{name}"] = (
                Fraction(sum(excesses), len(excesses)) if excesses else None
            )
        table[key] = entry
    return table


def _tabulate(batch, mask=None):
    _, boards, outcomes, solutions, _ = batch
    return _jitted_tabulate(boards, solutions.needs_wait, outcomes, mask, solutions)


_jitted_tabulate = jax.jit(jaxlake.tabulate)


def test_tabulate_matches_counting_by_hand(batch):
    _, _, outcomes, _, mask = batch
    statistics = _tabulate(batch, mask)
    assert {leaf.dtype for leaf in jax.tree.leaves(statistics)} == {jnp.dtype(jnp.int32)}
    expected = _count_rows(batch)
    table = jaxlake.statistics_rows(statistics, by=AXES)
    assert len(table) == len(expected)
    for row in table:
        expected_row = expected[tuple(row.pop(name) for name in AXES)]
        assert row.keys() == expected_row.keys()
        for name, value in row.items():
            exact = expected_row[name]
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
    expected = _tabulate(batch, np.ones(COUNT, bool))
    parts = [_tabulate(batch, mask), _tabulate(batch, ~mask)]
    assert_same(parts[0] + parts[1], expected)
    assert_same(sum(parts), expected)
    assert_same(merge_statistics(jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)), expected)
    assert_same(_tabulate(batch), expected)


def test_tabulate_supports_vmap_and_named_axes(batch):
    _, boards, outcomes, solutions, mask = batch
    arguments = (boards, solutions.needs_wait, outcomes, mask, solutions)
    batches = jax.tree.map(lambda leaf: leaf.reshape(4, COUNT // 4, *leaf.shape[1:]), arguments)
    expected = _tabulate(batch, mask)
    assert_same(merge_statistics(jax.vmap(jaxlake.tabulate)(*batches)), expected)
    tabulate_over_axis = partial(jaxlake.tabulate, axis_name="batches")
    replicated_tables = jax.vmap(tabulate_over_axis, axis_name="batches")(*batches)
    for index in range(4):
        assert_same(select_rows(replicated_tables, index), expected)


def test_sums_stay_exact_far_beyond_32_bits(batch):
    """Doubling a table 24 times multiplies its sums, of about a million, by 2**24."""
    statistics = _tabulate(batch)
    large_statistics = statistics
    for _ in range(24):
        large_statistics = large_statistics + large_statistics
    words = np.asarray(large_statistics.sum_of_costs)
    assert words.min() >= 0
    assert words[..., 1].max() < 2**16
    assert (join_words(words) == join_words(statistics.sum_of_costs) * 2**24).all()
    total = int(batch[2].sum_of_costs[batch[2].valid].sum(dtype=int))
    assert join_words(words).sum() == total * 2**24
    assert join_words(words).max() > 2**36
    tables = map(jaxlake.statistics_rows, (statistics, large_statistics))
    means = [[row["mean_sum_of_costs"] for row in table] for table in tables]
    assert means[0] == means[1]


def _make_costly_outcomes(num_plans):
    """Return arguments of `tabulate`: plans with the largest cost that an outcome can hold."""
    board = jaxlake.parse_grid(["S G", "s g"], max_size=2)
    boards = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (num_plans, *np.shape(leaf))), board)
    true, max_cost = np.ones(num_plans, bool), np.full(num_plans, 32767, np.int16)
    no_agent, no_time = np.full(num_plans, -1, np.int8), np.full(num_plans, -1, np.int16)
    at_goal, no_failure = np.ones((num_plans, 2), bool), np.zeros(num_plans, np.int8)
    return (
        boards,
        ~true,
        Outcome(
            true, true, ~true, ~true, no_failure, no_agent, no_time, max_cost, max_cost, at_goal
        ),
    )


def test_sums_carry_between_words_over_chunks_and_axes():
    """129 plans cost 64 * 2**16 + 32,639, and four times as many 257 * 2**16 + 65,020."""
    outcomes = _make_costly_outcomes(516)
    chunks = jax.tree.map(lambda leaf: leaf.reshape(4, 129, *leaf.shape[1:]), outcomes)
    chunk_tables = jax.vmap(jaxlake.tabulate)(*chunks)
    tabulate_over_axis = partial(jaxlake.tabulate, axis_name=("chunks",))
    replicated_tables = jax.vmap(tabulate_over_axis, axis_name="chunks")(*chunks)

    def sum_words(statistics):
        sums = (statistics.sum_of_costs, statistics.makespan)
        return [np.asarray(leaf)[2, 2, 0, 0].tolist() for leaf in sums]

    for index in range(4):
        assert sum_words(select_rows(chunk_tables, index)) == [[64, 32639]] * 2
        assert sum_words(select_rows(replicated_tables, index)) == [[257, 65020]] * 2
    assert sum_words(merge_statistics(chunk_tables)) == [[257, 65020]] * 2
    table = sum(select_rows(chunk_tables, index) for index in range(4))
    assert sum_words(table) == [[257, 65020]] * 2


def test_merge_statistics_is_exact_for_any_number_of_tables():
    count, rng = 40_000, np.random.default_rng(3)
    zeros = Statistics.zeros(max_size=0, max_agents=0)
    tables = jax.tree.map(lambda leaf: np.zeros((count, *leaf.shape), np.int32), zeros)
    for name in ("sum_of_costs", "makespan"):
        words = getattr(tables, name)
        words[..., 0] = rng.integers(0, 1 << 15, words.shape[:-1])
        words[..., 1] = rng.integers(60_000, 1 << 16, words.shape[:-1])
    tables.failures[..., 0] = 1 << 15
    merged_table = merge_statistics(tables)
    for name in ("sum_of_costs", "makespan", "excess_makespan"):
        words = getattr(merged_table, name)
        assert (join_words(words) == join_words(getattr(tables, name)).sum(axis=0)).all()
        assert ((np.asarray(words) >= 0) & (np.asarray(words[..., 1:]) < 1 << 16)).all()
    assert (merged_table.failures[..., 0] == count << 15).all()
    tables.failures[..., 0] = 1 << 16
    with pytest.raises(OverflowError, match=r"at most 2\*\*31 - 1 plans per cell"):
        merge_statistics(tables)


def test_empty_tables_change_no_sum(batch):
    expected = _tabulate(batch)
    zeros = Statistics.zeros(max_size=7, max_agents=MAX_AGENTS)
    assert_same(zeros + expected, expected)
    no_tables = jax.tree.map(lambda leaf: jnp.zeros((0, *leaf.shape), leaf.dtype), expected)
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
        is_comparable = solutions.status[i] == Status.OPTIMAL
        expected["valid_needs_wait"] += needs_wait
        expected["compared"] += int(is_comparable)
        for name in ("sum_of_costs", "makespan"):
            cost, optimum = (int(getattr(source, name)[i]) for source in (outcomes, solutions))
            expected[name] += cost
            expected[f"{name}_squared"] += cost**2
            expected[f"excess_{name}"] += (cost - optimum) * int(is_comparable)
    assert columns == expected
    assert columns["sum_of_costs_squared"] > 2**32


def test_summaries_are_exact_far_beyond_40_bits(batch):
    """Add up 33,000 summaries of about 2**34 each, and the result 40 times."""
    summary = _summarize_rows(batch)
    count = 33_000
    summaries = Summary(jnp.broadcast_to(summary.words, (count, *summary.words.shape)))
    merged_summary = merge_summaries(summaries)
    large_summary = sum([merged_summary] * 40, Summary.zeros())
    columns, expected = summary_columns(large_summary), summary_columns(summary)
    assert columns == {name: value * count * 40 for name, value in expected.items()}
    assert columns["sum_of_costs_squared"] > 2**50
    halves = [_summarize_rows(batch, slice(0, 100)), _summarize_rows(batch, slice(100, None))]
    assert_same(halves[0] + halves[1], summary)
    with pytest.raises(ValueError, match="summaries must have a leading axis"):
        merge_summaries(summary)


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
