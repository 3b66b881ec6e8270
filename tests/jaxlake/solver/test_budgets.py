"""How many agents a search may replan, on boards that are handed in and on those that are drawn."""

import jax
import numpy as np
import pytest

import jaxlake
from jaxlake.generator import feasibility_map
from jaxlake.solver import Status, many_slots, solve_batch
from tests.jaxlake.solver.boards import instances, random_grids

ROOMY = {"size": 8, "hole_ratio": 0.1, "num_agents": 4}
"""Boards on too many cells for the sets of joint states; some of them need constraint trees."""


@pytest.fixture(scope="module")
def one_to_five_agents():
    """Five boards of five slots, with one agent more on each."""
    return instances(random_grids(1, 5, sizes=(5,), agents=(1, 2, 3, 4, 5)), 5, 5)


@pytest.fixture
def no_searches_of_drawn_boards(monkeypatch):
    monkeypatch.setattr(many_slots, "CANDIDATE_MAX_EXPANSIONS", {3: 0, 4: 0, 5: 0})


def test_boards_that_are_handed_in_get_65536_replanned_agents_whatever_their_slots_hold(
    one_to_five_agents,
):
    assert many_slots.budgets(one_to_five_agents, None).tolist() == [65_536] * 5


def test_boards_that_are_drawn_get_a_quarter_of_it_with_four_and_five_agents(one_to_five_agents):
    budgets = many_slots.candidate_budgets(one_to_five_agents).tolist()
    assert budgets == [65_536, 65_536, 65_536, 16_384, 16_384]


def test_budgets_that_are_not_one_for_each_board_are_refused(one_to_five_agents):
    wrong = r"max_expansions: got an array of shape \(4,\), \(\) or \(5,\) is needed"
    with pytest.raises(ValueError, match=wrong):
        solve_batch(one_to_five_agents, max_expansions=np.full(4, 16_384))
    board = jax.tree.map(lambda leaf: leaf[0], one_to_five_agents)
    with pytest.raises(ValueError, match=r"max_expansions: got an array of shape \(1,\), \(\)"):
        jaxlake.solve(board, max_expansions=np.full(1, 16_384))


@pytest.mark.slow
def test_more_replanned_agents_settle_more_boards_and_change_no_answer():
    boards = instances(random_grids(8, 96, sizes=(4, 5), agents=(4,)), 5, 4)

    def solve(most):
        solutions = solve_batch(boards, horizon=32, dense=False, max_expansions=most)
        return jax.device_get(solutions)

    few, many = solve(np.full(96, 8)), solve(np.full(96, 2048))
    known = few.status != Status.UNKNOWN
    assert known.sum() > 10
    assert ((many.status != Status.UNKNOWN) & ~known).sum() > 10
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[known], y[known]), few, many)
    # Each board has a budget of its own.
    mixed, first = solve(np.where(np.arange(96) < 48, 8, 2048)), slice(None, 48)
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[first], y[first]), mixed, few)
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[48:], y[48:]), mixed, many)


@pytest.mark.slow
def test_sets_of_boards_are_made_with_the_budget_of_drawn_boards(no_searches_of_drawn_boards):
    # No other test generates for this horizon, so that no program of before is taken.
    params = jaxlake.lake_params(**ROOMY, wait_ratio=0.0)
    made = jaxlake.generate(
        jax.random.key(0), params, 64, max_size=8, max_agents=4, batch_size=64, horizon=35
    )
    assert np.sum(made.unknown) > 0


@pytest.mark.slow
def test_the_feasibility_map_counts_with_the_budget_of_drawn_boards(no_searches_of_drawn_boards):
    (row,) = feasibility_map(
        jax.random.key(0),
        num_agents=[4],
        sizes=[8],
        hole_ratios=[0.1],
        wait_ratios=[0.0],
        candidates=64,
        horizon=35,
    )
    assert row.unknown > 0
