"""Costs of pairs against independent searches, and what is said of pairs that nobody asked for."""

from functools import partial

import jax
import numpy as np
import pytest

from benchmarks import oracles
from jaxlake.solver import widths_for
from jaxlake.solver.pairs import PairOptima, pair_optima
from tests.jaxlake.solver.boards import instances, random_grids

COUNT, SIZE = 400, 7
_optima = partial(jax.jit, static_argnames="horizon")(partial(pair_optima, widths=widths_for()))


@pytest.fixture(scope="module")
def grids():
    return random_grids(0, COUNT, sizes=tuple(range(2, SIZE + 1)), agents=(2,), holes=0.55)


def _pairs(grids: list[list[str]], wanted: np.ndarray, horizon: int = 64) -> PairOptima:
    boards = instances(grids, SIZE, 2)
    found = _optima(~boards.holes, boards.starts, boards.goals, wanted, horizon=horizon)
    return jax.tree.map(np.asarray, found)


def test_wanted_pairs_get_what_joint_searches_find_and_the_others_nothing(grids):
    wanted = np.random.default_rng(0).random(COUNT) < 0.8
    found = _pairs(grids, wanted)
    kinds = set()
    for i, grid in enumerate(grids):
        answer = tuple(leaf[i] for leaf in found)
        makespan = oracles.least_makespan(grid) if wanted[i] else None
        if makespan is None:
            assert answer == (not wanted[i], False, -1, -1, False), grid
            continue
        cost, needs_wait = oracles.least_sum_of_costs(grid)
        assert answer == (True, True, cost, makespan, not needs_wait), grid
        kinds.add((cost - oracles.sum_of_distances(grid), needs_wait))
    assert kinds >= {(0, False), (1, True), (2, False), (3, True), (4, False)}
    assert 0 < (~found.solvable).sum() < wanted.sum()


def test_pairs_beyond_the_horizon_are_not_known_and_not_called_unsolvable(grids):
    everyone = np.ones(COUNT, bool)
    full, cut = _pairs(grids, everyone), _pairs(grids, everyone, horizon=5)
    assert (cut.known == (full.known & (full.makespan <= 5))).all()
    assert (cut.solvable | ~full.solvable).all()
    assert (full.known & ~cut.known).any()
    for name in ("sum_of_costs", "makespan", "waitless"):
        assert (getattr(cut, name)[cut.known] == getattr(full, name)[cut.known]).all(), name
