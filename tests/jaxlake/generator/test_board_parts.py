"""Parts partition the boards, and samples from a part are uniform."""

import itertools
import random
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import oracles
from jaxlake import format_grid, lake_params
from jaxlake.generator import generate, part_of
from jaxlake.generator.board_parts import draw_into_part
from jaxlake.generator.candidates import decode_boards, draw_codes
from tests.jaxlake.solver.boards import make_instances, select_rows


def _expected_part(grid, parts):
    """Compute the part of a board from its definition."""
    board = oracles.read(grid)
    pairs = list(zip(board.starts, board.goals, strict=True))
    value = 0
    for agent, (start, goal) in enumerate(pairs[1:], start=1):
        word = start[0] + (start[1] << 8) + (goal[0] << 16) + (goal[1] << 24)
        word = (word + agent * 0x9E3779B9) % 2**32
        word = (word ^ word >> 16) * 0x85EBCA6B % 2**32
        word = (word ^ word >> 13) * 0xC2B2AE35 % 2**32
        value ^= word ^ word >> 16
    occupied = {place for pair in pairs[1:] for place in pair}
    size = len(grid)
    cells = [
        (row, column)
        for row, column in itertools.product(range(size), repeat=2)
        if grid[row].split()[column] != "H" and (row, column) not in occupied
    ]
    start, goal = pairs[0]
    placement = cells.index(start) * (len(cells) - 1)
    placement += [cell for cell in cells if cell != start].index(goal)
    return (placement + value) % parts


@pytest.mark.parametrize("parts", [1, 2, 7, 64, 65536])
def test_board_part_matches_its_definition(parts):
    rng = random.Random(parts)
    grids = [
        oracles.random_grid(rng, rng.choice([3, 5, 8]), rng.uniform(0, 0.4), rng.choice([2, 3]))
        for _ in range(100)
    ]
    expected = [_expected_part(grid, parts) for grid in grids]
    assert part_of(make_instances(grids, 8, 3), parts).tolist() == expected
    assert part_of(make_instances(grids, 11, 5), parts).tolist() == expected


@partial(jax.jit, static_argnums=(3, 4, 5, 6))
def _draw_into_part(size, holes, agents, part, N, K, count):
    numbers = jnp.arange(count, dtype=jnp.int32)
    size, holes, agents = (jnp.full(count, x, jnp.int32) for x in (size, holes, agents))
    keys = jnp.broadcast_to(jax.random.key(3), count)
    shapes = {"max_size": N, "max_agents": K}
    codes = draw_codes(keys, numbers, size, holes, agents, **shapes)
    moved, in_part = draw_into_part(keys, numbers, codes, size, agents, part, **shapes)
    return (*(decode_boards(x, size, agents, **shapes) for x in (codes, moved)), in_part)


@pytest.mark.parametrize(("n", "h", "k"), [(10, 30, 2), (10, 0, 5), (7, 12, 3), (3, 1, 3)])
@pytest.mark.parametrize("part", [(0, 2), (5, 6)])
def test_candidates_move_into_the_part_by_agent_0(n, h, k, part):
    before, after, in_part = jax.device_get(_draw_into_part(n, h, k, part, 10, 5, 512))
    assert in_part.all()
    assert (part_of(after, part[1]) == part[0]).all()
    assert len(set(part_of(before, part[1]).tolist())) == part[1]
    assert (after.holes == before.holes).all()
    assert (after.starts[:, 1:] == before.starts[:, 1:]).all()
    assert (after.goals[:, 1:] == before.goals[:, 1:]).all()
    for row in range(512):
        corners = [tuple(cell) for cell in [*after.starts[row, :k], *after.goals[row, :k]]]
        assert len(set(corners)) == 2 * k
        assert max(max(corner) for corner in corners) < n
        assert not any(after.holes[row][corner] for corner in corners)


def test_candidates_without_a_placement_are_flagged():
    """On a full 2x2 board agent 0 has two placements, so most of 7 parts have none."""
    before, after, in_part = jax.device_get(_draw_into_part(2, 0, 2, (4, 7), 2, 2, 2048))
    starts, goals = (
        np.concatenate([agent_0[:, :1], other_agents[:, 1:]], axis=1)
        for agent_0, other_agents in ((before.goals, before.starts), (before.starts, before.goals))
    )
    swapped = replace(before, starts=starts, goals=goals)
    has_placement = (part_of(before, 7) == 4) | (part_of(swapped, 7) == 4)
    assert 0 < has_placement.sum() < 2048
    assert (in_part == has_placement).all()
    assert (part_of(select_rows(after, in_part), 7) == 4).all()


# The chi-square limit has p = 1e-5.
def test_boards_of_a_part_are_equally_frequent():
    """3x3 without holes, two agents: 3,024 boards in two parts."""
    _, boards, in_part = jax.device_get(_draw_into_part(3, 0, 2, (1, 2), 3, 2, 1 << 16))
    assert in_part.all()
    corners = np.concatenate([boards.starts, boards.goals], axis=1).astype(int)
    cells = 3 * corners[..., 0] + corners[..., 1]
    kinds, counts = np.unique(cells, axis=0, return_counts=True)
    # Each part has 21 of the 42 placements of agent 0.
    assert len(kinds) == 9 * 8 * 21
    expected = len(cells) / len(kinds)
    assert ((counts - expected) ** 2 / expected).sum() < 1762.0


@pytest.mark.slow
def test_parts_of_a_small_kind_partition_its_boards():
    """Agent 0 has two placements on a full 2x2 board, so one of three parts has none."""
    all_grids = {
        tuple(" ".join(cells[i : i + 2]) for i in (0, 2))
        for cells in itertools.permutations("SsGg")
    }
    solvable = {grid for grid in all_grids if oracles.least_sum_of_costs(list(grid)) is not None}
    generated = []
    for index in range(3):
        options = {"max_size": 2, "horizon": 16, "max_candidates": 2048, "part": (index, 3)}
        boards = jax.device_get(generate(jax.random.key(0), lake_params(2, 0.0), 24, **options))
        rows = np.flatnonzero(boards.filled)
        grids = [tuple(format_grid(select_rows(boards.instances, row))) for row in rows]
        assert {_expected_part(grid, 3) for grid in grids} == {index}
        assert int(boards.candidates[0]) <= 2048
        generated += grids
    assert len(generated) == len(set(generated))
    assert set(generated) == solvable


@pytest.mark.parametrize("part", [(0, 0), (2, 2), (-1, 2), (0, 65537)])
def test_part_out_of_range_is_rejected(part):
    with pytest.raises(ValueError, match=f"part must be .*, got {part[0]} of {part[1]}"):
        generate(jax.random.key(0), lake_params(3), 4, part=part)
