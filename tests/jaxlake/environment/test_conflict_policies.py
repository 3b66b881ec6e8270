"""The three conflict policies against a plain-Python walk."""

import random
from functools import partial

import jax
import numpy as np
import pytest

import jaxlake
from benchmarks import oracles
from jaxlake.environment import ConflictPolicy, resolve
from jaxlake.environment.conflict_policies import (
    first_failure,
    resolve_packed,
    resolve_unpacked,
)
from tests.jaxlake.solver.boards import instances

K = 5
N = 7


@pytest.fixture(scope="module")
def crowds():
    """Crowded boards, all smaller than the padding, with agents anywhere on free cells."""
    rng = random.Random(3)
    grids, places = [], []
    for _ in range(400):
        size = rng.choice([3, 4, 5])
        agents = rng.randint(2, 4 if size == 3 else K)
        grid = oracles.random_grid(rng, size, rng.uniform(0, 0.3), agents)
        grids.append(grid)
        places.append(rng.sample(sorted(oracles.read(grid).free), agents))
    actions = [[rng.randrange(5) for _ in cells] for cells in places]
    boards = instances(grids, N, K)
    padded = np.zeros((len(grids), K, 2), np.int8)
    chosen = np.zeros((len(grids), K), np.int8)
    for i, (cells, joint) in enumerate(zip(places, actions, strict=True)):
        padded[i, : len(cells)] = cells
        chosen[i, : len(joint)] = joint
    return grids, places, actions, boards, padded, chosen


def _resolved(policy, boards, positions, actions):
    return jax.device_get(jax.jit(jax.vmap(partial(resolve, policy)))(boards, positions, actions))


def _held_back(grid: list[str], here: list, actions: list[int], priority: bool) -> set[int]:
    """Agents that stay: first those in the wrong, then those who run into one that stays."""
    free = oracles.read(grid).free
    there = [
        (r + oracles.MOVES[a][0], c + oracles.MOVES[a][1])
        for (r, c), a in zip(here, actions, strict=True)
    ]
    agents = range(len(here))
    stay = {i for i in agents if there[i] not in free}
    for i in agents:
        for j in agents:
            if i < j and there[i] == there[j]:
                stay |= {j} if priority else {i, j}
            if i < j and there[i] == here[j] and there[j] == here[i]:
                stay |= {i, j}
    stay |= {i for i in agents if actions[i] == 0}
    while True:
        blocked = {
            i for i in agents for j in stay if i != j and there[i] == here[j] and i not in stay
        }
        if not blocked:
            return stay
        stay |= blocked


@pytest.mark.parametrize("policy", [ConflictPolicy.BLOCK_BOTH, ConflictPolicy.PRIORITY])
def test_conflict_resolution_matches_a_plain_walk(crowds, policy):
    grids, places, actions, boards, positions, chosen = crowds
    result = _resolved(policy, boards, positions, chosen)
    differs = 0
    for i, grid in enumerate(grids):
        stay = _held_back(grid, places[i], actions[i], policy is ConflictPolicy.PRIORITY)
        expected = [0 if k in stay else a for k, a in enumerate(actions[i])]
        assert result.executed[i][: len(expected)].tolist() == expected, (grid, places[i])
        cells = [tuple(cell) for cell in result.positions[i][: len(expected)].tolist()]
        assert len(set(cells)) == len(cells)
        assert set(cells) <= oracles.read(grid).free
        for k, (r, c) in enumerate(places[i]):
            dr, dc = oracles.MOVES[expected[k]]
            assert cells[k] == (r + dr, c + dc)
        pairs = [(p, q) for p in range(len(cells)) for q in range(p)]
        assert not any(cells[p] == places[i][q] and cells[q] == places[i][p] for p, q in pairs)
        differs += expected != actions[i]
    assert 100 < differs < len(grids)
    assert not result.failed.any()


def test_fail_policy_matches_a_plain_walk(crowds):
    grids, places, actions, boards, positions, chosen = crowds
    result = _resolved(ConflictPolicy.FAIL, boards, positions, chosen)
    kinds, agents = jax.device_get(jax.vmap(first_failure)(result.attempt))
    seen = set()
    for i, grid in enumerate(grids):
        verdict = _check_from(grid, places[i], actions[i])
        seen.add(verdict)
        expected = (None, -1) if verdict is None else verdict
        kind = jaxlake.Failure(int(kinds[i]))
        label = None if kind is jaxlake.Failure.NONE else kind.label
        assert (label, int(agents[i])) == expected, (grid, places[i], actions[i])
        assert bool(result.failed[i]) == (verdict is not None)
    kinds = {"off_board", "hole", "vertex_conflict", "swapping_conflict"}
    assert {verdict[0] for verdict in seen if verdict} == kinds


def _check_from(grid, here, actions):
    """The oracle's verdict on one step from anywhere: the agents' starts are moved to `here`."""
    cells = [row.split(" ") for row in grid]
    letters = [["H" if x == "H" else "F" for x in row] for row in cells]
    for k, (r, c) in enumerate(here):
        letters[r][c] = oracles.STARTS[k]
    spare = [(r, c) for r in range(len(cells)) for c in range(len(cells)) if letters[r][c] == "F"]
    assert len(spare) >= len(here), "the crowd leaves goals without a cell"
    for k, (r, c) in zip(range(len(here)), spare, strict=False):
        letters[r][c] = oracles.GOALS[k]
    verdict = oracles.check([" ".join(row) for row in letters], [actions])
    if verdict.failure in (None, "goal_not_reached"):
        return None
    return verdict.failure, verdict.agent


@pytest.mark.parametrize("agents", [1, 2, 5])
@pytest.mark.parametrize("policy", ConflictPolicy)
def test_gpu_conflict_resolution_is_bit_identical(policy, agents):
    """Also where the axis of agents has gaps, agents share cells, and actions are unknown."""
    B, rng = 4000, np.random.default_rng(agents)
    size = rng.integers(2, N + 1, B)
    outside = np.arange(N) >= size[:, None]
    holes = rng.random((B, N, N)) < 0.2
    cells = rng.integers(0, np.minimum(size, 4)[:, None, None], (3, B, agents, 2), dtype=np.int8)
    boards = jaxlake.Instance(
        holes=holes | outside[:, :, None] | outside[:, None],
        size=size.astype(np.int32),
        starts=cells[0],
        goals=cells[1],
        agent_mask=rng.random((B, agents)) < 0.8,
    )
    actions = rng.integers(-1, 7, (B, agents), dtype=np.int8)
    somewhere = (np.arange(B) % 2 == 0)[:, None]  # agents outside the mask, else nowhere
    positions = np.where((boards.agent_mask | somewhere)[..., None], cells[2], np.int8(-1))

    def resolved(form):
        return jax.device_get(jax.jit(jax.vmap(partial(form, policy)))(boards, positions, actions))

    jax.tree.map(
        np.testing.assert_array_equal, resolved(resolve_packed), resolved(resolve_unpacked)
    )
