"""Observations match an independent reading of the grid's text, on padded boards."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import oracles
from jaxlake.environment import AgentCentred, Compact, Planes, unpack_rows
from jaxlake.environment.params import EnvParams, EnvState, env_params
from tests.jaxlake.solver.boards import draw_pool

MAX_SIZE, MAX_AGENTS = 7, 4
MOVES = oracles.MOVES


class Scene(NamedTuple):
    grids: list[str]
    params: EnvParams  # of all boards
    states: EnvState


@pytest.fixture(scope="module")
def scene() -> Scene:
    """Return boards with agents in free cells, including the first and the last."""
    grids, boards = draw_pool(8, 40, [3, 4, 7], [2, 3], MAX_SIZE, MAX_AGENTS)
    params = env_params(boards, max_steps=9)
    positions = np.zeros((len(grids), MAX_AGENTS, 2), np.int8)
    for i, grid in enumerate(grids):
        board = oracles.parse_board(grid)
        cells = sorted(board.free)
        agent_cells = (cells[-1], cells[0], cells[len(cells) // 2])[: len(board.starts)]
        positions[i, : len(agent_cells)] = agent_cells
    index, false = jnp.arange(len(grids)), jnp.zeros(len(grids), bool)
    time = jnp.full(len(grids), 2, jnp.int32)
    return Scene(grids, params, EnvState(index, jnp.asarray(positions), time, false, false))


def _observe(observation, scene):
    """Return the observations of all states, after checks of the space and the time."""
    observe_all = jax.jit(jax.vmap(lambda state: observation(state, scene.params)))
    observations = observe_all(scene.states)
    assert jax.vmap(observation.space(scene.params).contains)(observations).all()
    assert (np.asarray(observations.steps_left) == 7).all()
    return jax.device_get(observations)


def _read_boards(scene):
    """Return each board and the cells of its agents."""
    boards = [oracles.parse_board(grid) for grid in scene.grids]
    positions = np.asarray(scene.states.positions).tolist()
    agent_cells = [
        [tuple(cell) for cell in cells[: len(board.starts)]]
        for board, cells in zip(boards, positions, strict=True)
    ]
    return list(zip(boards, agent_cells, strict=True))


def _compute_action_mask(board, cells):
    mask = np.zeros((MAX_AGENTS, 5), bool)
    mask[:, 0] = True
    for k, (r, c) in enumerate(cells):
        for action, (dr, dc) in MOVES.items():
            mask[k, action] |= (r + dr, c + dc) in board.free
    return mask


def test_compact_equals_the_grid(scene):
    observations = _observe(Compact(), scene)
    holes = np.asarray(unpack_rows(jnp.asarray(observations.hole_rows), MAX_SIZE))
    assert np.array_equal(holes, np.asarray(scene.params.instances.holes))
    for i, (board, cells) in enumerate(_read_boards(scene)):
        assert np.array_equal(observations.action_mask[i], _compute_action_mask(board, cells))
        assert observations.agent_mask[i].sum() == len(cells)
        assert observations.goals[i][: len(cells)].tolist() == [list(goal) for goal in board.goals]


def test_planes_equal_the_grid(scene):
    planes = _observe(Planes(), scene)
    for i, (board, cells) in enumerate(_read_boards(scene)):
        expected = np.zeros((MAX_SIZE, MAX_SIZE, 1 + 2 * MAX_AGENTS), bool)
        expected[..., 0] = True
        for r, c in board.free:
            expected[r, c, 0] = False
        for k, (cell, goal) in enumerate(zip(cells, board.goals, strict=True)):
            expected[(*cell, 1 + k)] = True
            expected[(*goal, 1 + MAX_AGENTS + k)] = True
        assert np.array_equal(planes.board[i], expected)
        assert np.array_equal(planes.action_mask[i], _compute_action_mask(board, cells))


@pytest.mark.parametrize("radius", [1, 3, 9])
def test_windows_show_neighbours_and_block_outside_cells(scene, radius):
    observations = _observe(AgentCentred(radius), scene)
    width = 2 * radius + 1
    assert observations.window.shape == (len(scene.grids), MAX_AGENTS, width, width, 4)
    for i, (board, agent_cells) in enumerate(_read_boards(scene)):
        expected = np.zeros((MAX_AGENTS, width, width, 4), bool)
        expected[..., 0] = True
        to_goal = np.zeros((MAX_AGENTS, 2), int)
        for k, (r, c) in enumerate(agent_cells):
            to_goal[k] = np.subtract(board.goals[k], agent_cells[k])
            for dr in range(-radius, radius + 1):
                for dc in range(-radius, radius + 1):
                    cell = (r + dr, c + dc)
                    expected[k, dr + radius, dc + radius] = [
                        cell not in board.free,
                        cell in agent_cells and cell != agent_cells[k],
                        cell == board.goals[k],
                        cell in board.goals and cell != board.goals[k],
                    ]
        assert np.array_equal(observations.window[i], expected)
        assert np.array_equal(observations.to_goal[i], to_goal)


def test_invalid_radius_is_rejected():
    with pytest.raises(ValueError, match=r"radius must be in \[1, 15\], got 16"):
        AgentCentred(16)
