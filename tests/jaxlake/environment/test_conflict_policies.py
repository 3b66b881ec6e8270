"""The three conflict policies against plain Python."""

import random
from functools import partial

import jax
import numpy as np
import pytest

import jaxlake
from benchmarks import oracles
from jaxlake.environment import ConflictPolicy, resolve
from jaxlake.environment.conflict_policies import first_failure, resolve_packed, resolve_unpacked
from tests.jaxlake.solver.boards import make_instances

MAX_AGENTS = 5
MAX_SIZE = 7


@pytest.fixture(scope="module")
def crowded_boards():
    """Return crowded boards, smaller than the padding, with agents on random free cells."""
    rng = random.Random(3)
    grids, positions = [], []
    for _ in range(400):
        size = rng.choice([3, 4, 5])
        num_agents = rng.randint(2, 4 if size == 3 else MAX_AGENTS)
        grid = oracles.random_grid(rng, size, rng.uniform(0, 0.3), num_agents)
        grids.append(grid)
        positions.append(rng.sample(sorted(oracles.parse_board(grid).free), num_agents))
    actions = [[rng.randrange(5) for _ in cells] for cells in positions]
    boards = make_instances(grids, MAX_SIZE, MAX_AGENTS)
    padded_positions = np.zeros((len(grids), MAX_AGENTS, 2), np.int8)
    padded_actions = np.zeros((len(grids), MAX_AGENTS), np.int8)
    for i, (cells, joint_action) in enumerate(zip(positions, actions, strict=True)):
        padded_positions[i, : len(cells)] = cells
        padded_actions[i, : len(joint_action)] = joint_action
    return grids, positions, actions, boards, padded_positions, padded_actions


def _resolve_all(policy, boards, positions, actions):
    return jax.device_get(jax.jit(jax.vmap(partial(resolve, policy)))(boards, positions, actions))


def _find_staying(grid: list[str], cells: list, actions: list[int], priority: bool) -> set[int]:
    """Return the agents that stay: those in conflict, and those that would run into them."""
    free = oracles.parse_board(grid).free
    next_cells = [
        (r + oracles.MOVES[a][0], c + oracles.MOVES[a][1])
        for (r, c), a in zip(cells, actions, strict=True)
    ]
    agents = range(len(cells))
    staying_agents = {i for i in agents if next_cells[i] not in free}
    for i in agents:
        for j in agents:
            if i < j and next_cells[i] == next_cells[j]:
                staying_agents |= {j} if priority else {i, j}
            if i < j and next_cells[i] == cells[j] and next_cells[j] == cells[i]:
                staying_agents |= {i, j}
    staying_agents |= {i for i in agents if actions[i] == 0}
    while True:
        blocked_agents = {
            i
            for i in agents
            for j in staying_agents
            if i != j and next_cells[i] == cells[j] and i not in staying_agents
        }
        if not blocked_agents:
            return staying_agents
        staying_agents |= blocked_agents


@pytest.mark.parametrize("policy", [ConflictPolicy.BLOCK_BOTH, ConflictPolicy.PRIORITY])
def test_conflict_resolution_matches_python_reference(crowded_boards, policy):
    grids, start_cells, actions, boards, positions, padded_actions = crowded_boards
    result = _resolve_all(policy, boards, positions, padded_actions)
    num_changed = 0
    for i, grid in enumerate(grids):
        staying_agents = _find_staying(
            grid, start_cells[i], actions[i], policy is ConflictPolicy.PRIORITY
        )
        expected = [0 if k in staying_agents else a for k, a in enumerate(actions[i])]
        assert result.executed[i][: len(expected)].tolist() == expected, (grid, start_cells[i])
        cells = [tuple(cell) for cell in result.positions[i][: len(expected)].tolist()]
        assert len(set(cells)) == len(cells)
        assert set(cells) <= oracles.parse_board(grid).free
        for k, (r, c) in enumerate(start_cells[i]):
            dr, dc = oracles.MOVES[expected[k]]
            assert cells[k] == (r + dr, c + dc)
        pairs = [(p, q) for p in range(len(cells)) for q in range(p)]
        assert not any(
            cells[p] == start_cells[i][q] and cells[q] == start_cells[i][p] for p, q in pairs
        )
        num_changed += expected != actions[i]
    assert 100 < num_changed < len(grids)
    assert not result.failed.any()


def test_fail_policy_matches_python_reference(crowded_boards):
    grids, start_cells, actions, boards, positions, padded_actions = crowded_boards
    result = _resolve_all(ConflictPolicy.FAIL, boards, positions, padded_actions)
    kinds, agents = jax.device_get(jax.vmap(first_failure)(result.attempt))
    verdicts = set()
    for i, grid in enumerate(grids):
        verdict = _check_step(grid, start_cells[i], actions[i])
        verdicts.add(verdict)
        expected = (None, -1) if verdict is None else verdict
        kind = jaxlake.Failure(int(kinds[i]))
        label = None if kind is jaxlake.Failure.NONE else kind.label
        assert (label, int(agents[i])) == expected, (grid, start_cells[i], actions[i])
        assert bool(result.failed[i]) == (verdict is not None)
    kinds = {"off_board", "hole", "vertex_conflict", "swapping_conflict"}
    assert {verdict[0] for verdict in verdicts if verdict} == kinds


def _check_step(grid, starts, actions):
    """Return the oracle's verdict on one step from these cells."""
    rows = [row.split(" ") for row in grid]
    symbols = [["H" if x == "H" else "F" for x in row] for row in rows]
    for k, (r, c) in enumerate(starts):
        symbols[r][c] = oracles.STARTS[k]
    free_cells = [
        (r, c) for r in range(len(rows)) for c in range(len(rows)) if symbols[r][c] == "F"
    ]
    assert len(free_cells) >= len(starts), "the crowd leaves goals without a cell"
    for k, (r, c) in zip(range(len(starts)), free_cells, strict=False):
        symbols[r][c] = oracles.GOALS[k]
    verdict = oracles.check_plan([" ".join(row) for row in symbols], [actions])
    if verdict.failure in (None, "goal_not_reached"):
        return None
    return verdict.failure, verdict.agent


@pytest.mark.parametrize("num_agents", [1, 2, 5])
@pytest.mark.parametrize("policy", ConflictPolicy)
def test_packed_and_unpacked_resolution_agree(policy, num_agents):
    """Boards have masked agents, agents that share a cell, and unknown actions."""
    count, rng = 4000, np.random.default_rng(num_agents)
    sizes = rng.integers(2, MAX_SIZE + 1, count)
    outside_mask = np.arange(MAX_SIZE) >= sizes[:, None]
    holes = rng.random((count, MAX_SIZE, MAX_SIZE)) < 0.2
    cells = rng.integers(0, np.minimum(sizes, 4)[:, None, None], (3, count, num_agents, 2), np.int8)
    boards = jaxlake.Instance(
        holes=holes | outside_mask[:, :, None] | outside_mask[:, None],
        size=sizes.astype(np.int32),
        starts=cells[0],
        goals=cells[1],
        agent_mask=rng.random((count, num_agents)) < 0.8,
    )
    actions = rng.integers(-1, 7, (count, num_agents), dtype=np.int8)
    placed_mask = (np.arange(count) % 2 == 0)[:, None]  # agents outside the mask, else nowhere
    positions = np.where((boards.agent_mask | placed_mask)[..., None], cells[2], np.int8(-1))

    def resolve_with(function):
        resolve_all = jax.jit(jax.vmap(partial(function, policy)))
        return jax.device_get(resolve_all(boards, positions, actions))

    jax.tree.map(
        np.testing.assert_array_equal, resolve_with(resolve_packed), resolve_with(resolve_unpacked)
    )
