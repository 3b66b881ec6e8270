"""Proofs of unsolvability against a search over all simultaneous joint moves."""

import random
from functools import partial
from itertools import combinations, product

import jax
import numpy as np
import pytest

import jaxlake
from jaxlake.solver.crowd import proved_unsolvable
from tests import oracles

COUNT, SIZE, SLOTS = 220, 5, 5
_prove = partial(jax.jit, static_argnames="capacity")(proved_unsolvable)


def _proved(grids: list[list[str]], capacity: int = 1 << 18, **wanted: np.ndarray) -> np.ndarray:
    """In batches of one shape, filled up with boards that are not wanted."""
    parts = []
    for start in range(0, len(grids), COUNT):
        part = grids[start : start + COUNT]
        boards = jaxlake.stack_instances(
            [
                jaxlake.parse_grid(grid, max_size=SIZE, max_agents=SLOTS)
                for grid in part + part[:1] * (COUNT - len(part))
            ]
        )
        asked = wanted.get("wanted", np.arange(COUNT) < len(part))
        answers = _prove(
            ~boards.holes, boards.starts, boards.goals, boards.agent_mask, asked, capacity=capacity
        )
        parts.append(np.asarray(answers)[: len(part)])
    return np.concatenate(parts)


def _solvable(grid: list[str]) -> bool:
    """Breadth-first search over joint cells, all agents moving at once."""
    board = oracles.read(grid)
    steps = {cell: [cell, *oracles.neighbours(board, cell)] for cell in board.free}
    seen = {board.starts}
    frontier = [board.starts]
    while frontier:
        if board.goals in seen:
            return True
        following = []
        for here in frontier:
            for there in product(*(steps[cell] for cell in here)):
                if there in seen or len(set(there)) < len(there):
                    continue
                pairs = combinations(range(len(here)), 2)
                if any(there[i] == here[j] and there[j] == here[i] for i, j in pairs):
                    continue
                seen.add(there)
                following.append(there)
        frontier = following
    return False


def _tight_grids(seed: int, count: int, agents: tuple[int, ...]) -> list[list[str]]:
    """Boards with few more free cells than starts and goals, all in one component."""
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


def _square_with_corridor(order: str) -> list[str]:
    """Four agents fill a 2 x 2 square; their goals lie in the corridor in the order given."""
    first, second, third, fourth = order
    return [
        "S s H H H",
        "A B H H H",
        f"{first} H H H H",
        f"{second} H H H H",
        f"{third} {fourth} H H H",
    ]


def test_tight_boards_are_proved_unsolvable_exactly_where_no_joint_plan_exists():
    grids = _tight_grids(0, 200, (2, 3, 3, 4)) + _tight_grids(1, 2, (5,))
    unsolvable = np.array([not _solvable(grid) for grid in grids])
    assert (_proved(grids) == unsolvable).all()
    by_agents = {
        len(oracles.read(grid).starts)
        for grid, proof in zip(grids, unsolvable, strict=True)
        if proof
    }
    assert by_agents >= {2, 3, 4}
    assert not unsolvable.all()


def test_a_full_square_turns_although_no_single_agent_of_it_could_lead():
    grids = [_square_with_corridor(order) for order in ("abgG", "Gabg", "gabG", "agGb", "bagG")]
    unsolvable = np.array([not _solvable(grid) for grid in grids])
    assert (_proved(grids) == unsolvable).all()
    # Agent A is alone beside the corridor. Another agent has its goal at the far end in some
    # solvable board, which it can't reach first unless the square turns.
    far_ends = {grid[4][2] for grid, proof in zip(grids, unsolvable, strict=True) if not proof}
    assert far_ends - {"a"}


def test_components_are_independent_and_large_ones_are_looked_at_whole():
    rng = random.Random(2)
    grids = [
        oracles.random_grid(rng, n, rng.uniform(0.2, 0.6), k, together=rng.random() < 0.6)
        for n, k in [(4, 2), (4, 3), (4, 4), (5, 3), (5, 4), (5, 5)] * 110
        if 2 * k <= n * n
    ]
    unsolvable = np.array([not oracles.solvable(grid) for grid in grids])
    assert (_proved(grids) == unsolvable).all()
    connected = np.array([oracles.sum_of_distances(grid) is not None for grid in grids])
    assert (unsolvable & connected).sum() > 10
    assert (~unsolvable).any()


def test_little_room_proves_less_but_never_anything_wrong():
    grids = _tight_grids(3, COUNT, (3, 4))
    full, little = _proved(grids), _proved(grids, capacity=60)
    assert (full | ~little).all()
    assert little.sum() < full.sum()
    # Pairs and triples of agents still fit where the whole does not.
    assert little.any()


def test_boards_that_are_not_wanted_are_not_proved_anything():
    grids = _tight_grids(4, COUNT, (3, 4))
    full = _proved(grids)
    wanted = np.arange(COUNT) % 2 == 0
    assert (_proved(grids, wanted=wanted) == (full & wanted)).all()
    assert full[~wanted].any()


def test_a_capacity_out_of_range_is_named():
    nothing = np.zeros((1, 2, 2), np.int8)
    with pytest.raises(ValueError, match="capacity: got 0"):
        proved_unsolvable(
            np.ones((1, 2, 2), bool),
            nothing,
            nothing,
            np.ones((1, 2), bool),
            np.ones(1, bool),
            capacity=0,
        )
