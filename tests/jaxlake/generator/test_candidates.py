"""Candidates: exact counts, uniform positions, and independence of other candidates."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlake.generator.candidates import code_length, decode_boards, draw_codes

BATCH = 4096


def _draw_kinds(size, holes, agents, *, N=10, K=5, seed=0, first=0, count=BATCH):
    """Draw `count` boards of each kind, with kinds alternating along the batch."""
    kinds = np.broadcast_arrays(size, holes, agents)
    size, holes, agents = (np.tile(np.ravel(kind), count).astype(np.int32) for kind in kinds)
    numbers = first + np.repeat(np.arange(count), kinds[0].size)
    keys = jnp.broadcast_to(jax.random.key(seed), numbers.shape)
    return _draw_boards(keys, numbers.astype(np.int32), size, holes, agents, N, K)


def _draw_boards(keys, numbers, size, holes, agents, N, K):
    codes = _draw_codes(keys, numbers, size, holes, agents, N, K)
    assert codes.shape == (len(size), code_length(N, K))
    boards = decode_boards(codes, size, agents, max_size=N, max_agents=K)
    return np.asarray(codes), jax.tree.map(np.asarray, boards)


@partial(jax.jit, static_argnums=(5, 6))
def _draw_codes(keys, numbers, size, holes, agents, N, K):
    return draw_codes(keys, numbers, size, holes, agents, max_size=N, max_agents=K)


def _chi_square(counts, probability):
    expected = counts.sum() * probability
    return ((counts - expected) ** 2 / expected).sum()


KINDS = [(10, 30, 2), (10, 0, 5), (10, 50, 3), (10, 80, 4), (7, 12, 5), (2, 0, 2), (3, 3, 3)]


@pytest.mark.parametrize(("N", "K"), [(10, 5), (32, 5)])
def test_boards_have_exactly_the_holes_and_distinct_free_corners(N, K):
    size, holes, agents = np.array([*KINDS, *([(32, 512, 5), (32, 100, 2)] if N == 32 else [])]).T
    count = 64
    _, boards = _draw_kinds(size, holes, agents, N=N, K=K, count=count)
    for row, (n, h, k) in enumerate(
        zip(*(np.tile(kind, count) for kind in (size, holes, agents)), strict=True)
    ):
        board = jax.tree.map(lambda leaf, row=row: leaf[row], boards)
        assert board.holes.dtype == bool
        assert board.starts.dtype == board.goals.dtype == np.int8
        assert board.holes[:n, :n].sum() == h
        assert board.holes.sum() == h + N * N - n * n
        assert board.agent_mask.tolist() == [agent < k for agent in range(K)]
        corners = [tuple(cell) for cell in [*board.starts[:k], *board.goals[:k]]]
        assert len(set(corners)) == 2 * k
        assert not any(board.holes[cell] for cell in corners)
        assert not board.starts[k:].any()
        assert not board.goals[k:].any()


@pytest.mark.slow
def test_candidate_depends_on_key_kind_and_number():
    size, holes, agents = np.array(KINDS).T
    _, reference = _draw_kinds(size, holes, agents, count=9)
    _, wider = _draw_kinds(size, holes, agents, N=32, count=9)
    assert (wider.starts == reference.starts).all()
    assert (wider.goals == reference.goals).all()
    assert (wider.holes[:, :10, :10] == reference.holes).all()
    _, late = _draw_kinds(size, holes, agents, first=5, count=9)
    for expected, actual in zip(jax.tree.leaves(reference), jax.tree.leaves(late), strict=True):
        assert (expected[5 * len(KINDS) :] == actual[: 4 * len(KINDS)]).all()
    codes, _ = _draw_kinds(10, 30, 2, count=63)
    fewer, _ = _draw_kinds(10, 30, 2, count=63, K=2)
    assert (codes[:, : code_length(10, 2)] == fewer).all()
    other_seed, _ = _draw_kinds(10, 30, 2, count=63, seed=1)
    assert (codes != other_seed).any(axis=1).all()
    assert len({tuple(code) for code in [*codes.tolist(), *other_seed.tolist()]}) == 126


# The chi-square limits have p = 1e-5.
@pytest.mark.parametrize(("holes", "limit"), [(2, 83.0), (7, 83.0), (1, 38.2)])
def test_hole_sets_are_equally_frequent(holes, limit):
    _, boards = _draw_kinds(3, holes, 1, N=3, K=2, count=4 * BATCH)
    cells = boards.holes.reshape(-1, 9)
    sets = {combination: i for i, combination in enumerate(itertools.combinations(range(9), holes))}
    counts = np.zeros(len(sets))
    np.add.at(counts, [sets[tuple(np.flatnonzero(row))] for row in cells], 1)
    assert _chi_square(counts, 1 / len(sets)) < limit


def test_placements_are_equally_frequent():
    _, boards = _draw_kinds(2, 0, 2, N=3, K=2, count=4 * BATCH)
    corners = np.concatenate([boards.starts, boards.goals], axis=1).astype(int)
    cells = 2 * corners[..., 0] + corners[..., 1]
    orders = {order: i for i, order in enumerate(itertools.permutations(range(4)))}
    counts = np.zeros(24)
    np.add.at(counts, [orders[tuple(row)] for row in cells], 1)
    assert _chi_square(counts, 1 / 24) < 64.0


def test_large_board_cells_are_equally_frequent():
    _, boards = _draw_kinds(10, 30, 3, N=10, K=5, count=4 * BATCH)
    # Cells of one board exclude one another, which can only reduce the sum.
    assert _chi_square(boards.holes.sum(axis=0), 1 / 100) < 180.0
    for corners in (boards.starts[:, 0], boards.goals[:, 2]):
        counts = np.zeros((10, 10))
        np.add.at(counts, tuple(corners.T.astype(int)), 1)
        assert _chi_square(counts, 1 / 100) < 180.0
