"""Proofs of unsolvability against a search over all simultaneous joint moves."""

import random
from functools import partial

import jax
import numpy as np
import pytest

from benchmarks import oracles
from jaxlake.solver.permutations import prove_unsolvable
from tests.jaxlake.solver.boards import filled_boards, instances

COUNT, SIZE, SLOTS = 220, 5, 5
_prove = partial(jax.jit, static_argnames="boards_at_once")(prove_unsolvable)


def _prove_in_batches(
    grids: list[list[str]], active: np.ndarray | None = None, boards_at_once: int = 1
) -> np.ndarray:
    """Return the proofs, bool (B,), from batches of one shape padded with inactive boards."""
    parts = []
    for start in range(0, len(grids), COUNT):
        part = grids[start : start + COUNT]
        boards = instances(part + part[:1] * (COUNT - len(part)), SIZE, SLOTS)
        in_part = np.arange(COUNT) < len(part) if active is None else active
        arguments = ~boards.holes, boards.starts, boards.goals, boards.agent_mask, in_part
        parts.append(np.asarray(_prove(*arguments, boards_at_once=boards_at_once))[: len(part)])
    return np.concatenate(parts)


def _are_unsolvable(grids: list[list[str]]) -> np.ndarray:
    return np.array([oracles.least_makespan(grid) is None for grid in grids])


def _tight_grids(seed: int, count: int, agents: tuple[int, ...]) -> list[list[str]]:
    """Return boards with few spare free cells, all in one component."""
    rng = random.Random(seed)
    grids: list[list[str]] = []
    while len(grids) < count:
        k, n = rng.choice(agents), rng.choice((3, 4, 5))
        cells = 2 * k + rng.randint(0, 5 if k < 4 else 1)
        if cells > n * n:
            continue
        grid = oracles.random_grid(rng, n, 1 - cells / n**2, k)
        board = oracles.read(grid)
        if len(oracles.distances_to(board, board.starts[0])) == len(board.free):
            grids.append(grid)
    return grids


@pytest.mark.slow
def test_tight_boards_are_unsolvable_iff_no_plan_exists():
    grids = _tight_grids(0, 200, (2, 3, 3, 4)) + _tight_grids(1, 2, (5,))
    unsolvable = _are_unsolvable(grids)
    assert (_prove_in_batches(grids) == unsolvable).all()
    agents = np.array([len(oracles.read(grid).starts) for grid in grids])
    assert set(agents[unsolvable]) >= {2, 3, 4}
    assert not unsolvable.all()


def test_full_square_can_rotate():
    """Four agents fill a square; their goals are in the corridor below, in various orders."""
    grids = [
        ["S s H H H", "A B H H H", f"{a} H H H H", f"{b} H H H H", f"{c} {d} H H H"]
        for a, b, c, d in ("abgG", "Gabg", "gabG", "agGb", "bagG")
    ]
    unsolvable = _are_unsolvable(grids)
    assert (_prove_in_batches(grids) == unsolvable).all()
    # Agent A is next to the corridor. On some solvable board, another agent has its goal at the far
    # end; it can only arrive first if the square rotates.
    far_ends = {grid[4][2] for grid, proof in zip(grids, unsolvable, strict=True) if not proof}
    assert far_ends - {"a"}


def test_components_are_independent():
    rng = random.Random(2)
    grids = [
        oracles.random_grid(rng, n, rng.uniform(0.2, 0.6), k, together=rng.random() < 0.6)
        for n, k in [(4, 2), (4, 3), (4, 4), (5, 3), (5, 4), (5, 5)] * 110
    ] + filled_boards(3, 4, 5)
    unsolvable = np.array([not oracles.solvable(grid) for grid in grids])
    assert (_prove_in_batches(grids) == unsolvable).all()
    connected = np.array([oracles.sum_of_distances(grid) is not None for grid in grids])
    assert (unsolvable & connected).sum() > 10
    assert (~unsolvable).any()


@pytest.mark.parametrize("boards_at_once", [1, pytest.param(7, marks=pytest.mark.slow)])
def test_shared_permutation_search_gives_equal_proofs(boards_at_once):
    """Boards with equal free cells but different agents share a search."""
    rng = random.Random(5)
    free_cells = {
        3: ["FFFFFFFFF", "FFFFHFFFF", "FHFFHFFFF", "FFFHFHFFF"],
        4: ["FFFFFHHFFHHFFFFF", "FFFFHHHFFFFFFHHH", "FHHHFHHHFFFFFHHH"],
    }
    for N, patterns in free_cells.items():
        grids = []
        for _ in range(200):
            cells = list(rng.choice(patterns))
            k = rng.choice((2, 3))
            corners = rng.sample([i for i, cell in enumerate(cells) if cell == "F"], 2 * k)
            for corner, letter in zip(corners, ("SsA"[:k] + "Gga"[:k]), strict=True):
                cells[corner] = letter
            grids.append([" ".join(cells[N * row : N * row + N]) for row in range(N)])
        unsolvable = np.array([not oracles.solvable(grid) for grid in grids])
        boards = instances(grids, N, SLOTS)
        arguments = ~boards.holes, boards.starts, boards.goals, boards.agent_mask
        proofs = np.asarray(
            _prove(*arguments, np.ones(len(grids), bool), boards_at_once=boards_at_once)
        )
        assert (proofs == unsolvable).all()
        assert 20 < unsolvable.sum() < len(grids) - 20, N
