"""Invalid boards raise errors that name the problem."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import jaxlake
from jaxlake.board.instance import Instance, stack_instances
from jaxlake.environment.params import env_params
from jaxlake.solver import Status, solve_batch
from jaxlake.solver.solution import unknown_solution

BOARD = jaxlake.parse_grid(["S F g", "s H F", "F F G"], max_agents=3)


def move_agents(starts: dict[int, tuple[int, int]], goals: dict[int, tuple[int, int]]) -> Instance:
    """Return `BOARD` with other starts and goals."""
    leaves = {name: np.array(getattr(BOARD, name)) for name in ("starts", "goals")}
    for name, cells in (("starts", starts), ("goals", goals)):
        for agent, cell in cells.items():
            leaves[name][agent] = cell
    return replace(BOARD, **leaves)


INVALID_BOARDS = [
    (move_agents({0: (2, 2)}, {}), r"\(2, 2\) as start of agent 0 and as goal of agent 0"),
    (move_agents({1: (0, 0)}, {}), r"\(0, 0\) as start of agent 0 and as start of agent 1"),
    (move_agents({}, {1: (2, 2)}), r"\(2, 2\) as goal of agent 0 and as goal of agent 1"),
    (
        move_agents({0: (1, 1)}, {}),
        r"the start of agent 0 must be a free cell, got \(1, 1\), a hole",
    ),
    (
        move_agents({}, {1: (3, 0)}),
        r"goal of agent 1 must be a free cell, got \(3, 0\), outside of the board",
    ),
    (
        move_agents({}, {0: (0, -1)}),
        r"goal of agent 0 must be a free cell, got \(0, -1\), outside of the board",
    ),
    (replace(BOARD, size=np.int32(0)), r"size must be in \[1, 3\], got 0"),
    (replace(BOARD, size=np.int32(4)), r"size must be in \[1, 3\], got 4"),
    (
        replace(BOARD, size=np.int32(2)),
        "cells outside of the 2 rows and columns must be holes, got a free cell",
    ),
]


@pytest.mark.parametrize(("board", "problem"), INVALID_BOARDS)
def test_solve_rejects_invalid_boards(board: Instance, problem: str):
    with pytest.raises(ValueError, match=f"^instance: .*{problem}"):
        jaxlake.solve(board)
    batch = stack_instances([BOARD, board, BOARD])
    with pytest.raises(ValueError, match=f"^instances: number 1: .*{problem}"):
        solve_batch(jax.tree.map(jax.numpy.asarray, batch))


INVALID_DTYPES = [
    ("holes", np.int32, "bool, got int32"),
    ("agent_mask", np.int8, "bool, got int8"),
    ("starts", np.float32, "an integer dtype, got float32"),
    ("goals", bool, "an integer dtype, got bool"),
    ("size", np.float32, "an integer dtype, got float32"),
]


@pytest.mark.parametrize(("name", "dtype", "problem"), INVALID_DTYPES)
def test_jit_rejects_leaves_of_other_dtypes(name: str, dtype: type, problem: str):
    """With integer holes, ~1 is not 0, so searches would walk through holes."""
    board = replace(BOARD, **{name: np.asarray(getattr(BOARD, name), dtype)})
    batch = jax.tree.map(lambda leaf: np.asarray(leaf)[None], board)
    plan = np.zeros((4, 3), np.int8)
    for call in (
        lambda: jaxlake.solve(board),
        lambda: jax.jit(jaxlake.solve)(board),
        lambda: jax.vmap(jaxlake.solve)(batch),
        lambda: solve_batch(batch),
        lambda: jaxlake.verify(board, plan),
        lambda: jaxlake.step(board, BOARD.starts, plan[0]),
        lambda: env_params(batch),
    ):
        with pytest.raises(TypeError, match=rf"^instance\.{name} must have {problem}"):
            call()


@pytest.mark.parametrize(
    ("name", "leaf"),
    [
        ("holes", BOARD.holes[:, :2]),
        ("holes", np.bool_(True)),
        ("starts", BOARD.starts[:2]),
        ("goals", BOARD.goals[0]),
        ("size", np.array([3])),
        ("agent_mask", np.ones(2, bool)),
    ],
)
def test_instances_of_other_shapes_are_rejected(name, leaf):
    board = replace(BOARD, **{name: leaf})
    plan = np.zeros((4, 3), np.int8)
    for call in (
        lambda: jaxlake.solve(board),
        lambda: jaxlake.verify(board, plan),
        lambda: jaxlake.step(board, BOARD.starts, plan[0]),
        lambda: env_params(board),
        lambda: jaxlake.show(board),
    ):
        with pytest.raises(ValueError, match=r"^instance must have leaves of shapes .*, got "):
            call()


def test_solve_of_a_batch_names_vmap():
    batch = stack_instances([BOARD, BOARD])
    for call, name in (
        (lambda: jaxlake.solve(batch), "solve"),
        (lambda: jaxlake.verify(batch, np.zeros((4, 3), np.int8)), "verify"),
    ):
        with pytest.raises(ValueError, match=rf"batch of shape \(2,\).*jax.vmap\(jaxlake.{name}\)"):
            call()


@pytest.mark.slow
def test_jit_returns_unknown_for_invalid_boards():
    """If an agent starts at its goal, the search would return a suboptimal plan as OPTIMAL."""
    boards = [board for board, _ in INVALID_BOARDS] + [BOARD]
    solutions = jax.device_get(jax.jit(jax.vmap(jaxlake.solve))(stack_instances(boards)))
    assert solutions.status.tolist() == [Status.UNKNOWN] * len(INVALID_BOARDS) + [Status.OPTIMAL]
    no_solution = jax.device_get(unknown_solution(64, 3))
    for name, leaf in vars(no_solution).items():
        np.testing.assert_array_equal(
            getattr(solutions, name)[:-1], [leaf] * len(INVALID_BOARDS), name
        )
    expected = jax.device_get(jaxlake.solve(BOARD))
    jax.tree.map(
        lambda leaf, expected_leaf: np.testing.assert_array_equal(leaf[-1], expected_leaf),
        solutions,
        expected,
    )
