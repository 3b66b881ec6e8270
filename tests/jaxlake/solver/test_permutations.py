"""Proofs of unsolvability against a search over all simultaneous joint moves."""

import random
from functools import partial

import jax
import numpy as np
import pytest

from benchmarks import oracles
from jaxlake.solver.permutations import prove_unsolvable
from tests.jaxlake.solver.boards import make_filled_boards, make_instances

BATCH_SIZE, MAX_SIZE, MAX_AGENTS = 220, 5, 5
_prove = partial(jax.jit, static_argnames="boards_at_once")(prove_unsolvable)


def _prove_in_batches(
    grids: list[list[str]], active_mask: np.ndarray | None = None, boards_at_once: int = 1
) -> np.ndarray:
    """Return the proofs, bool (B,), from batches of one shape padded with inactive boards."""
    parts = []
    for start in range(0, len(grids), BATCH_SIZE):
        part = grids[start : start + BATCH_SIZE]
        boards = make_instances(part + part[:1] * (BATCH_SIZE - len(part)), MAX_SIZE, MAX_AGENTS)
        part_mask = np.arange(BATCH_SIZE) < len(part) if active_mask is None else active_mask
        arguments = ~boards.holes, boards.starts, boards.goals, boards.agent_mask, part_mask
        parts.append(np.asarray(_prove(*arguments, boards_at_once=boards_at_once))[: len(part)])
    return np.concatenate(parts)


def _find_unsolvable(grids: list[list[str]]) -> np.ndarray:
    return np.array([oracles.least_makespan(grid) is None for grid in grids])


def _draw_tight_grids(seed: int, count: int, agent_counts: tuple[int, ...]) -> list[list[str]]:
    """Return boards with few spare free cells, all in one component."""
    rng = random.Random(seed)
    grids: list[list[str]] = []
    while len(grids) < count:
        num_agents, size = rng.choice(agent_counts), rng.choice((3, 4, 5))
        num_free = 2 * num_agents + rng.randint(0, 5 if num_agents < 4 else 1)
        if num_free > size * size:
            continue
        grid = oracles.random_grid(rng, size, 1 - num_free / size**2, num_agents)
        board = oracles.parse_board(grid)
        if len(oracles.distances_to(board, board.starts[0])) == len(board.free):
            grids.append(grid)
    return grids


@pytest.mark.slow
def test_tight_boards_are_unsolvable_iff_no_plan_exists():
    grids = _draw_tight_grids(0, 200, (2, 3, 3, 4)) + _draw_tight_grids(1, 2, (5,))
    unsolvable_mask = _find_unsolvable(grids)
    assert (_prove_in_batches(grids) == unsolvable_mask).all()
    num_agents = np.array([len(oracles.parse_board(grid).starts) for grid in grids])
    assert set(num_agents[unsolvable_mask]) >= {2, 3, 4}
    assert not unsolvable_mask.all()


def test_full_square_can_rotate():
    """Four agents fill a square; their goals are in the corridor below, in various orders."""
    grids = [
        ["S s H H H", "A B H H H", f"{a} H H H H", f"{b} H H H H", f"{c} {d} H H H"]
        for a, b, c, d in ("abgG", "Gabg", "gabG", "agGb", "bagG")
    ]
    unsolvable_mask = _find_unsolvable(grids)
    assert (_prove_in_batches(grids) == unsolvable_mask).all()
    # Agent A is next to the corridor. On some solvable board, another agent has its goal at the far
    # end; it can only arrive first if the square rotates.
    far_ends = {
        grid[4][2] for grid, proven in zip(grids, unsolvable_mask, strict=True) if not proven
    }
    assert far_ends - {"a"}


def test_components_are_independent():
    rng = random.Random(2)
    grids = [
        oracles.random_grid(rng, n, rng.uniform(0.2, 0.6), k, together=rng.random() < 0.6)
        for n, k in [(4, 2), (4, 3), (4, 4), (5, 3), (5, 4), (5, 5)] * 110
    ] + make_filled_boards(3, 4, 5)
    unsolvable_mask = np.array([not oracles.has_plan(grid) for grid in grids])
    assert (_prove_in_batches(grids) == unsolvable_mask).all()
    connected_mask = np.array([oracles.sum_of_distances(grid) is not None for grid in grids])
    assert (unsolvable_mask & connected_mask).sum() > 10
    assert (~unsolvable_mask).any()


@pytest.mark.parametrize("boards_at_once", [1, pytest.param(7, marks=pytest.mark.slow)])
def test_shared_permutation_search_gives_equal_proofs(boards_at_once):
    """Boards with equal free cells but different agents share a search."""
    rng = random.Random(5)
    patterns_by_size = {
        3: ["FFFFFFFFF", "FFFFHFFFF", "FHFFHFFFF", "FFFHFHFFF"],
        4: ["FFFFFHHFFHHFFFFF", "FFFFHHHFFFFFFHHH", "FHHHFHHHFFFFFHHH"],
    }
    for size, patterns in patterns_by_size.items():
        grids = []
        for _ in range(200):
            cells = list(rng.choice(patterns))
            num_agents = rng.choice((2, 3))
            free = [i for i, cell in enumerate(cells) if cell == "F"]
            endpoints = rng.sample(free, 2 * num_agents)
            letters = "SsA"[:num_agents] + "Gga"[:num_agents]
            for endpoint, letter in zip(endpoints, letters, strict=True):
                cells[endpoint] = letter
            grids.append([" ".join(cells[size * row : size * row + size]) for row in range(size)])
        unsolvable_mask = np.array([not oracles.has_plan(grid) for grid in grids])
        boards = make_instances(grids, size, MAX_AGENTS)
        arguments = ~boards.holes, boards.starts, boards.goals, boards.agent_mask
        proofs = np.asarray(
            _prove(*arguments, np.ones(len(grids), bool), boards_at_once=boards_at_once)
        )
        assert (proofs == unsolvable_mask).all()
        assert 20 < unsolvable_mask.sum() < len(grids) - 20, size
