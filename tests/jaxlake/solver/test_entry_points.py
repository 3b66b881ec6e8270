"""The exact solver against independent oracles: CBS in C++, SAT, and plain-Python searches.

JAXLAKE_ORACLE_BOARDS sets the number of boards and JAXLAKE_ORACLE_SEED selects them.
"""

import os
import random
from dataclasses import replace

import jax
import numpy as np
import pytest

import jaxlake
from benchmarks import oracles
from jaxlake import Status
from jaxlake.board.instance import pad_instance
from jaxlake.solver import Limits, limits_for, solve_batch
from jaxlake.solver.solution import unknown_solution
from tests.jaxlake.solver.boards import (
    ANSWER_FIELDS,
    assert_same,
    check_solutions,
    draw_grids,
    draw_starts_on_goals,
    make_filled_boards,
    make_instances,
    permute_slots,
    select_rows,
    solve_batches,
    solve_by_trees,
)

NUM_BOARDS = int(os.environ.get("JAXLAKE_ORACLE_BOARDS", "1000"))
SEED = int(os.environ.get("JAXLAKE_ORACLE_SEED", "0"))
MAX_UNKNOWN_RATES = {2: 0.001, 3: 0.001, 4: 0.01, 5: 0.03}

# Nearly all tests share two programs, because compiling takes much longer than running.
FULL_SHAPE, FULL_BATCH = {"max_size": 10, "max_agents": 5}, 250
SMALL_SHAPE, SMALL_BATCH = {"max_size": 6, "max_agents": 3}, 120
# The first agent needs 8 steps, or 9.
CORRIDORS = [
    ["S F F F", "H H H F", "G F F F", "s g A a"],
    ["S F F F F", "H H H H F", "F G F F F", "s g A a F", "F F F F F"],
]
ALL_BOARD_KINDS = {
    *("disconnected", "blocked by each other", "optima in different plans"),
    *("needs_wait=False, excess 0", "needs_wait=True, excess 1"),
    *("needs_wait=True, excess 2", "needs_wait=False, excess 2"),
}


def _solve_full(boards: jaxlake.Instance) -> jaxlake.Solution:
    return solve_batches(boards, FULL_BATCH)


@pytest.fixture(scope="module")
def small_boards():
    """Return small boards of two and three agents with their solutions."""
    count = SMALL_BATCH - len(CORRIDORS)
    grids = CORRIDORS + draw_grids(2, count, sizes=(2, 3, 4, 5, 6), agent_counts=(2, 3))
    boards = make_instances(grids, **SMALL_SHAPE)
    return grids, boards, solve_batches(boards, SMALL_BATCH)


@pytest.mark.slow
def test_mixed_batch_matches_all_oracles():
    grids = draw_grids(SEED, NUM_BOARDS)
    truths = oracles.judge_all(grids)
    counts = check_solutions(grids, _solve_full(make_instances(grids, **FULL_SHAPE)), list(truths))
    assert counts.keys() >= ALL_BOARD_KINDS
    assert counts["undecided"] <= 0.002 * NUM_BOARDS
    assert counts["UNKNOWN"] <= 0.003 * NUM_BOARDS


def test_two_agents_match_all_oracles():
    grids = draw_grids(SEED + 1, NUM_BOARDS // 3, agent_counts=(2,))
    truths = oracles.judge_all(grids)
    solutions = solve_batches(make_instances(grids, max_size=10, max_agents=2), FULL_BATCH)
    counts = check_solutions(grids, solutions, list(truths))
    assert counts.keys() >= ALL_BOARD_KINDS
    assert counts["UNKNOWN"] == 0


def test_two_agents_with_starts_on_goals_match_all_oracles():
    boards = draw_starts_on_goals(SEED, FULL_BATCH, sizes=(3, 4, 5), agent_counts=(2,))
    truths = oracles.judge_all(boards)
    counts = check_solutions(
        boards, solve_batches(make_instances(boards, 10, 2), FULL_BATCH), list(truths)
    )
    assert counts.keys() >= ALL_BOARD_KINDS
    assert counts["UNKNOWN"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent_counts", "shape", "batch_size"),
    [((3,), SMALL_SHAPE, SMALL_BATCH), ((3, 4, 5), FULL_SHAPE, FULL_BATCH)],
)
def test_agents_with_starts_on_goals_match_all_oracles(agent_counts, shape, batch_size):
    boards = draw_starts_on_goals(SEED, NUM_BOARDS // 2, sizes=(3, 4, 5), agent_counts=agent_counts)
    boards += make_filled_boards(*agent_counts)
    truths = oracles.judge_all(boards)
    counts = check_solutions(
        boards, solve_batches(make_instances(boards, **shape), batch_size), list(truths)
    )
    assert counts.keys() >= ALL_BOARD_KINDS
    assert counts["UNKNOWN"] <= 0.01 * NUM_BOARDS


@pytest.mark.slow
@pytest.mark.parametrize(("num_agents", "max_rate"), MAX_UNKNOWN_RATES.items())
def test_unknown_rate_of_full_size_boards(num_agents, max_rate):
    rng = random.Random(num_agents)
    grids = [oracles.random_grid(rng, 10, 0.35, num_agents) for _ in range(4 * FULL_BATCH)]
    num_unknown = np.sum(_solve_full(make_instances(grids, **FULL_SHAPE)).status == Status.UNKNOWN)
    assert num_unknown <= max_rate * len(grids)


@pytest.mark.slow
def test_boards_larger_than_16_match_oracles():
    grids = draw_grids(3, 60, sizes=(13, 17, 20), agent_counts=(2, 3), hole_ratio=0.4)
    truths = oracles.judge_all(grids)
    solutions = solve_batches(make_instances(grids, 20, 3), len(grids))
    counts = check_solutions(grids, solutions, list(truths))
    assert counts["OPTIMAL"] > 30
    assert counts["UNKNOWN"] <= 3


@pytest.mark.slow
@pytest.mark.parametrize("max_size", [2, 32])
def test_solve_matches_oracles_for_any_static_size(max_size):
    sizes = (2,) if max_size == 2 else (2, 3, 4, 5, 6, 16)
    grids = draw_grids(max_size, 36, sizes, agent_counts=(2,))
    solutions = solve_batches(make_instances(grids, max_size, 2), len(grids), horizon=40)
    counts = check_solutions(grids, solutions, [oracles.judge(grid) for grid in grids])
    assert counts["OPTIMAL"] > 15
    assert counts["UNKNOWN"] == 0


@pytest.mark.slow
def test_solutions_are_independent_of_the_batch():
    boards = make_instances(draw_grids(5, FULL_BATCH), **FULL_SHAPE)
    expected = _solve_full(boards)
    order = np.random.default_rng(0).permutation(FULL_BATCH)
    shuffled_solutions = _solve_full(jax.tree.map(lambda leaf: leaf[order], boards))
    repeated_solutions = _solve_full(
        jax.tree.map(lambda leaf: leaf[np.zeros(FULL_BATCH, int)], boards)
    )
    for name in ANSWER_FIELDS:
        assert (getattr(shuffled_solutions, name) == getattr(expected, name)[order]).all(), name
        assert (getattr(repeated_solutions, name) == getattr(expected, name)[0]).all(), name
    for leaf in jax.tree.leaves(repeated_solutions):
        assert (leaf == leaf[:1]).all()


@pytest.mark.slow
def test_solutions_are_independent_of_slots():
    grids = draw_grids(6, FULL_BATCH, sizes=(3, 4, 5, 6), agent_counts=(1, 2, 3))
    slots = np.random.default_rng(1).permuted(np.tile(np.arange(5), (FULL_BATCH, 1)), axis=1)
    boards = make_instances(grids, **FULL_SHAPE)
    expected, solutions = _solve_full(boards), _solve_full(permute_slots(boards, slots))
    # The agent order affects the search effort, and thus which boards stay UNKNOWN.
    decided_mask = (solutions.status != Status.UNKNOWN) & (expected.status != Status.UNKNOWN)
    assert decided_mask.mean() > 0.98
    for name in ANSWER_FIELDS:
        assert (getattr(solutions, name) == getattr(expected, name))[decided_mask].all(), name
    check_solutions(grids, solutions, list(oracles.judge_all(grids)), np.argsort(slots))


@pytest.mark.slow
def test_short_horizon_only_affects_longer_plans(small_boards):
    _, boards, expected = small_boards
    short_solutions = solve_batches(boards, SMALL_BATCH, horizon=8)
    decided_mask = (short_solutions.status != Status.UNKNOWN) & (expected.status != Status.UNKNOWN)
    for name in ANSWER_FIELDS:
        assert (
            getattr(short_solutions, name)[decided_mask] == getattr(expected, name)[decided_mask]
        ).all(), name
    assert short_solutions.plan.shape == short_solutions.makespan_plan.shape == (SMALL_BATCH, 8, 3)
    assert set(short_solutions.status.tolist()) == set(Status)
    # The first two boards are CORRIDORS.
    assert expected.makespan[:2].tolist() == [8, 9]
    assert short_solutions.status[:2].tolist() == [Status.OPTIMAL, Status.UNKNOWN]
    assert (short_solutions.status[expected.makespan > 8] == Status.UNKNOWN).all()


@pytest.mark.slow
def test_joint_state_sets_solve_open_crowded_boards():
    grids = draw_grids(8, SMALL_BATCH, sizes=(3, 4), agent_counts=(3,))
    boards = make_instances(grids, **SMALL_SHAPE)
    tree_solutions = solve_by_trees(boards, max_expansions=8)
    undecided_mask = tree_solutions.status == Status.UNKNOWN
    assert undecided_mask.sum() > 5
    solutions = solve_batches(boards, SMALL_BATCH, max_expansions=8)
    assert (solutions.status != Status.UNKNOWN).all()
    assert (solutions.expansions > tree_solutions.expansions)[undecided_mask].all()
    decided_solutions = jax.tree.map(
        lambda leaf: leaf[~undecided_mask], (solutions, tree_solutions)
    )
    assert_same(*decided_solutions)
    check_solutions(grids, solutions, list(oracles.judge_all(grids)))


@pytest.mark.slow
@pytest.mark.parametrize("num_agents", [2, 3])
def test_solutions_are_independent_of_limits(num_agents):
    boards = make_instances(
        draw_grids(7, SMALL_BATCH, sizes=(4, 5, 6), agent_counts=(2, num_agents)), 6, num_agents
    )
    expected = solve_batches(boards, SMALL_BATCH)
    for limits in (Limits(7, 16, 3, 1 << 20), replace(limits_for("gpu"), kernels=None)):
        assert_same(solve_batches(boards, SMALL_BATCH, limits=limits), expected)


@pytest.mark.slow
def test_larger_budget_settles_more_boards():
    boards = make_instances(draw_grids(8, 96, sizes=(4, 5), agent_counts=(4,)), 5, 4)

    def solve_with_budget(budget):
        return solve_by_trees(boards, horizon=32, max_expansions=budget)

    small_solutions, large_solutions = (
        solve_with_budget(np.full(96, 8)),
        solve_with_budget(np.full(96, 2048)),
    )
    decided_mask = small_solutions.status != Status.UNKNOWN
    assert decided_mask.sum() > 10
    assert ((large_solutions.status != Status.UNKNOWN) & ~decided_mask).sum() > 10
    assert_same(*jax.tree.map(lambda leaf: leaf[decided_mask], (small_solutions, large_solutions)))
    # Each board has its own budget.
    mixed_solutions = solve_with_budget(np.where(np.arange(96) < 48, 8, 2048))
    assert_same(*jax.tree.map(lambda leaf: leaf[:48], (mixed_solutions, small_solutions)))
    assert_same(*jax.tree.map(lambda leaf: leaf[48:], (mixed_solutions, large_solutions)))


def test_invalid_arguments_raise():
    boards = make_instances([["S G", "s g"]] * 5, 2, 2)
    message = r"max_expansions must have shape \(\) or \(5,\), got \(4,\)"
    with pytest.raises(ValueError, match=message):
        solve_batch(boards, max_expansions=np.full(4, 16_384))
    with pytest.raises(ValueError, match=r"max_expansions must have shape \(\), got \(1,\)"):
        jaxlake.solve(select_rows(boards, 0), max_expansions=np.full(1, 16_384))
    with pytest.raises(ValueError, match="tree_lanes must be at least 1, got 0"):
        Limits(1, 0, 1, 1)
    board = jaxlake.parse_grid(["S G", "s g"])
    with pytest.raises(ValueError, match=r"horizon must be in \[1, 4096\], got 0"):
        jaxlake.solve(board, horizon=0)
    with pytest.raises(ValueError, match="agent_mask must have 1 to 5 agent slots, got 6"):
        jaxlake.solve(jaxlake.parse_grid(["S G", "F F"], max_agents=6))
    with pytest.raises(ValueError, match="holes must have at most 32 rows, got 33"):
        jaxlake.solve(pad_instance(jaxlake.parse_grid(["S G", "F F"]), 33, 2))


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 5])
def test_empty_batch_returns_empty_solutions(slots):
    grid = ["S G F", "F F F", "F F F"]
    empty_batch = jax.tree.map(lambda leaf: leaf[:0], make_instances([grid], 3, slots))
    no_solution = unknown_solution(jaxlake.DEFAULT_HORIZON, slots)
    for solve_function in (solve_batch, jax.jit(solve_batch), jax.vmap(jaxlake.solve)):
        solutions = solve_function(empty_batch)
        for leaf, expected in zip(*map(jax.tree.leaves, (solutions, no_solution)), strict=True):
            assert (leaf.shape, leaf.dtype) == ((0, *expected.shape), expected.dtype)
