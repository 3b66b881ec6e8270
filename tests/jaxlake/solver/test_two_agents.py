"""The two-agent tier by itself: any slots, both plans, what it counts, short horizons."""

from functools import partial

import jax
import numpy as np
import pytest

import jaxlake
from benchmarks import oracles
from jaxlake import Status
from jaxlake.solver import widths_for
from jaxlake.solver.certificates import prepare_boards
from jaxlake.solver.two_agents import solve_two
from tests.jaxlake.solver.boards import ANSWER, compare, in_slots, instances, random_grids

COUNT, SIZE, SLOTS = 500, 8, 2


@partial(jax.jit, static_argnames="horizon")
def _solver(boards: jaxlake.Instance, horizon: int) -> jaxlake.Solution:
    alone = prepare_boards(boards, widths_for()).alone
    return solve_two(boards, alone, np.ones(COUNT, bool), horizon, widths_for())


def _solve(boards: jaxlake.Instance, horizon: int = 64) -> jaxlake.Solution:
    return jax.tree.map(np.asarray, _solver(boards, horizon=horizon))


@pytest.fixture(scope="module")
def solved():
    """Boards with two agents in any two slots, those slots, and the solutions."""
    grids = random_grids(0, COUNT, sizes=tuple(range(2, SIZE + 1)), agents=(2,))
    slots = np.random.default_rng(0).permuted(np.tile(np.arange(SLOTS), (COUNT, 1)), axis=1)
    boards = in_slots(instances(grids, SIZE, SLOTS), slots)
    return grids, boards, np.argsort(slots), _solve(boards)


def _truth(grid: list[str]) -> oracles.Truth:
    makespan = oracles.least_makespan(grid)
    if makespan is None:
        return oracles.Truth(solvable=False)
    cost, needs_wait = oracles.least_sum_of_costs(grid)
    return oracles.Truth(True, cost, makespan, needs_wait)


def test_agents_in_any_two_slots_get_both_optima_and_a_plan_for_each(solved):
    grids, _, slots, solutions = solved
    truths = [_truth(grid) for grid in grids]
    kinds = compare(grids, solutions, truths, slots)
    assert min(kinds[name] for name in ("OPTIMAL", "UNSOLVABLE", "optima in different plans")) > 0
    assert kinds["UNKNOWN"] == 0
    for i in np.flatnonzero(solutions.status == Status.OPTIMAL):
        waits = oracles.waits_before_arrival(grids[i], solutions.plan[i][:, slots[i, :2]].tolist())
        assert (waits > 0) == truths[i].needs_wait, grids[i]


def test_other_numbers_of_agents_are_unknown_and_expand_nothing():
    grids = random_grids(1, COUNT - 2, (5, 6), agents=(1,)) + random_grids(5, 2, (5, 6), (2,))
    solutions = _solve(instances(grids, SIZE, SLOTS))
    others = np.arange(COUNT) < COUNT - 2
    assert (solutions.status[others] == Status.UNKNOWN).all()
    assert (solutions.plan[others] == -1).all()
    assert (solutions.expansions[others] == 0).all()
    assert (solutions.status[~others] != Status.UNKNOWN).all()


def test_expansions_belong_to_the_board_and_not_to_its_batch(solved):
    grids, boards, _, solutions = solved
    order = np.random.default_rng(1).permutation(COUNT)
    shuffled = _solve(jax.tree.map(lambda leaf: leaf[order], boards))
    assert (shuffled.expansions == solutions.expansions[order]).all()

    distances = [oracles.sum_of_distances(grid) for grid in grids]
    alone = np.array([distance is not None for distance in distances])
    assert (solutions.expansions[~alone] == 0).all()
    # With nothing to be gained by waiting there is one search, up to the makespan.
    free = (solutions.status == Status.OPTIMAL) & [
        distance == cost
        for distance, cost in zip(distances, solutions.sum_of_costs.tolist(), strict=True)
    ]
    assert (solutions.expansions[free] == solutions.makespan[free]).all()
    assert free.any()
    stuck = alone & (solutions.status == Status.UNSOLVABLE)
    assert (solutions.expansions[stuck] % 8 == 0).all()
    assert stuck.any()


def test_the_horizon_cuts_off_exactly_and_never_changes_an_answer(solved):
    _, boards, _, full = solved
    cut = _solve(boards, horizon=7)
    known = cut.status != Status.UNKNOWN
    for name in ANSWER:
        assert (getattr(full, name)[known] == getattr(cut, name)[known]).all(), name
    beyond = full.makespan > 7
    assert (cut.status[beyond] == Status.UNKNOWN).all()
    assert (full.makespan == 8).any()
    optimal = full.status == Status.OPTIMAL
    short = optimal & (full.plan[:, 7:] == 0).all(axis=(1, 2))
    assert (cut.status[short] == Status.OPTIMAL).all()
    assert (short & (full.plan[:, 6] != 0).any(axis=1)).any()
