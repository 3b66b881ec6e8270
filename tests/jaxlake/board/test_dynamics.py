"""The rules of one simultaneous step of all agents."""

import itertools
import random
from dataclasses import replace

import jax
import numpy as np
import pytest

import jaxlake
from benchmarks import oracles
from jaxlake import Action
from jaxlake.board.dynamics import action_mask, open_moves, step_batch


def _step_grid(grid, actions, *, max_size=5, max_agents=5):
    instance = jaxlake.parse_grid(grid, max_size=max_size, max_agents=max_agents)
    joint_action = np.zeros(max_agents, np.int8)
    joint_action[: len(actions)] = actions
    return jax.tree.map(np.asarray, jax.jit(jaxlake.step)(instance, instance.starts, joint_action))


def _group_agents_by_flag(result):
    names = ("off_board", "hole", "vertex_conflict", "swapping_conflict")
    return {name: np.flatnonzero(getattr(result, name)).tolist() for name in names}


NO_FLAGS = {"off_board": [], "hole": [], "vertex_conflict": [], "swapping_conflict": []}


@pytest.mark.parametrize("max_size", [2, 5])
@pytest.mark.parametrize("action", [Action.RIGHT, Action.UP, -1, 5, 127, -128])
def test_unknown_actions_are_off_board(action, max_size):
    result = _step_grid(["G S", "F F"], [action], max_size=max_size)
    assert _group_agents_by_flag(result) == NO_FLAGS | {"off_board": [0]}
    assert result.positions[0].tolist() == [0, 1]


def test_joint_actions_match_python_reference():
    rng = random.Random(3)
    joint_actions = np.array(list(itertools.product(range(5), repeat=3)), np.int8)
    step_all = jax.jit(jax.vmap(jaxlake.step, (None, None, 0)))
    seen_failures = set()
    for _ in range(40):
        grid = oracles.random_grid(rng, rng.randint(3, 4), rng.uniform(0, 0.4), agents=3)
        instance = jaxlake.parse_grid(grid, max_size=5, max_agents=3)
        results = jax.tree.map(np.asarray, step_all(instance, instance.starts, joint_actions))
        for i, actions in enumerate(joint_actions.tolist()):
            flags = _group_agents_by_flag(jax.tree.map(lambda leaf, i=i: leaf[i], results))
            violations = [(name, agents[0]) for name, agents in flags.items() if agents]
            verdict = oracles.check_plan(grid, [actions])
            if verdict.failure in (None, "goal_not_reached"):
                assert violations == [], (grid, actions)
            else:
                assert violations[0] == (verdict.failure, verdict.agent), (grid, actions)
                seen_failures.add(verdict.failure)
    assert seen_failures == set(NO_FLAGS)


def test_open_moves_is_the_action_mask_of_each_cell():
    grids = [
        ["S F H", "F H F", "F F G"],
        ["S G F F", "F H F F", "F F F H", "H F F F"],
        ["S G", "H F"],
    ]
    cells = np.indices((4, 4), np.int8).reshape(2, -1).T
    for grid in grids:
        board = jaxlake.parse_grid(grid, max_size=4)
        board_with_agents = replace(board, agent_mask=np.ones(len(cells), bool))
        bits = np.asarray(open_moves(board)).reshape(-1)
        assert np.array_equal(
            (bits[:, None] >> np.arange(5)) & 1, action_mask(board_with_agents, cells)
        )


@pytest.mark.parametrize("num_agents", [1, 2, 4, 5])
def test_lookup_and_arithmetic_rules_agree(num_agents):
    rng = np.random.default_rng(num_agents)
    num_boards, max_size = 3000, 4
    sizes = rng.integers(2, max_size + 1, num_boards).astype(np.int32)
    inside = np.arange(max_size) < sizes[:, None]
    inside_mask = inside[:, :, None] & inside[:, None]
    boards = jaxlake.Instance(
        holes=(rng.random((num_boards, max_size, max_size)) < 0.2) | ~inside_mask,
        size=sizes,
        starts=np.zeros((num_boards, num_agents, 2), np.int8),
        goals=np.zeros((num_boards, num_agents, 2), np.int8),
        agent_mask=rng.random((num_boards, num_agents)) < 0.9,
    )
    positions = rng.integers(0, sizes[:, None, None], (num_boards, num_agents, 2)).astype(np.int8)
    actions = rng.integers(-1, 6, (num_boards, num_agents)).astype(np.int8)
    expected = jax.jit(jax.vmap(jaxlake.step))(boards, positions, actions)

    def is_hole(row, column):
        return boards.holes[np.arange(num_boards), row, column]

    rows, columns = (list(positions[:, :, axis].T) for axis in (0, 1))
    agent_actions, agent_masks = list(actions.T), list(boards.agent_mask.T)
    sizes = sizes.astype(np.int8)
    actual = step_batch(rows, columns, agent_actions, side=sizes, mask=agent_masks, is_hole=is_hole)
    np.testing.assert_array_equal(expected.positions[..., 0], np.stack(actual.rows, axis=-1))
    np.testing.assert_array_equal(expected.positions[..., 1], np.stack(actual.columns, axis=-1))
    for name in NO_FLAGS:
        expected_flags = np.stack(getattr(actual, name), axis=-1)
        np.testing.assert_array_equal(getattr(expected, name), expected_flags)
    flags = np.stack([np.asarray(getattr(expected, name)).any(axis=-1) for name in NO_FLAGS])
    assert flags.any(axis=1)[: 2 if num_agents == 1 else 4].all()
