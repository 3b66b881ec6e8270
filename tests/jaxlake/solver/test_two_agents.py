"""The two-agent tier by itself: what it counts, and short horizons."""

from functools import partial

import jax
import numpy as np
import pytest

import jaxlake
from jaxlake import Status
from jaxlake.solver import widths_for
from jaxlake.solver.certificates import prepare_boards
from jaxlake.solver.two_agents import solve_two
from tests.jaxlake.solver.boards import ANSWER, instances, random_grids

COUNT, SIZE = 500, 8


@partial(jax.jit, static_argnames="horizon")
def _solver(boards: jaxlake.Instance, horizon: int) -> jaxlake.Solution:
    alone = prepare_boards(boards, widths_for()).alone
    return solve_two(boards, alone, np.ones(COUNT, bool), horizon, widths_for())


def _solve(boards: jaxlake.Instance, horizon: int = 64) -> jaxlake.Solution:
    return jax.tree.map(np.asarray, _solver(boards, horizon=horizon))


@pytest.fixture(scope="module")
def solved():
    """Boards and their solutions."""
    grids = random_grids(0, COUNT, sizes=tuple(range(2, SIZE + 1)), agents=(2,))
    boards = instances(grids, SIZE, 2)
    return grids, boards, _solve(boards)


def test_the_horizon_cuts_off_exactly_and_never_changes_an_answer(solved):
    _, boards, full = solved
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
