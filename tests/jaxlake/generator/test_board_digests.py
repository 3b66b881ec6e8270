"""Digests distinguish boards."""

import random

from benchmarks.oracles import random_grid
from jaxlake.generator.board_digests import board_digests
from tests.jaxlake.solver.boards import make_instances


def test_digests_are_equal_iff_boards_are():
    rng = random.Random(0)
    # Small boards, so that some repeat.
    grids = [tuple(random_grid(rng, rng.choice([2, 3]), 0.2, 2)) for _ in range(400)]
    digests = board_digests(make_instances(grids, 6, 3)).tolist()
    assert len(set(grids)) == len(set(digests)) < len(grids)
    assert len(set(zip(grids, digests, strict=True))) == len(set(digests))
    assert board_digests(make_instances(grids, 3, 2)).tolist() == digests
