"""Optimal costs of pairs against independent searches, with and without a mask."""

from functools import partial

import jax
import numpy as np

from benchmarks import oracles
from jaxlake.solver import limits_for
from jaxlake.solver.certificates import prepare_boards
from jaxlake.solver.pairs.bounds import pair_optima
from jaxlake.solver.pairs.joint_search import FAR
from tests.jaxlake.solver.boards import instances, random_grids

COUNT, SIZE = 400, 7


def test_only_requested_pairs_are_searched():
    grids = random_grids(0, COUNT, sizes=tuple(range(2, SIZE + 1)), agents=(2,), holes=0.55)
    active = np.random.default_rng(0).random(COUNT) < 0.8
    boards = instances(grids, SIZE, 2)
    solo_distances = prepare_boards(boards, limits_for()).solo_distances
    solve = jax.jit(partial(pair_optima, horizon=64, limits=limits_for()))
    optima = jax.device_get(
        solve(~boards.holes, boards.starts, boards.goals, solo_distances, active)
    )
    kinds = set()
    for i, grid in enumerate(grids):
        answer = tuple(leaf[i] for leaf in optima)
        makespan = oracles.least_makespan(grid) if active[i] else None
        if makespan is None:
            assert answer == (FAR, FAR, active[i], False), grid
            continue
        cost, needs_wait = oracles.least_sum_of_costs(grid)
        assert answer == (cost, makespan, False, not needs_wait), grid
        kinds.add((cost - oracles.sum_of_distances(grid), needs_wait))
    assert kinds >= {(0, False), (1, True), (2, False), (3, True), (4, False)}
    assert 0 < optima.unsolvable.sum() < active.sum()
