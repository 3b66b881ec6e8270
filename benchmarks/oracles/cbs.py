"""Optimal sum of costs by Conflict-Based Search in C++ (w9-pathfinding)."""

from benchmarks.oracles.boards import BoardLike, parse_board


def cbs_sum_of_costs(grid: BoardLike, seconds: float = 10.0) -> int | None:
    """Compute the optimal sum of costs by Conflict-Based Search.

    The board must be solvable; CBS does not terminate on other boards. None means that CBS gave up,
    which says nothing about the board.
    """
    from w9_pathfinding.envs import Grid
    from w9_pathfinding.mapf import CBS

    board = parse_board(grid)
    weights = [
        [1 if (r, c) in board.free else -1 for c in range(board.size)] for r in range(board.size)
    ]
    # The library expects (column, row).
    starts, goals = ([(c, r) for r, c in cells] for cells in (board.starts, board.goals))
    search = CBS(Grid(weights, edge_collision=True))
    try:
        paths = search.mapf(starts, goals, max_length=400, max_time=seconds)
    except RuntimeError:
        return None
    if not paths:
        return None
    cost = 0
    for cells in map(list, paths):
        while len(cells) > 1 and cells[-2] == cells[-1]:
            cells.pop()
        cost += len(cells) - 1
    return cost
