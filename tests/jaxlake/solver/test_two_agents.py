"""The two-agent tier by itself: any slots, both plans, what it counts, large static sizes."""

import random
from functools import partial

import jax
import numpy as np

import jaxlake
from jaxlake import Status
from jaxlake.solver.two_agents import solve_two
from tests import oracles

SLOTS = 4


def _grids(seed: int, count: int, sizes: tuple[int, ...], agents: int = 2) -> list[list[str]]:
    rng = random.Random(seed)
    return [
        oracles.random_grid(
            rng, rng.choice(sizes), rng.uniform(0, 0.5), agents, together=rng.random() < 0.5
        )
        for _ in range(count)
    ]


def _boards(grids: list[list[str]], max_size: int) -> jaxlake.Instance:
    return jaxlake.stack_instances(
        [jaxlake.parse_grid(grid, max_size=max_size, max_agents=SLOTS) for grid in grids]
    )


def _in_slots(boards: jaxlake.Instance, slots: np.ndarray) -> jaxlake.Instance:
    """Slot j of board i takes what slot slots[i, j] held."""

    def taken(leaf: np.ndarray) -> np.ndarray:
        return np.take_along_axis(leaf, slots.reshape(slots.shape + (1,) * (leaf.ndim - 2)), axis=1)

    return jaxlake.Instance(
        boards.holes,
        boards.size,
        taken(boards.starts),
        taken(boards.goals),
        taken(boards.agent_mask),
    )


def _solve(boards: jaxlake.Instance, horizon: int = 64) -> jaxlake.Solution:
    wanted = np.ones(len(boards.size), bool)
    return jax.tree.map(np.asarray, _solver(boards, wanted, horizon=horizon))


_solver = partial(jax.jit, static_argnames="horizon")(solve_two)


def _assert_solved(grid: list[str], solution: jaxlake.Solution, slots: list[int]) -> None:
    """Agent i of the grid is in slot slots[i]."""
    makespan = oracles.least_makespan(grid)
    if makespan is None:
        assert solution.status == Status.UNSOLVABLE, grid
        assert (solution.plan == -1).all()
        assert (solution.makespan_plan == -1).all()
        return
    cost, needs_wait = oracles.least_sum_of_costs(grid)
    answer = (solution.status, solution.sum_of_costs, solution.makespan, solution.needs_wait)
    assert answer == (Status.OPTIMAL, cost, makespan, needs_wait), grid
    cheapest = oracles.check(grid, solution.plan[:, slots].tolist())
    quickest = oracles.check(grid, solution.makespan_plan[:, slots].tolist())
    assert (cheapest.failure, cheapest.sum_of_costs) == (None, cost), grid
    assert (quickest.failure, quickest.makespan) == (None, makespan), grid
    waits = oracles.waits_before_arrival(grid, solution.plan[:, slots].tolist())
    assert (waits > 0) == needs_wait, grid
    empty = np.setdiff1d(np.arange(SLOTS), slots)
    assert (solution.plan[:, empty] == 0).all()
    assert (solution.makespan_plan[:, empty] == 0).all()


def test_agents_in_any_two_slots_get_both_optima_and_a_plan_for_each():
    grids = _grids(0, 500, (2, 3, 4, 5, 6, 7, 8))
    slots = np.random.default_rng(0).permuted(np.tile(np.arange(SLOTS), (500, 1)), axis=1)
    solutions = _solve(_in_slots(_boards(grids, 8), slots))
    for i, grid in enumerate(grids):
        where = np.argsort(slots[i])[:2].tolist()
        _assert_solved(grid, jax.tree.map(lambda leaf, i=i: leaf[i], solutions), where)
    optimal = solutions.status == Status.OPTIMAL
    differ = (solutions.plan != solutions.makespan_plan).any(axis=(1, 2))
    assert 0 < differ.sum() < optimal.sum() < 500


def test_a_static_size_of_sixteen_solves_large_and_small_boards():
    grids = _grids(1, 3, (16,)) + _grids(2, 3, (3, 4, 5))
    solutions = _solve(_boards(grids, 16))
    for i, grid in enumerate(grids):
        _assert_solved(grid, jax.tree.map(lambda leaf, i=i: leaf[i], solutions), [0, 1])


def test_other_numbers_of_agents_are_unknown_and_expand_nothing():
    grids = [g for k in (1, 3, 4) for g in _grids(k, 166, (5, 6), agents=k)]
    grids += _grids(5, 500 - len(grids), (5, 6))
    solutions = _solve(_boards(grids, 8))
    others = np.arange(500) < 498
    assert (solutions.status[others] == Status.UNKNOWN).all()
    assert (solutions.plan[others] == -1).all()
    assert (solutions.expansions[others] == 0).all()
    assert (solutions.status[~others] != Status.UNKNOWN).all()


def test_expansions_belong_to_the_board_and_not_to_its_batch():
    grids = _grids(3, 500, (2, 3, 4, 5, 6, 7, 8))
    boards = _boards(grids, 8)
    order = np.random.default_rng(1).permutation(500)
    solutions = _solve(boards)
    shuffled = _solve(jax.tree.map(lambda leaf: leaf[order], boards))
    assert (shuffled.expansions == solutions.expansions[order]).all()

    alone = np.array([oracles.sum_of_distances(grid) is not None for grid in grids])
    assert (solutions.expansions[~alone] == 0).all()
    # With nothing to be gained by waiting there is one search, up to the makespan.
    free = (solutions.status == Status.OPTIMAL) & [
        oracles.sum_of_distances(grid) == cost
        for grid, cost in zip(grids, solutions.sum_of_costs.tolist(), strict=True)
    ]
    assert (solutions.expansions[free] == solutions.makespan[free]).all()
    assert free.any()
    stuck = alone & (solutions.status == Status.UNSOLVABLE)
    assert (solutions.expansions[stuck] % 8 == 0).all()
    assert stuck.any()


def test_the_horizon_cuts_off_and_never_changes_an_answer():
    boards = _boards(_grids(4, 500, (2, 3, 4, 5, 6, 7, 8)), 8)
    full, cut = _solve(boards), _solve(boards, horizon=7)
    known = cut.status != Status.UNKNOWN
    assert (full.status[known] == cut.status[known]).all()
    for name in ("sum_of_costs", "makespan", "needs_wait"):
        assert (getattr(full, name)[known] == getattr(cut, name)[known]).all()
    beyond = full.makespan > 7
    assert (cut.status[beyond] == Status.UNKNOWN).all()
    assert beyond.any()
    short = (full.status == Status.OPTIMAL) & ((full.plan[:, 7:] == 0).all(axis=(1, 2)))
    assert (cut.status[short] == Status.OPTIMAL).all()
