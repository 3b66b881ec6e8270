"""Outside of other programs, tiers are compiled when a board first needs them."""

import jax
import numpy as np
import pytest

import jaxlake
from jaxlake.solver import many_slots, solve_batch
from tests.jaxlake.solver.boards import assert_same, instances, random_grids, row_of

STAGES = ("_first_stage", "_second_stage", "_third_stage")
APART = [["S g F", "s G F", "A a F"], ["S F G", "s F g", "A a F"]]


@pytest.fixture
def called(monkeypatch):
    """The stages that were called, in order."""
    names = []

    def recorded(name):
        stage = getattr(many_slots, name)

        def call(*args, **kwargs):
            names.append(name)
            return stage(*args, **kwargs)

        return call

    for name in STAGES:
        monkeypatch.setattr(many_slots, name, recorded(name))
    return names


def test_boards_on_which_nobody_is_in_the_way_need_the_first_stage_alone(called):
    for rows in APART:
        board = jaxlake.parse_grid(rows)
        solution = jaxlake.solve(board, horizon=16)
        assert solution.status == jaxlake.Status.OPTIMAL
        assert solution.sum_of_costs == sum(
            jaxlake.distances(board.holes, goal)[tuple(start)]
            for start, goal in zip(board.starts, board.goals, strict=True)
        )
    assert called == ["_first_stage"] * 2


@pytest.mark.slow
def test_stages_give_what_one_program_gives_and_later_ones_are_called_for_boards_that_are_left(
    called,
):
    grids = random_grids(8, 60, sizes=(3, 4), agents=(3,))
    boards = instances(grids, max_size=4, max_agents=3)
    options = {"horizon": 16, "max_expansions": 8}
    whole = jax.jit(lambda boards: solve_batch(boards, **options))(boards)
    assert called == []
    assert_same(solve_batch(boards, **options), whole)
    assert called == [*STAGES]
    # Each board alone takes as many stages as it needs.
    called.clear()
    for i in range(len(grids)):
        assert_same(jaxlake.solve(row_of(boards, i), **options), row_of(whole, i))
    seen = np.array([called.count(name) for name in STAGES])
    assert seen[0] == len(grids) > seen[1] > seen[2] > 0
