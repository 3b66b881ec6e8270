"""The exact solver against independent searches in plain Python and CBS in C++.

JAXLAKE_ORACLE_BOARDS and JAXLAKE_ORACLE_SEED run the comparison on more, or on other, boards.
"""

import os
import random
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxlake
from jaxlake import Status
from tests import oracles

BOARDS = int(os.environ.get("JAXLAKE_ORACLE_BOARDS", "500"))
SEED = int(os.environ.get("JAXLAKE_ORACLE_SEED", "0"))


def _random_grids(seed: int, count: int, sizes: range, holes: float = 0.5) -> list[list[str]]:
    rng = random.Random(seed)
    return [
        oracles.random_grid(rng, rng.choice(sizes), rng.uniform(0, holes)) for _ in range(count)
    ]


def _boards(grids: list[list[str]], **padding: int) -> jaxlake.Instance:
    return jaxlake.stack_instances([jaxlake.parse_grid(grid, **padding) for grid in grids])


def _solve(boards: jaxlake.Instance, **options: int) -> jaxlake.Solution:
    return jax.tree.map(np.asarray, _solver(**options)(boards))


@cache
def _solver(**options: int):
    return jax.jit(jax.vmap(partial(jaxlake.solve, **options)))


def _assert_solved(grid: list[str], solution: jaxlake.Solution) -> str:
    """Compare one answer with every oracle; returns what kind of board it was."""
    makespan = oracles.least_makespan(grid)
    status = Status(int(solution.status))
    if makespan is None:
        assert status is Status.UNSOLVABLE, grid
        assert int(solution.sum_of_costs) == int(solution.makespan) == -1
        assert not solution.needs_wait
        assert (solution.plan == -1).all()
        connected = oracles.sum_of_distances(grid) is not None
        return "blocked by each other" if connected else "disconnected"
    assert status is Status.OPTIMAL, grid
    cost, needs_wait = oracles.least_sum_of_costs(grid)
    answer = (solution.sum_of_costs, solution.makespan, solution.needs_wait)
    assert answer == (cost, makespan, needs_wait), grid
    assert cost == oracles.cbs_sum_of_costs(grid), grid
    plan = solution.plan[:, :2].tolist()
    verdict = oracles.check(grid, plan)
    assert verdict.failure is None, (grid, plan)
    assert verdict.sum_of_costs == cost, (grid, plan)
    assert (oracles.waits_before_arrival(grid, plan) > 0) == needs_wait, (grid, plan)
    if verdict.makespan > makespan:
        return "optima in different plans"
    alone = oracles.sum_of_distances(grid)
    return f"needs_wait={needs_wait}, excess {min(cost - alone, 2)}"


def test_every_answer_agrees_with_joint_searches_and_cbs():
    grids = _random_grids(SEED, BOARDS, range(2, 11))
    solutions = _solve(_boards(grids))
    kinds = {
        _assert_solved(grid, jax.tree.map(lambda leaf, i=i: leaf[i], solutions))
        for i, grid in enumerate(grids)
    }
    assert kinds >= {
        "disconnected",
        "blocked by each other",
        "optima in different plans",
        "needs_wait=False, excess 0",
        "needs_wait=True, excess 1",
        "needs_wait=True, excess 2",
        "needs_wait=False, excess 2",
    }


@pytest.mark.parametrize("max_size", [2, 5, 31, 32])
def test_any_static_size_gives_the_same_answers(max_size):
    grids = _random_grids(max_size, 30, range(2, min(max_size, 6) + 1))
    solutions = _solve(_boards(grids, max_size=max_size), horizon=24)
    for i, grid in enumerate(grids):
        _assert_solved(grid, jax.tree.map(lambda leaf, i=i: leaf[i], solutions))


def test_more_agent_slots_and_other_batch_shapes_change_nothing():
    grids = _random_grids(1, 90, range(3, 7))
    boards = _boards(grids)
    reference = _solve(boards)
    wide = _solve(_boards(grids, max_agents=5))
    assert wide.plan.shape == (90, jaxlake.DEFAULT_HORIZON, 5)
    assert (
        wide.plan[..., 2:] == np.where(wide.status == Status.OPTIMAL, 0, -1)[:, None, None]
    ).all()

    folded = jax.tree.map(lambda leaf: leaf.reshape(9, 10, *leaf.shape[1:]), boards)
    nested = jax.jit(jax.vmap(jax.vmap(jaxlake.solve)))(folded)
    one = jax.jit(jaxlake.solve)
    for name in ("status", "sum_of_costs", "makespan", "needs_wait"):
        expected = getattr(reference, name)
        assert (getattr(wide, name) == expected).all()
        assert (np.asarray(getattr(nested, name)).reshape(-1) == expected).all()
    assert (np.asarray(nested.plan).reshape(reference.plan.shape) == reference.plan).all()
    for i in range(0, 90, 15):
        alone = one(jax.tree.map(lambda leaf, i=i: leaf[i], boards))
        for got, expected in zip(jax.tree.leaves(alone), jax.tree.leaves(reference), strict=True):
            assert got.dtype == expected.dtype
            assert (np.asarray(got) == expected[i]).all()


def test_only_part_of_an_instance_may_be_batched():
    board = jaxlake.parse_grid(["S F F", "s F F", "G g F"])
    goals = np.array([[[0, 2], [1, 2]], [[2, 2], [2, 1]], [[1, 2], [0, 2]]], np.int8)
    axes = jaxlake.Instance(holes=None, size=None, starts=None, goals=0, agent_mask=None)
    varied = jaxlake.Instance(board.holes, board.size, board.starts, goals, board.agent_mask)
    solutions = jax.jit(jax.vmap(jaxlake.solve, in_axes=(axes,)))(varied)
    single_solver = jax.jit(jaxlake.solve)
    for i in range(3):
        single = single_solver(
            jaxlake.Instance(board.holes, board.size, board.starts, goals[i], board.agent_mask)
        )
        assert int(solutions.sum_of_costs[i]) == int(single.sum_of_costs)
    assert len(set(solutions.sum_of_costs.tolist())) > 1


def test_the_horizon_bounds_plans_exactly_and_beyond_it_nothing_is_guessed():
    corridor = ["S F F F", "H H H F", "G F F F", "s g F F"]
    longest = oracles.least_makespan(corridor)
    at, below = (_solve(_boards([corridor]), horizon=h) for h in (longest, longest - 1))
    assert Status(int(at.status[0])) is Status.OPTIMAL
    assert at.plan.shape == (1, longest, 2)
    assert Status(int(below.status[0])) is Status.UNKNOWN
    assert int(below.sum_of_costs[0]) == int(below.makespan[0]) == -1
    assert (below.plan == -1).all()


def test_a_short_horizon_never_changes_an_answer_to_another_one():
    boards = _boards(_random_grids(7, 120, range(3, 9)))
    full = _solve(boards)
    statuses = set()
    for horizon in (4, 9):
        cut = _solve(boards, horizon=horizon)
        known = cut.status != Status.UNKNOWN
        assert (cut.status[known] == full.status[known]).all()
        assert (cut.sum_of_costs[known] == full.sum_of_costs[known]).all()
        assert (cut.makespan[known] == full.makespan[known]).all()
        assert (cut.needs_wait[known] == full.needs_wait[known]).all()
        assert (cut.makespan <= horizon).all()
        statuses |= set(cut.status.tolist())
    assert statuses == set(Status)


@pytest.mark.parametrize("agents", [1, 3])
def test_other_numbers_of_agents_are_unknown(agents):
    grid = oracles.random_grid(random.Random(0), 5, 0.1, agents)
    solution = _solve(_boards([grid], max_agents=4))
    assert Status(int(solution.status[0])) is Status.UNKNOWN


def test_agents_in_other_slots_are_unknown():
    board = jaxlake.parse_grid(["S G", "s g"], max_agents=4)
    moved = jaxlake.Instance(
        board.holes,
        board.size,
        board.starts[[0, 2, 1, 3]],
        board.goals[[0, 2, 1, 3]],
        np.array([True, False, True, False]),
    )
    assert Status(int(_solve(jaxlake.stack_instances([moved])).status[0])) is Status.UNKNOWN


def test_the_default_horizon_is_enough_for_random_boards_of_the_full_size():
    boards = _boards(_random_grids(9, BOARDS, range(10, 11), holes=0.6))
    assert (_solve(boards).status != Status.UNKNOWN).all()


def test_values_do_not_retrace():
    traces = []

    def counted(board):
        traces.append(1)
        return jaxlake.solve(board)

    solver = jax.jit(counted)
    for grid in _random_grids(4, 12, range(2, 11)):
        solver(jax.tree.map(jnp.asarray, jaxlake.parse_grid(grid)))
    assert len(traces) == 1


def test_arguments_out_of_range_are_named():
    board = jaxlake.parse_grid(["S G", "s g"])
    with pytest.raises(ValueError, match="horizon: got 0"):
        jaxlake.solve(board, horizon=0)
    with pytest.raises(ValueError, match="agent_mask"):
        jaxlake.solve(jaxlake.parse_grid(["S G", "F F"], max_agents=1))


def test_distances_agree_with_breadth_first_search():
    field_of = jax.jit(jax.vmap(jaxlake.distances))
    grids = _random_grids(5, 60, range(2, 11))
    boards = _boards(grids)
    fields = np.asarray(field_of(boards.holes, boards.goals[:, 0]))
    assert fields.dtype == np.int16
    for grid, field in zip(grids, fields, strict=True):
        board = oracles.read(grid)
        expected = np.full((10, 10), jaxlake.UNREACHABLE)
        for (r, c), steps in oracles.distances_to(board, board.goals[0]).items():
            expected[r, c] = steps
        assert (field == expected).all()
