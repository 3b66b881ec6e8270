"""Staircases of arrivals against an enumeration of plans."""

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import oracles
from jaxlake.solver import widths_for
from jaxlake.solver.arrivals import EXCESSES, look_up, staircases
from jaxlake.solver.certificates import prepare_boards
from tests.jaxlake.solver.boards import instances, random_grids

COUNT, SIZE, CHECKED = 120, 4, 5


@pytest.fixture(scope="module")
def grids():
    grids = random_grids(3, 3 * COUNT, sizes=(3, SIZE), agents=(2,), holes=0.6)
    solvable = [grid for grid in grids if oracles.least_sum_of_costs(grid) is not None]
    return solvable[:COUNT]


def _words(grids, widths):
    boards = instances(grids, SIZE, 2)
    arguments = (jnp.asarray(leaf) for leaf in (~boards.holes, boards.starts, boards.goals))
    alone = prepare_boards(boards, widths).alone
    return np.asarray(staircases(*arguments, alone, jnp.ones(len(grids), bool), widths))


def _entries(words):
    """Return int (EXCESSES, B): entry e of each staircase."""
    entries = [words[e // 8] >> np.uint32(4 * (e % 8)) & 15 for e in range(EXCESSES)]
    return np.stack(entries).astype(int)


def test_staircases_are_those_of_all_plans(grids):
    stairs = _entries(_words(grids, widths_for()))
    heights = set()
    for b, grid in enumerate(grids):
        alone = oracles.boards.distances_alone(oracles.read(grid))
        arrivals = oracles.arrival_times(grid, max(alone) + CHECKED + 2)
        excesses = [(x - alone[0], y - alone[1]) for x, y in arrivals]
        for e in range(CHECKED):
            least = min((y for x, y in excesses if x <= e), default=EXCESSES)
            heights.add(int(stairs[e, b]))
            # Plans of so few steps show delays of up to CHECKED steps only.
            assert min(stairs[e, b], CHECKED) == min(least, CHECKED), (grid, e)
    assert {0, 1, 2, 3, 4} < heights
    assert (np.diff(stairs, axis=0) <= 0).all()


def test_looking_up_gives_the_least_arrivals_within_reach():
    rng = np.random.default_rng(0)
    stairs = -np.sort(-rng.integers(0, 16, (500, EXCESSES)), axis=1) * rng.integers(0, 2, (500, 1))
    shifts = 4 * np.arange(8, dtype=np.uint64)
    words = [
        jnp.asarray((part.astype(np.uint64) << shifts).sum(axis=1).astype(np.uint32))
        for part in (stairs[:, :8], stairs[:, 8:])
    ]
    one, other = rng.integers(0, 20, (2, 500)).astype(np.int16)
    gain, foot, top = (np.asarray(x) for x in look_up(words, jnp.asarray(one), jnp.asarray(other)))
    for i, stair in enumerate(stairs):
        possible = [
            e + late
            for e in range(one[i], 40)
            for late in range(other[i], 40)
            if e >= EXCESSES or late >= stair[e]
        ]
        assert gain[i] == min(possible) - one[i] - other[i]
        late = [e for e in range(EXCESSES) if stair[e] > other[i]]
        assert foot[i] == (late[-1] + 1 if late else 0)
        assert top[i] == (stair[late[-1]] if late else 0)
    assert (gain > 2).any()
