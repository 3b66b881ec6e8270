"""Staircases of arrivals against an enumeration of plans."""

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import oracles
from jaxlake.solver import limits_for
from jaxlake.solver.certificates import prepare_boards
from jaxlake.solver.pairs.arrivals import STAIRCASE_LENGTH, staircases
from tests.jaxlake.solver.boards import draw_grids, draw_starts_on_goals, make_instances

NUM_BOARDS, MAX_SIZE, MAX_DELAY = 120, 4, 5


@pytest.fixture(scope="module")
def grids():
    options = {"sizes": (3, MAX_SIZE), "agent_counts": (2,), "hole_ratio": 0.6}
    grids = draw_grids(3, 3 * NUM_BOARDS // 2, **options)
    grids += draw_starts_on_goals(4, NUM_BOARDS, **options)
    solvable_grids = [grid for grid in grids if oracles.least_sum_of_costs(grid) is not None]
    return solvable_grids[:NUM_BOARDS]


def _compute_staircases(grids, limits):
    boards = make_instances(grids, MAX_SIZE, 2)
    arguments = (jnp.asarray(leaf) for leaf in (~boards.holes, boards.starts, boards.goals))
    solo_distances = prepare_boards(boards, limits).solo_distances
    return np.asarray(staircases(*arguments, solo_distances, jnp.ones(len(grids), bool), limits))


def _unpack_entries(words):
    """Return int (STAIRCASE_LENGTH, B): entry e of each staircase."""
    rows = [words[e // 8] >> np.uint32(4 * (e % 8)) & 15 for e in range(STAIRCASE_LENGTH)]
    return np.stack(rows).astype(int)


def test_staircases_match_enumerated_plans(grids):
    entries = _unpack_entries(_compute_staircases(grids, limits_for()))
    heights = set()
    for b, grid in enumerate(grids):
        solo_distances = oracles.boards.solo_distances(oracles.parse_board(grid))
        arrivals = oracles.arrival_times(grid, max(solo_distances) + MAX_DELAY + 2)
        excesses = [(x - solo_distances[0], y - solo_distances[1]) for x, y in arrivals]
        for e in range(MAX_DELAY):
            expected = min((y for x, y in excesses if x <= e), default=STAIRCASE_LENGTH)
            heights.add(int(entries[e, b]))
            # The enumerated plans only show delays of up to CHECKED steps.
            assert min(entries[e, b], MAX_DELAY) == min(expected, MAX_DELAY), (grid, e)
    assert {0, 1, 2, 3, 4} < heights
    assert (np.diff(entries, axis=0) <= 0).all()
