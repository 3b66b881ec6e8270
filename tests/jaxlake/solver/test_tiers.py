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
    compare,
    filled_boards,
    instances,
    permute_slots,
    random_grids,
    select_rows,
    solve,
    solve_by_trees,
    with_starts_on_goals,
)

BOARDS = int(os.environ.get("JAXLAKE_ORACLE_BOARDS", "1000"))
SEED = int(os.environ.get("JAXLAKE_ORACLE_SEED", "0"))
UNKNOWN_RATES = {2: 0.001, 3: 0.001, 4: 0.01, 5: 0.03}

# Nearly all tests share two programs, because compiling takes much longer than running.
FULL, FULL_BATCH = {"max_size": 10, "max_agents": 5}, 250
SMALL, SMALL_BATCH = {"max_size": 6, "max_agents": 3}, 120
# The first agent needs 8 steps, or 9.
CORRIDORS = [
    ["S F F F", "H H H F", "G F F F", "s g A a"],
    ["S F F F F", "H H H H F", "F G F F F", "s g A a F", "F F F F F"],
]
ALL_KINDS = {
    *("disconnected", "blocked by each other", "optima in different plans"),
    *("needs_wait=False, excess 0", "needs_wait=True, excess 1"),
    *("needs_wait=True, excess 2", "needs_wait=False, excess 2"),
}


def _solve_full(boards: jaxlake.Instance) -> jaxlake.Solution:
    return solve(boards, FULL_BATCH)


@pytest.fixture(scope="module")
def small():
    """Return small boards of two and three agents with their solutions."""
    count = SMALL_BATCH - len(CORRIDORS)
    grids = CORRIDORS + random_grids(2, count, sizes=(2, 3, 4, 5, 6), agents=(2, 3))
    boards = instances(grids, **SMALL)
    return grids, boards, solve(boards, SMALL_BATCH)


@pytest.mark.slow
def test_mixed_batch_matches_all_oracles():
    grids = random_grids(SEED, BOARDS)
    truths = oracles.judge_all(grids)
    kinds = compare(grids, _solve_full(instances(grids, **FULL)), list(truths))
    assert kinds.keys() >= ALL_KINDS
    assert kinds["undecided"] <= 0.002 * BOARDS
    assert kinds["UNKNOWN"] <= 0.003 * BOARDS


def test_two_agents_match_all_oracles():
    grids = random_grids(SEED + 1, BOARDS // 3, agents=(2,))
    truths = oracles.judge_all(grids)
    solutions = solve(instances(grids, max_size=10, max_agents=2), FULL_BATCH)
    kinds = compare(grids, solutions, list(truths))
    assert kinds.keys() >= ALL_KINDS
    assert kinds["UNKNOWN"] == 0


def test_two_agents_with_starts_on_goals_match_all_oracles():
    boards = with_starts_on_goals(SEED, FULL_BATCH, sizes=(3, 4, 5), agents=(2,))
    truths = oracles.judge_all(boards)
    kinds = compare(boards, solve(instances(boards, 10, 2), FULL_BATCH), list(truths))
    assert kinds.keys() >= ALL_KINDS
    assert kinds["UNKNOWN"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agents", "shape", "batch"), [((3,), SMALL, SMALL_BATCH), ((3, 4, 5), FULL, FULL_BATCH)]
)
def test_agents_with_starts_on_goals_match_all_oracles(agents, shape, batch):
    boards = with_starts_on_goals(SEED, BOARDS // 2, sizes=(3, 4, 5), agents=agents)
    boards += filled_boards(*agents)
    truths = oracles.judge_all(boards)
    kinds = compare(boards, solve(instances(boards, **shape), batch), list(truths))
    assert kinds.keys() >= ALL_KINDS
    assert kinds["UNKNOWN"] <= 0.01 * BOARDS


@pytest.mark.slow
@pytest.mark.parametrize(("agents", "rate"), UNKNOWN_RATES.items())
def test_unknown_rate_of_full_size_boards(agents, rate):
    rng = random.Random(agents)
    grids = [oracles.random_grid(rng, 10, 0.35, agents) for _ in range(4 * FULL_BATCH)]
    unknown = np.sum(_solve_full(instances(grids, **FULL)).status == Status.UNKNOWN)
    assert unknown <= rate * len(grids)


@pytest.mark.slow
def test_boards_larger_than_16_match_oracles():
    grids = random_grids(3, 60, sizes=(13, 17, 20), agents=(2, 3), holes=0.4)
    truths = oracles.judge_all(grids)
    solutions = solve(instances(grids, 20, 3), len(grids))
    kinds = compare(grids, solutions, list(truths))
    assert kinds["OPTIMAL"] > 30
    assert kinds["UNKNOWN"] <= 3


@pytest.mark.slow
@pytest.mark.parametrize("max_size", [2, 32])
def test_solve_matches_oracles_for_any_static_size(max_size):
    sizes = (2,) if max_size == 2 else (2, 3, 4, 5, 6, 16)
    grids = random_grids(max_size, 36, sizes, agents=(2,))
    solutions = solve(instances(grids, max_size, 2), len(grids), horizon=40)
    kinds = compare(grids, solutions, [oracles.judge(grid) for grid in grids])
    assert kinds["OPTIMAL"] > 15
    assert kinds["UNKNOWN"] == 0


@pytest.mark.slow
def test_solutions_are_independent_of_the_batch():
    boards = instances(random_grids(5, FULL_BATCH), **FULL)
    reference = _solve_full(boards)
    order = np.random.default_rng(0).permutation(FULL_BATCH)
    shuffled = _solve_full(jax.tree.map(lambda leaf: leaf[order], boards))
    repeated = _solve_full(jax.tree.map(lambda leaf: leaf[np.zeros(FULL_BATCH, int)], boards))
    for name in ANSWER_FIELDS:
        assert (getattr(shuffled, name) == getattr(reference, name)[order]).all(), name
        assert (getattr(repeated, name) == getattr(reference, name)[0]).all(), name
    for leaf in jax.tree.leaves(repeated):
        assert (leaf == leaf[:1]).all()


@pytest.mark.slow
def test_solutions_are_independent_of_slots():
    grids = random_grids(6, FULL_BATCH, sizes=(3, 4, 5, 6), agents=(1, 2, 3))
    slots = np.random.default_rng(1).permuted(np.tile(np.arange(5), (FULL_BATCH, 1)), axis=1)
    boards = instances(grids, **FULL)
    expected, solutions = _solve_full(boards), _solve_full(permute_slots(boards, slots))
    # The agent order affects the search effort, and thus which boards stay UNKNOWN.
    decided = (solutions.status != Status.UNKNOWN) & (expected.status != Status.UNKNOWN)
    assert decided.mean() > 0.98
    for name in ANSWER_FIELDS:
        assert (getattr(solutions, name) == getattr(expected, name))[decided].all(), name
    compare(grids, solutions, list(oracles.judge_all(grids)), np.argsort(slots))


@pytest.mark.slow
def test_short_horizon_only_affects_longer_plans(small):
    _, boards, reference = small
    short = solve(boards, SMALL_BATCH, horizon=8)
    decided = (short.status != Status.UNKNOWN) & (reference.status != Status.UNKNOWN)
    for name in ANSWER_FIELDS:
        assert (getattr(short, name)[decided] == getattr(reference, name)[decided]).all(), name
    assert short.plan.shape == short.makespan_plan.shape == (SMALL_BATCH, 8, 3)
    assert set(short.status.tolist()) == set(Status)
    # The first two boards are CORRIDORS.
    assert reference.makespan[:2].tolist() == [8, 9]
    assert short.status[:2].tolist() == [Status.OPTIMAL, Status.UNKNOWN]
    assert (short.status[reference.makespan > 8] == Status.UNKNOWN).all()


@pytest.mark.slow
def test_joint_state_sets_solve_open_crowded_boards():
    grids = random_grids(8, SMALL_BATCH, sizes=(3, 4), agents=(3,))
    boards = instances(grids, **SMALL)
    trees = solve_by_trees(boards, max_expansions=8)
    undecided = trees.status == Status.UNKNOWN
    assert undecided.sum() > 5
    solutions = solve(boards, SMALL_BATCH, max_expansions=8)
    assert (solutions.status != Status.UNKNOWN).all()
    assert (solutions.expansions > trees.expansions)[undecided].all()
    decided = jax.tree.map(lambda leaf: leaf[~undecided], (solutions, trees))
    assert_same(*decided)
    compare(grids, solutions, list(oracles.judge_all(grids)))


@pytest.mark.slow
@pytest.mark.parametrize("agents", [2, 3])
def test_solutions_are_independent_of_limits(agents):
    boards = instances(random_grids(7, SMALL_BATCH, sizes=(4, 5, 6), agents=(2, agents)), 6, agents)
    expected = solve(boards, SMALL_BATCH)
    for limits in (Limits(7, 16, 3, 1 << 20), replace(limits_for("gpu"), kernels=None)):
        assert_same(solve(boards, SMALL_BATCH, limits=limits), expected)


@pytest.mark.slow
def test_larger_budget_settles_more_boards():
    boards = instances(random_grids(8, 96, sizes=(4, 5), agents=(4,)), 5, 4)

    def solve(budget):
        return solve_by_trees(boards, horizon=32, max_expansions=budget)

    small_budget, large_budget = solve(np.full(96, 8)), solve(np.full(96, 2048))
    decided = small_budget.status != Status.UNKNOWN
    assert decided.sum() > 10
    assert ((large_budget.status != Status.UNKNOWN) & ~decided).sum() > 10
    assert_same(*jax.tree.map(lambda leaf: leaf[decided], (small_budget, large_budget)))
    # Each board has its own budget.
    mixed = solve(np.where(np.arange(96) < 48, 8, 2048))
    assert_same(*jax.tree.map(lambda leaf: leaf[:48], (mixed, small_budget)))
    assert_same(*jax.tree.map(lambda leaf: leaf[48:], (mixed, large_budget)))


def test_invalid_arguments_raise():
    boards = instances([["S G", "s g"]] * 5, 2, 2)
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
    empty_batch = jax.tree.map(lambda leaf: leaf[:0], instances([grid], 3, slots))
    reference = unknown_solution(jaxlake.DEFAULT_HORIZON, slots)
    for solve_function in (solve_batch, jax.jit(solve_batch), jax.vmap(jaxlake.solve)):
        solutions = solve_function(empty_batch)
        for leaf, expected in zip(*map(jax.tree.leaves, (solutions, reference)), strict=True):
            assert (leaf.shape, leaf.dtype) == ((0, *expected.shape), expected.dtype)
