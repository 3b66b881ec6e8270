"""Outside of other programs, tiers are compiled when a board first needs them."""

import jax
import numpy as np
import pytest

import jaxlake
from jaxlake.solver import many_slots, solve_batch
from tests.jaxlake.solver.boards import assert_same, instances, random_grids, row_of

STAGES = ("_first_stage", "_second_stage", "_third_stage")
FEW = {"horizon": 16, "max_expansions": 8}
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


@pytest.fixture(scope="module")
def crowded():
    """Boards of which some need all stages."""
    return instances(random_grids(8, 60, sizes=(3, 4), agents=(3,)), max_size=4, max_agents=3)


@pytest.mark.slow
def test_stages_give_what_one_program_gives(crowded, called):
    whole = jax.jit(lambda boards: solve_batch(boards, **FEW))(crowded)
    assert called == []
    assert_same(solve_batch(crowded, **FEW), whole)
    assert called == [*STAGES]


@pytest.mark.slow
def test_a_board_alone_takes_all_stages_if_it_needs_them(crowded, called):
    solutions = solve_batch(crowded, **FEW)
    hardest = int(np.argmax(solutions.expansions))
    called.clear()
    assert_same(jaxlake.solve(row_of(crowded, hardest), **FEW), row_of(solutions, hardest))
    assert called == [*STAGES]
