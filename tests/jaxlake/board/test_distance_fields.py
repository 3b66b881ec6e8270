"""Distances to a goal against breadth-first search."""

import random

import jax
import numpy as np

import jaxlake
from benchmarks import oracles


def test_distances_match_breadth_first_search():
    rng = random.Random(10)
    grids = [oracles.random_grid(rng, 2 + i % 9, rng.uniform(0, 0.5)) for i in range(60)]
    boards = jaxlake.stack_instances([jaxlake.parse_grid(grid) for grid in grids])
    fields = jax.jit(jax.vmap(jaxlake.distances))(boards.holes, boards.goals[:, 0])
    assert fields.dtype == np.int16
    for grid, field in zip(grids, np.asarray(fields), strict=True):
        board = oracles.parse_board(grid)
        expected = np.full((10, 10), jaxlake.UNREACHABLE)
        for (r, c), steps in oracles.distances_to(board, board.goals[0]).items():
            expected[r, c] = steps
        assert (field == expected).all()
