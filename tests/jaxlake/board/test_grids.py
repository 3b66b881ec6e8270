"""Reading and writing boards in the published symbols."""

import random
from dataclasses import replace

import numpy as np
import pytest

import jaxlake
from benchmarks import oracles
from jaxlake import GridError

SYMBOLS = "F H S s A B C G g a b c"


def test_grids_round_trip_for_all_sizes_and_agents():
    rng = random.Random(0)
    for size in range(2, 11):
        for num_agents in range(1, min(5, size * size // 2) + 1):
            grid = oracles.random_grid(rng, size, rng.uniform(0, 0.5), num_agents)
            instance = jaxlake.parse_grid(grid, max_size=10, max_agents=5)
            assert jaxlake.format_grid(instance) == grid


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ([], "grid must have at least 1 row, got none"),
        ("S G", "grid must be a list of rows, got one string; use text.splitlines()"),
        (["S G", None], "row 1 must be a string of letters, got NoneType"),
        (["S G", "F"], "row 1 must have 2 cells separated by spaces, got 1"),
        (["S G", "FF"], "row 1 must have 2 cells separated by spaces, got 1"),
        (["S G", "F X"], f"row 1, column 1 must be one of {SYMBOLS}, got 'X'"),
        (["S G", "F é"], f"row 1, column 1 must be one of {SYMBOLS}, got 'é'"),
        (["S G", "F SG"], f"row 1, column 1 must be one of {SYMBOLS}, got 'SG'"),
        (["S G", "F S"], "row 1, column 1 repeats 'S' of row 0, column 0"),
        (["S F", "F F"], "row 0, column 0 has 'S' without its partner 'G'"),
        (["S G", "F g"], "row 1, column 1 has 'g' without its partner 's'"),
        (["S G", "A a"], "row 1, column 0 has 'A' of agent 2 on a board of 2"),
        (["s g", "F F"], "row 0, column 0 has 's' of agent 1 on a board of 1"),
        (["F F", "F H"], "grid must have 'S' and 'G' of agent 0, got no agents"),
    ],
)
def test_parse_grid_rejects_invalid_grids_with_the_position(grid, message):
    with pytest.raises(GridError) as error:
        jaxlake.parse_grid(grid)
    assert str(error.value).startswith(message)


def test_stack_instances_padding_keeps_answers():
    grids = [["S G", "F H"], ["S G s", "g A a", "F F H"]]
    batch = jaxlake.stack_instances([jaxlake.parse_grid(grid) for grid in grids])
    assert batch.holes.shape == (2, 3, 3)
    assert batch.agent_mask.tolist() == [[True, False, False], [True, True, True]]
    for i, grid in enumerate(grids):
        board = jaxlake.Instance(**{name: leaf[i] for name, leaf in vars(batch).items()})
        assert jaxlake.format_grid(board) == grid
        expected = jaxlake.parse_grid(grid, max_size=3, max_agents=3)
        for name, leaf in vars(expected).items():
            assert np.array_equal(getattr(board, name), leaf), name


def test_format_grid_rejects_batches_and_empty_boards():
    board = jaxlake.parse_grid(["S G", "s g"])
    with pytest.raises(GridError, match="batch"):
        jaxlake.format_grid(jaxlake.stack_instances([board, board]))
    with pytest.raises(ValueError, match="empty"):
        jaxlake.stack_instances([])
    with pytest.raises(ValueError, match=r"number 1 must be one board, got a batch of \(2,\)"):
        jaxlake.stack_instances([board, jaxlake.stack_instances([board, board])])


def test_format_grid_rejects_starts_on_goals():
    board = jaxlake.parse_grid(["S g", "G s"])
    board = replace(board, goals=board.starts[::-1])
    with pytest.raises(GridError, match="one symbol per cell, got G and s at row 1, column 1"):
        jaxlake.format_grid(board)


def test_parse_grid_rejects_more_than_32_rows():
    rows = [" ".join("F" * 33)] * 33
    with pytest.raises(GridError, match="grid must have at most 32 rows, got 33"):
        jaxlake.parse_grid(rows)
