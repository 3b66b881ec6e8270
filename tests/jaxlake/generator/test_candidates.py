"""Candidates: exact counts, uniform positions, and independence of other candidates."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlake.generator.candidates import code_length, decode_boards, draw_codes

COUNT = 4096


def _draw_kinds(
    sizes, holes, agents, *, max_size=10, max_agents=5, seed=0, first_number=0, count=COUNT
):
    """Draw `count` boards of each kind, with kinds alternating along the batch."""
    kinds = np.broadcast_arrays(sizes, holes, agents)
    sizes, holes, agents = (np.tile(np.ravel(kind), count).astype(np.int32) for kind in kinds)
    numbers = first_number + np.repeat(np.arange(count), kinds[0].size)
    keys = jnp.broadcast_to(jax.random.key(seed), numbers.shape)
    return _draw_boards(keys, numbers.astype(np.int32), sizes, holes, agents, max_size, max_agents)


def _draw_boards(keys, numbers, sizes, holes, agents, max_size, max_agents):
    codes = _draw_codes(keys, numbers, sizes, holes, agents, max_size, max_agents)
    assert codes.shape == (len(sizes), code_length(max_size, max_agents))
    boards = decode_boards(codes, sizes, agents, max_size=max_size, max_agents=max_agents)
    return np.asarray(codes), jax.tree.map(np.asarray, boards)


@partial(jax.jit, static_argnums=(5, 6))
def _draw_codes(keys, numbers, sizes, holes, agents, max_size, max_agents):
    return draw_codes(keys, numbers, sizes, holes, agents, max_size=max_size, max_agents=max_agents)


def _chi_square(counts, probability):
    expected = counts.sum() * probability
    return ((counts - expected) ** 2 / expected).sum()


KINDS = [(10, 30, 2), (10, 0, 5), (10, 50, 3), (10, 80, 4), (7, 12, 5), (2, 0, 2), (3, 3, 3)]


@pytest.mark.parametrize(("max_size", "max_agents"), [(10, 5), (32, 5)])
def test_boards_have_exactly_the_holes_and_distinct_free_corners(max_size, max_agents):
    kinds = [*KINDS, *([(32, 512, 5), (32, 100, 2)] if max_size == 32 else [])]
    shape = {"max_size": max_size, "max_agents": max_agents}
    _, boards = _draw_kinds(*np.array(kinds).T, **shape, count=64)
    for row, (size, num_holes, num_agents) in enumerate(kinds * 64):
        board = jax.tree.map(lambda leaf, row=row: leaf[row], boards)
        assert board.holes.dtype == bool
        assert board.starts.dtype == board.goals.dtype == np.int8
        assert board.holes[:size, :size].sum() == num_holes
        assert board.holes.sum() == num_holes + max_size * max_size - size * size
        assert board.agent_mask.tolist() == [agent < num_agents for agent in range(max_agents)]
        endpoints = [*board.starts[:num_agents], *board.goals[:num_agents]]
        endpoints = [tuple(cell) for cell in endpoints]
        assert len(set(endpoints)) == 2 * num_agents
        assert not any(board.holes[cell] for cell in endpoints)
        assert not board.starts[num_agents:].any()
        assert not board.goals[num_agents:].any()


@pytest.mark.slow
def test_candidate_depends_on_key_kind_and_number():
    sizes, holes, agents = np.array(KINDS).T
    _, expected = _draw_kinds(sizes, holes, agents, count=9)
    _, wide_boards = _draw_kinds(sizes, holes, agents, max_size=32, count=9)
    assert (wide_boards.starts == expected.starts).all()
    assert (wide_boards.goals == expected.goals).all()
    assert (wide_boards.holes[:, :10, :10] == expected.holes).all()
    _, late_boards = _draw_kinds(sizes, holes, agents, first_number=5, count=9)
    leaves = map(jax.tree.leaves, (expected, late_boards))
    for leaf, late_leaf in zip(*leaves, strict=True):
        assert (leaf[5 * len(KINDS) :] == late_leaf[: 4 * len(KINDS)]).all()
    codes, _ = _draw_kinds(10, 30, 2, count=63)
    short_codes, _ = _draw_kinds(10, 30, 2, count=63, max_agents=2)
    assert (codes[:, : code_length(10, 2)] == short_codes).all()
    other_codes, _ = _draw_kinds(10, 30, 2, count=63, seed=1)
    assert (codes != other_codes).any(axis=1).all()
    assert len({tuple(code) for code in [*codes.tolist(), *other_codes.tolist()]}) == 126


# The chi-square limits have p = 1e-5.
@pytest.mark.parametrize(("num_holes", "max_chi_square"), [(2, 83.0), (7, 83.0), (1, 38.2)])
def test_hole_sets_are_equally_frequent(num_holes, max_chi_square):
    _, boards = _draw_kinds(3, num_holes, 1, max_size=3, max_agents=2, count=4 * COUNT)
    cells = boards.holes.reshape(-1, 9)
    combinations = itertools.combinations(range(9), num_holes)
    set_numbers = {combination: i for i, combination in enumerate(combinations)}
    counts = np.zeros(len(set_numbers))
    np.add.at(counts, [set_numbers[tuple(np.flatnonzero(row))] for row in cells], 1)
    assert _chi_square(counts, 1 / len(set_numbers)) < max_chi_square


def test_placements_are_equally_frequent():
    _, boards = _draw_kinds(2, 0, 2, max_size=3, max_agents=2, count=4 * COUNT)
    endpoints = np.concatenate([boards.starts, boards.goals], axis=1).astype(int)
    cells = 2 * endpoints[..., 0] + endpoints[..., 1]
    order_numbers = {order: i for i, order in enumerate(itertools.permutations(range(4)))}
    counts = np.zeros(24)
    np.add.at(counts, [order_numbers[tuple(row)] for row in cells], 1)
    assert _chi_square(counts, 1 / 24) < 64.0


def test_large_board_cells_are_equally_frequent():
    _, boards = _draw_kinds(10, 30, 3, max_size=10, max_agents=5, count=4 * COUNT)
    # Cells of one board exclude one another, which can only reduce the sum.
    assert _chi_square(boards.holes.sum(axis=0), 1 / 100) < 180.0
    for endpoints in (boards.starts[:, 0], boards.goals[:, 2]):
        counts = np.zeros((10, 10))
        np.add.at(counts, tuple(endpoints.T.astype(int)), 1)
        assert _chi_square(counts, 1 / 100) < 180.0
