"""Boards of three to five slots: stages outside jit, and plans near the horizon."""

import jax
import pytest

import jaxlake
from benchmarks import oracles
from jaxlake import Status
from jaxlake.solver import many_slots, solve_batch
from tests.jaxlake.solver.boards import (
    assert_same,
    compare,
    instances,
    random_grids,
    select_rows,
    solve,
    solve_by_trees,
)

STAGES = ("_first_stage", "_pair_stage", "_tree_stage", "_dense_stage")
LIMITS = {"horizon": 16, "max_expansions": 8}


@pytest.fixture
def called_stages(monkeypatch):
    """Record the names of called stages, in order."""
    names = []

    def record_calls(name):
        stage = getattr(many_slots, name)

        def call(*args, **kwargs):
            names.append(name)
            return stage(*args, **kwargs)

        call.fast_compile = call
        return call

    for name in STAGES:
        monkeypatch.setattr(many_slots, name, record_calls(name))
    return names


@pytest.fixture(scope="module")
def crowded_boards():
    """Return boards, some of which need all stages."""
    return instances(random_grids(8, 60, sizes=(3, 4), agents=(3,)), max_size=4, max_agents=3)


@pytest.mark.slow
def test_stages_equal_one_program(crowded_boards, called_stages):
    whole = jax.jit(lambda boards: solve_batch(boards, **LIMITS))(crowded_boards)
    assert called_stages == []
    assert_same(solve_batch(crowded_boards, **LIMITS), whole)
    assert called_stages == [*STAGES]


# Agents s and A move down a column in sequence, and S crosses it. At the optimal cost of 14, both
# wait once, or S steps back and forth, which takes 8 steps.
CROSSING = [
    *("H H A H H G", "H H s H H F", "F S F F F F"),
    *("H H a H H H", "H H g H H H", "H H H H H H"),
]


@pytest.mark.slow
@pytest.mark.parametrize("dense", [True, False])
def test_needs_wait_is_unknown_beyond_the_horizon(dense):
    board = jaxlake.stack_instances([jaxlake.parse_grid(CROSSING)])
    solve_boards = solve_batch if dense else solve_by_trees
    full_horizon, short_horizon = (
        select_rows(solve_boards(board, horizon=steps), 0) for steps in (8, 7)
    )
    assert (full_horizon.status, full_horizon.sum_of_costs, full_horizon.needs_wait) == (
        Status.OPTIMAL,
        14,
        False,
    )
    assert oracles.least_sum_of_costs(CROSSING) == (14, False)
    assert short_horizon.status == (Status.OPTIMAL if dense else Status.UNKNOWN)
    assert not short_horizon.needs_wait


@pytest.mark.slow
def test_solutions_near_the_horizon_match_all_oracles():
    horizon = 6
    grids = random_grids(horizon, 400, sizes=(3, 4), agents=(3,), holes=0.4)
    truths = list(oracles.judge_all(grids))
    near_horizon = [
        i for i, truth in enumerate(truths) if (truth.makespan or 0) in (horizon, horizon - 1)
    ]
    assert len(near_horizon) > 20
    grids, truths = [grids[i] for i in near_horizon], [truths[i] for i in near_horizon]
    boards = instances(grids, max_size=4, max_agents=3)
    for solutions in (
        solve(boards, len(near_horizon), horizon=horizon),
        solve_by_trees(boards, horizon=horizon),
    ):
        assert compare(grids, solutions, truths)["OPTIMAL"] > 10
