"""Digests tell boards apart, and the set of them is a set."""

import random

import numpy as np

from benchmarks.oracles import random_grid
from jaxlake.generator.board_digests import DigestSet, board_digests
from tests.jaxlake.solver.boards import instances


def test_digests_are_equal_exactly_where_boards_are_whatever_the_padding():
    rng = random.Random(0)
    # Small boards, so that some come twice.
    grids = [tuple(random_grid(rng, rng.choice([2, 3]), 0.2, 2)) for _ in range(400)]
    digests = board_digests(instances(grids, 6, 3)).tolist()
    assert len(set(grids)) == len(set(digests)) < len(grids)
    assert len(set(zip(grids, digests, strict=True))) == len(set(digests))
    assert board_digests(instances(grids, 3, 2)).tolist() == digests


def test_a_digest_set_holds_what_was_added_and_nothing_else():
    rng = np.random.default_rng(1)
    values = np.unique(rng.integers(0, 256, (3000, 16), np.uint8).view("S16").reshape(-1))
    values = rng.permutation(np.concatenate([values, np.array([b"", b"\x01"], "S16")]))
    inside, outside = values[:2000], values[2000:]
    digests = DigestSet()
    assert not digests.contains(values).any()
    sizes = []
    for part in np.split(inside, np.cumsum(rng.integers(0, 40, 80))):
        digests.add(part)
        sizes.append(len(digests._runs))
    assert len(digests) == 2000
    assert digests.contains(inside).all()
    assert not digests.contains(outside).any()
    assert max(sizes) <= 12
