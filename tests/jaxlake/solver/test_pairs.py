"""Optimal costs of pairs against independent searches, with and without a mask."""

from functools import partial

import jax
import numpy as np

from benchmarks import oracles
from jaxlake.solver import limits_for
from jaxlake.solver.certificates import prepare_boards
from jaxlake.solver.pairs.bounds import pair_optima
from jaxlake.solver.pairs.joint_search import FAR
from tests.jaxlake.solver.boards import draw_grids, make_instances

NUM_BOARDS, MAX_SIZE = 400, 7


def test_only_requested_pairs_are_searched():
    grids = draw_grids(
        0, NUM_BOARDS, sizes=tuple(range(2, MAX_SIZE + 1)), agent_counts=(2,), hole_ratio=0.55
    )
    active_mask = np.random.default_rng(0).random(NUM_BOARDS) < 0.8
    boards = make_instances(grids, MAX_SIZE, 2)
    solo_distances = prepare_boards(boards, limits_for()).solo_distances
    solve_pairs = jax.jit(partial(pair_optima, horizon=64, limits=limits_for()))
    optima = jax.device_get(
        solve_pairs(~boards.holes, boards.starts, boards.goals, solo_distances, active_mask)
    )
    kinds = set()
    for i, grid in enumerate(grids):
        answer = tuple(leaf[i] for leaf in optima)
        makespan = oracles.least_makespan(grid) if active_mask[i] else None
        if makespan is None:
            assert answer == (FAR, FAR, active_mask[i], False), grid
            continue
        cost, needs_wait = oracles.least_sum_of_costs(grid)
        assert answer == (cost, makespan, False, not needs_wait), grid
        kinds.add((cost - oracles.sum_of_distances(grid), needs_wait))
    assert kinds >= {(0, False), (1, True), (2, False), (3, True), (4, False)}
    assert 0 < optima.unsolvable.sum() < active_mask.sum()
