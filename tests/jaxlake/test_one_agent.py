"""The simplest lake, with one agent, through all functions on boards."""

import jax
import numpy as np
import pytest

import jaxlake
from benchmarks import oracles
from benchmarks.oracles.boards import solo_distances
from jaxlake import Status
from tests.jaxlake.solver.boards import (
    ANSWER_FIELDS,
    draw_grids,
    make_instances,
    make_solver,
    select_rows,
)

GRIDS = draw_grids(11, 200, sizes=(2, 3, 4, 5, 6, 7), agent_counts=(1,), hole_ratio=0.6)
HORIZON = 24


@pytest.fixture(scope="module")
def boards():
    return make_instances(GRIDS, max_size=7, max_agents=1)


@pytest.fixture(scope="module")
def solutions(boards):
    return jax.device_get(make_solver(horizon=HORIZON)(boards))


def find_shortest_path_length(grid):
    distances = solo_distances(oracles.parse_board(grid))
    return None if distances is None else distances[0]


def test_single_agent_optimum_equals_bfs_distance(solutions):
    expected = [find_shortest_path_length(grid) for grid in GRIDS]
    assert None in expected
    assert max(steps for steps in expected if steps is not None) > 7
    status = [Status.UNSOLVABLE if steps is None else Status.OPTIMAL for steps in expected]
    costs = [-1 if steps is None else steps for steps in expected]
    assert solutions.status.tolist() == status
    assert solutions.sum_of_costs.tolist() == solutions.makespan.tolist() == costs
    assert not solutions.needs_wait.any()


@pytest.mark.slow
def test_single_agent_boards_are_distinct_and_solved():
    params = jaxlake.lake_params([4, 5], 0.3, num_agents=1)
    lakes = jax.device_get(
        jaxlake.generate(jax.random.key(5), params, 64, max_size=5, max_agents=1)
    )
    assert lakes.filled.all()
    grids = [jaxlake.format_grid(select_rows(lakes.instances, i)) for i in range(64)]
    assert len({"".join(grid) for grid in grids}) == 64
    assert lakes.solutions.sum_of_costs.tolist() == [
        find_shortest_path_length(grid) for grid in grids
    ]


@pytest.mark.slow
def test_one_and_two_slots_give_equal_solutions(solutions):
    boards = make_instances(GRIDS, max_size=7, max_agents=2)
    actual = jax.device_get(make_solver(horizon=HORIZON)(boards))
    for name in ANSWER_FIELDS:
        assert np.array_equal(getattr(actual, name), getattr(solutions, name)), name
