"""Staircases of arrivals against an enumeration of plans, and what trees gain by them."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import oracles
from jaxlake.solver import Widths, widths_for
from jaxlake.solver.arrivals import EXCESSES, look_up, staircases
from jaxlake.solver.certificates import prepare_boards
from jaxlake.solver.space_time import NEVER
from jaxlake.solver.trees.node import TreeQueries
from jaxlake.solver.trees.search import search_trees
from tests.jaxlake.solver.boards import instances, random_grids, staircases_of_all_pairs

COUNT, SIZE, CHECKED = 120, 4, 5


@pytest.fixture(scope="module")
def grids():
    grids = random_grids(3, 3 * COUNT, sizes=(3, SIZE), agents=(2,), holes=0.6)
    solvable = [grid for grid in grids if oracles.least_sum_of_costs(grid) is not None]
    return solvable[:COUNT]


def _words(grids, wanted, widths):
    boards = instances(grids, SIZE, 2)
    arguments = (jnp.asarray(leaf) for leaf in (~boards.holes, boards.starts, boards.goals, wanted))
    return np.asarray(staircases(*arguments, widths))


def _entries(words):
    """Return int (EXCESSES, B): entry e of each staircase."""
    entries = [words[e // 8] >> np.uint32(4 * (e % 8)) & 15 for e in range(EXCESSES)]
    return np.stack(entries).astype(int)


def test_staircases_are_those_of_all_plans(grids):
    stairs = _entries(_words(grids, np.ones(COUNT, bool), widths_for()))
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


def test_only_wanted_pairs_have_staircases_whatever_the_width(grids):
    everyone = _words(grids, np.ones(COUNT, bool), widths_for())
    wanted = np.arange(COUNT) % 3 == 1
    for joint_boards in (7, 64):
        some = _words(grids, wanted, Widths(1, 1, joint_boards, 1 << 30))
        assert (some == np.where(wanted, everyone, 0)).all()
    assert everyone[:, ~wanted].any()
    assert everyone[:, wanted].any()


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


@pytest.mark.slow
def test_trees_give_the_same_answers_after_less_work():
    batch = instances(random_grids(5, 600, (5,), (3,), holes=0.6), 5, 3)
    boards = prepare_boards(batch, widths_for())
    connected = jnp.all(boards.alone < NEVER, axis=0)
    alone = jnp.where(connected, boards.alone, 0)
    count = connected.shape[0]
    total = jnp.arange(count) % 4 > 0
    first = jnp.where(total, jnp.sum(alone, axis=0), jnp.max(alone, axis=0)).astype(jnp.int16)
    queries = TreeQueries(
        *boards[:3],
        alone=alone,
        stairs=staircases_of_all_pairs(batch, boards),
        pair_costs=jnp.zeros((3, count), jnp.int16),
        total=total,
        waits=jnp.arange(count) % 5 > 0,
        first=first,
        last=first + jnp.int16(6),
        budget=jnp.full(count, 4000),
        wanted=connected,
    )
    search = jax.jit(partial(search_trees, horizon=24, lanes=64))
    ours = search(queries)
    without = search(queries._replace(stairs=jnp.zeros_like(queries.stairs)))
    known = connected & ~ours.gave_up & ~without.gave_up
    assert jnp.sum(known & ours.found) > 300
    assert jnp.sum(known & ~ours.found) > 10
    assert (ours.found == without.found)[known].all()
    assert (ours.bound == without.bound)[known & ours.found].all()
    assert jnp.sum(ours.gave_up) <= jnp.sum(without.gave_up)
    assert jnp.sum(ours.expansions[known]) < 0.7 * jnp.sum(without.expansions[known])
