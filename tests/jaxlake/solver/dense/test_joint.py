"""The dense search against independent oracles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import oracles
from jaxlake import Status
from jaxlake.solver import limits_for
from jaxlake.solver.certificates import prepare_boards
from jaxlake.solver.dense import joint
from jaxlake.solver.dense.components import DenseBoards, component_sizes
from jaxlake.solver.space_time import NEVER
from tests.jaxlake.solver.boards import (
    draw_grids,
    draw_starts_on_goals,
    make_filled_boards,
    make_instances,
)

HORIZON = 24
AXIS_SIZE = 32

SNAKE = [
    "S s A B F F F F",
    "H H H H H H H F",
    "F F F F F F F F",
    "F H H H H H H H",
    "F F F F F F F F",
    "H H H H H H H F",
    "b a g G F F F F",
    "H H H H H H H H",
]
"""A corridor of 35 cells in which the agents arrive one after another."""


@pytest.fixture(scope="module")
def solved_boards():
    """Return boards of one to three agents in three slots, with the answers of the dense search."""
    grids = draw_grids(5, 100, sizes=(3, 4, 5), agent_counts=(1, 2, 3))
    grids += draw_starts_on_goals(5, 50, sizes=(3, 4, 5), agent_counts=(2, 3))
    grids += make_filled_boards(3)
    return grids, *_solve(grids, 5, 3)


def _solve(grids, size, num_slots, horizon=HORIZON, **chunks):
    boards, active_mask, sizes = _prepare(grids, size, num_slots)
    return active_mask, sizes, _make_solver(AXIS_SIZE, horizon, **chunks)(boards, active_mask)


def _prepare(grids, size, num_slots):
    batch = make_instances(grids, size, num_slots)
    bounds = jnp.stack([jnp.zeros(len(grids), jnp.int32) + c for c in (0, NEVER)])
    boards = DenseBoards(
        free=jnp.moveaxis(~batch.holes, 0, -1),
        starts=jnp.moveaxis(batch.starts.astype(jnp.int32), 0, -1),
        goals=jnp.moveaxis(batch.goals.astype(jnp.int32), 0, -1),
        agent_mask=batch.agent_mask.T,
        has_makespan=jnp.zeros(len(grids), bool),
        makespan_bounds=bounds,
        cost_bounds=bounds,
    )
    prepared_boards = prepare_boards(batch, limits_for())
    active_mask = jnp.all(prepared_boards.solo_distances < NEVER, axis=0)
    sizes = component_sizes(prepared_boards, active_mask, limits_for())
    return boards, np.asarray(active_mask), np.asarray(sizes)


def _make_solver(axis_size, horizon=HORIZON, **chunks):
    limits = limits_for(**chunks)
    solver = jax.jit(
        lambda boards, active: joint.solve_dense(boards, active, horizon, axis_size, limits)
    )
    return lambda boards, active: jax.device_get(solver(boards, active))


def _make_oracle_answer(answers, i, num_agents):
    status = Status.OPTIMAL if answers.optimal[i] else Status.UNKNOWN
    return oracles.SolverAnswer(
        status=(Status.UNSOLVABLE if answers.unsolvable[i] else status).name,
        sum_of_costs=int(answers.sum_of_costs[i]),
        makespan=int(answers.makespan[i]),
        needs_wait=bool(answers.needs_wait[i]),
        plan=answers.plan[:, :num_agents, i].tolist(),
        makespan_plan=answers.makespan_plan[:, :num_agents, i].tolist(),
    )


def test_dense_search_matches_all_oracles(solved_boards):
    grids, active_mask, sizes, answers = solved_boards
    kinds = set()
    for i, grid in enumerate(grids):
        truth = oracles.judge(grid)
        answer = _make_oracle_answer(answers, i, len(oracles.parse_board(grid).starts))
        assert oracles.find_mistakes(grid, truth, answer) == []
        assert (answer.status != "UNKNOWN") == (active_mask[i] and sizes[i] <= AXIS_SIZE - 2)
        kinds |= {answer.status, oracles.classify_board(grid, truth)}
    assert kinds >= {"OPTIMAL", "UNSOLVABLE", "UNKNOWN", "blocked by each other"}
    assert kinds >= {f"needs_wait={wait}, excess 2" for wait in (True, False)}


def test_component_sizes_match_breadth_first_search(solved_boards):
    grids, active_mask, sizes, _ = solved_boards
    assert active_mask.sum() > 50
    for i in np.flatnonzero(active_mask):
        board = oracles.parse_board(grids[i])
        expected = 0
        for start in board.starts:
            cells = oracles.distances_to(board, start).keys()
            edges = sum(((r + 1, c) in cells) + ((r, c + 1) in cells) for r, c in cells)
            expected = max(expected, len(cells), edges)
        assert sizes[i] == expected


@pytest.mark.slow
def test_two_word_sets_match_all_oracles():
    candidate_grids = draw_grids(12, 120, sizes=(6, 7, 8), agent_counts=(4,), hole_ratio=0.5)
    _, active_mask, sizes = _prepare(candidate_grids, 8, 4)
    large_mask = active_mask & (sizes > 31) & (sizes <= 58)
    grids = [grid for grid, keep in zip(candidate_grids, large_mask, strict=True) if keep]
    grids += [SNAKE, [row.translate(str.maketrans("Gg", "gG")) for row in SNAKE]]
    boards, active_mask, _ = _prepare(grids, 8, 4)
    answers = _make_solver(60, horizon=60)(boards, active_mask)
    kinds, num_crossings = set(), 0
    for i, grid in enumerate(grids):
        truth = oracles.judge(grid)
        answer = _make_oracle_answer(answers, i, 4)
        assert answer.status != "UNKNOWN"
        assert oracles.find_mistakes(grid, truth, answer) == []
        kinds.add(oracles.classify_board(grid, truth))
        board = oracles.parse_board(grid)
        cells = sorted(oracles.distances_to(board, board.goals[-1]))
        # Cells are numbered from 1, row by row; numbers from 32 are in the second word.
        in_second_word = [
            cells.index(agent_cells[-1]) + 1 >= 32 for agent_cells in (board.starts, board.goals)
        ]
        num_crossings += in_second_word[0] != in_second_word[1]
    assert num_crossings >= 5
    assert kinds >= {"blocked by each other", "needs_wait=True, excess 1"}
    assert kinds >= {f"needs_wait={wait}, excess 2" for wait in (True, False)}


@pytest.mark.slow
@pytest.mark.parametrize("num_slots", [3, 4, 5])
def test_blocks_match_whole_sets_and_oracles(num_slots):
    options = {"sizes": (3, 4), "agent_counts": (2, 3, num_slots), "hole_ratio": 0.4}
    grids = draw_grids(9, 120, **options) + draw_starts_on_goals(9, 60, **options)
    grids += make_filled_boards(num_slots)
    boards, active_mask, sizes = _prepare(grids, 4, num_slots)
    solve_blocks = _make_solver(16)
    answers = solve_blocks(boards, active_mask)
    subset = jax.tree.map(lambda leaf: leaf[..., ::4], boards)
    for actual, expected in zip(
        answers, _make_solver(16, platform="gpu")(subset, active_mask[::4]), strict=True
    ):
        np.testing.assert_array_equal(actual[..., ::4], expected)
    kinds = set()
    for i, grid in enumerate(grids):
        truth = oracles.judge(grid)
        answer = _make_oracle_answer(answers, i, len(oracles.parse_board(grid).starts))
        assert oracles.find_mistakes(grid, truth, answer) == []
        assert (answer.status != "UNKNOWN") == (active_mask[i] and sizes[i] <= 14)
        kinds |= {answer.status, oracles.classify_board(grid, truth)}
    assert kinds >= {"OPTIMAL", "UNSOLVABLE", "UNKNOWN", "blocked by each other"}
    assert kinds >= {f"needs_wait={wait}, excess 2" for wait in (True, False)}

    # Skipping costs beyond known bounds does not change results, even for tight bounds.
    for lower_margin, upper_margin in ((0, 0), (3, 1), (9, 40)):

        def make_bounds(optima, lower_margin=lower_margin, upper_margin=upper_margin):
            optima = optima.astype(np.int32)
            bounds = np.stack([np.maximum(optima - lower_margin, 0), optima + upper_margin])
            return np.where(answers.optimal, bounds, np.array([[0], [NEVER]]))

        bounded_boards = boards._replace(
            makespan_bounds=make_bounds(answers.makespan),
            cost_bounds=make_bounds(answers.sum_of_costs),
        )
        for actual, expected in zip(
            answers, solve_blocks(bounded_boards, active_mask), strict=True
        ):
            np.testing.assert_array_equal(actual, expected)
