"""Boards of three to five slots: tiers outside jit, and plans near the horizon."""

import jax
import pytest

import jaxlake
from benchmarks import oracles
from jaxlake import Status
from jaxlake.solver import many_agents, solve_batch
from tests.jaxlake.solver.boards import (
    assert_same,
    check_solutions,
    draw_grids,
    make_instances,
    select_rows,
    solve_batches,
    solve_by_trees,
)

TIERS = ("_run_planning_tiers", "_run_pair_tiers", "_run_tree_tier", "_run_dense_tier")
OPTIONS = {"horizon": 16, "max_expansions": 8}


@pytest.fixture
def called_tiers(monkeypatch):
    """Record the names of called tiers, in order."""
    names = []

    def record_calls(name):
        tier = getattr(many_agents, name)

        def call(*args, **kwargs):
            names.append(name)
            return tier(*args, **kwargs)

        call.fast_compile = call
        return call

    for name in TIERS:
        monkeypatch.setattr(many_agents, name, record_calls(name))
    return names


@pytest.fixture(scope="module")
def crowded_boards():
    """Return boards, some of which need all tiers."""
    grids = draw_grids(8, 60, sizes=(3, 4), agent_counts=(3,))
    return make_instances(grids, max_size=4, max_agents=3)


@pytest.mark.slow
def test_tiers_equal_one_program(crowded_boards, called_tiers):
    expected = jax.jit(lambda boards: solve_batch(boards, **OPTIONS))(crowded_boards)
    assert called_tiers == []
    assert_same(solve_batch(crowded_boards, **OPTIONS), expected)
    assert called_tiers == [*TIERS]


# Agents s and A move down a column in sequence, and S crosses it. At the optimal cost of 14, both
# wait once, or S steps back and forth, which takes 8 steps.
CROSSING = [
    *("H H A H H G", "H H s H H F", "F S F F F F"),
    *("H H a H H H", "H H g H H H", "H H H H H H"),
]


@pytest.mark.slow
@pytest.mark.parametrize("with_dense_tier", [True, False])
def test_needs_wait_is_unknown_beyond_the_horizon(with_dense_tier):
    board = jaxlake.stack_instances([jaxlake.parse_grid(CROSSING)])
    solve_boards = solve_batch if with_dense_tier else solve_by_trees
    full_solution, short_solution = (
        select_rows(solve_boards(board, horizon=horizon), 0) for horizon in (8, 7)
    )
    assert (full_solution.status, full_solution.sum_of_costs, full_solution.needs_wait) == (
        Status.OPTIMAL,
        14,
        False,
    )
    assert oracles.least_sum_of_costs(CROSSING) == (14, False)
    assert short_solution.status == (Status.OPTIMAL if with_dense_tier else Status.UNKNOWN)
    assert not short_solution.needs_wait


@pytest.mark.slow
def test_solutions_near_the_horizon_match_all_oracles():
    horizon = 6
    grids = draw_grids(horizon, 400, sizes=(3, 4), agent_counts=(3,), hole_ratio=0.4)
    truths = list(oracles.judge_all(grids))
    near_horizon = [
        i for i, truth in enumerate(truths) if (truth.makespan or 0) in (horizon, horizon - 1)
    ]
    assert len(near_horizon) > 20
    grids, truths = [grids[i] for i in near_horizon], [truths[i] for i in near_horizon]
    boards = make_instances(grids, max_size=4, max_agents=3)
    for solutions in (
        solve_batches(boards, len(near_horizon), horizon=horizon),
        solve_by_trees(boards, horizon=horizon),
    ):
        assert check_solutions(grids, solutions, truths)["OPTIMAL"] > 10
