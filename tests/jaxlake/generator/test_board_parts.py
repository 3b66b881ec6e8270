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


def _compute_part(grid, num_parts):
    """Compute the part of a board from its definition."""
    board = oracles.parse_board(grid)
    pairs = list(zip(board.starts, board.goals, strict=True))
    hash_value = 0
    for agent, (start, goal) in enumerate(pairs[1:], start=1):
        word = start[0] + (start[1] << 8) + (goal[0] << 16) + (goal[1] << 24)
        word = (word + agent * 0x9E3779B9) % 2**32
        word = (word ^ word >> 16) * 0x85EBCA6B % 2**32
        word = (word ^ word >> 13) * 0xC2B2AE35 % 2**32
        hash_value ^= word ^ word >> 16
    occupied_cells = {cell for pair in pairs[1:] for cell in pair}
    size = len(grid)
    cells = [
        (row, column)
        for row, column in itertools.product(range(size), repeat=2)
        if grid[row].split()[column] != "H" and (row, column) not in occupied_cells
    ]
    start, goal = pairs[0]
    placement = cells.index(start) * (len(cells) - 1)
    placement += [cell for cell in cells if cell != start].index(goal)
    return (placement + hash_value) % num_parts


@pytest.mark.parametrize("num_parts", [1, 2, 7, 64, 65536])
def test_board_part_matches_its_definition(num_parts):
    rng = random.Random(num_parts)
    grids = [
        oracles.random_grid(rng, rng.choice([3, 5, 8]), rng.uniform(0, 0.4), rng.choice([2, 3]))
        for _ in range(100)
    ]
    expected = [_compute_part(grid, num_parts) for grid in grids]
    assert part_of(make_instances(grids, 8, 3), num_parts).tolist() == expected
    assert part_of(make_instances(grids, 11, 5), num_parts).tolist() == expected


@partial(jax.jit, static_argnums=(3, 4, 5, 6))
def _draw_into_part(size, num_holes, num_agents, part, max_size, max_agents, count):
    numbers = jnp.arange(count, dtype=jnp.int32)
    sizes, holes, agents = (jnp.full(count, n, jnp.int32) for n in (size, num_holes, num_agents))
    keys = jnp.broadcast_to(jax.random.key(3), count)
    shapes = {"max_size": max_size, "max_agents": max_agents}
    codes = draw_codes(keys, numbers, sizes, holes, agents, **shapes)
    new_codes, in_part = draw_into_part(keys, numbers, codes, sizes, agents, part, **shapes)
    return (*(decode_boards(c, sizes, agents, **shapes) for c in (codes, new_codes)), in_part)


@pytest.mark.parametrize("kind", [(10, 30, 2), (10, 0, 5), (7, 12, 3), (3, 1, 3)])
@pytest.mark.parametrize("part", [(0, 2), (5, 6)])
def test_candidates_move_into_the_part_by_agent_0(kind, part):
    old_boards, new_boards, in_part = jax.device_get(_draw_into_part(*kind, part, 10, 5, 512))
    size, _, num_agents = kind
    assert in_part.all()
    assert (part_of(new_boards, part[1]) == part[0]).all()
    assert len(set(part_of(old_boards, part[1]).tolist())) == part[1]
    assert (new_boards.holes == old_boards.holes).all()
    assert (new_boards.starts[:, 1:] == old_boards.starts[:, 1:]).all()
    assert (new_boards.goals[:, 1:] == old_boards.goals[:, 1:]).all()
    for row in range(512):
        starts, goals = new_boards.starts[row, :num_agents], new_boards.goals[row, :num_agents]
        endpoints = [tuple(cell) for cell in [*starts, *goals]]
        assert len(set(endpoints)) == 2 * num_agents
        assert max(map(max, endpoints)) < size
        assert not any(new_boards.holes[row][cell] for cell in endpoints)


def test_candidates_without_a_placement_are_flagged():
    """On a full 2x2 board agent 0 has two placements, so most of 7 parts have none."""
    boards, new_boards, in_part = jax.device_get(_draw_into_part(2, 0, 2, (4, 7), 2, 2, 2048))
    starts, goals = (
        np.concatenate([agent_0[:, :1], other_agents[:, 1:]], axis=1)
        for agent_0, other_agents in ((boards.goals, boards.starts), (boards.starts, boards.goals))
    )
    swapped_boards = replace(boards, starts=starts, goals=goals)
    placement_mask = (part_of(boards, 7) == 4) | (part_of(swapped_boards, 7) == 4)
    assert 0 < placement_mask.sum() < 2048
    assert (in_part == placement_mask).all()
    assert (part_of(select_rows(new_boards, in_part), 7) == 4).all()


# The chi-square limit has p = 1e-5.
def test_boards_of_a_part_are_equally_frequent():
    """3x3 without holes, two agents: 3,024 boards in two parts."""
    _, boards, in_part = jax.device_get(_draw_into_part(3, 0, 2, (1, 2), 3, 2, 1 << 16))
    assert in_part.all()
    endpoints = np.concatenate([boards.starts, boards.goals], axis=1).astype(int)
    cells = 3 * endpoints[..., 0] + endpoints[..., 1]
    placements, counts = np.unique(cells, axis=0, return_counts=True)
    # Each part has 21 of the 42 placements of agent 0.
    assert len(placements) == 9 * 8 * 21
    expected = len(cells) / len(placements)
    assert ((counts - expected) ** 2 / expected).sum() < 1762.0


@pytest.mark.slow
def test_parts_of_a_small_kind_partition_its_boards():
    """Agent 0 has two placements on a full 2x2 board, so one of three parts has none."""
    all_grids = {
        tuple(" ".join(cells[i : i + 2]) for i in (0, 2))
        for cells in itertools.permutations("SsGg")
    }
    solvable_grids = {grid for grid in all_grids if oracles.least_sum_of_costs(list(grid))}
    generated_grids = []
    for index in range(3):
        options = {"max_size": 2, "horizon": 16, "max_candidates": 2048, "part": (index, 3)}
        lakes = jax.device_get(generate(jax.random.key(0), lake_params(2, 0.0), 24, **options))
        rows = np.flatnonzero(lakes.filled)
        grids = [tuple(format_grid(select_rows(lakes.instances, row))) for row in rows]
        assert {_compute_part(grid, 3) for grid in grids} == {index}
        assert int(lakes.candidates[0]) <= 2048
        generated_grids += grids
    assert len(generated_grids) == len(set(generated_grids))
    assert set(generated_grids) == solvable_grids


@pytest.mark.parametrize("part", [(0, 0), (2, 2), (-1, 2), (0, 65537)])
def test_part_out_of_range_is_rejected(part):
    with pytest.raises(ValueError, match=f"part must be .*, got {part[0]} of {part[1]}"):
        generate(jax.random.key(0), lake_params(3), 4, part=part)
