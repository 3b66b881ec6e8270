"""Least sum of costs by Conflict-Based Search in C++ (w9-pathfinding)."""

from tests.oracles.boards import read


def cbs_sum_of_costs(grid: list[str], seconds: float = 10.0) -> int | None:
    """Least sum of costs by Conflict-Based Search.

    Ask only for solvable boards: CBS never ends on the others. None means that CBS gave up, which
    says nothing about the board.
    """
    plan = cbs_paths(grid, seconds)
    if plan is None:
        return None
    total = 0
    for cells in plan:
        path = list(cells)
        while len(path) > 1 and path[-2] == path[-1]:
            path.pop()
        total += len(path) - 1
    return total


def cbs_paths(grid: list[str], seconds: float) -> list[list[tuple[int, int]]] | None:
    """Each agent's cells (row, column) in a plan of least sum of costs; None if CBS gave up."""
    from w9_pathfinding.envs import Grid
    from w9_pathfinding.mapf import CBS

    board = read(grid)
    weights = [
        [1 if (r, c) in board.free else -1 for c in range(board.size)] for r in range(board.size)
    ]
    environment = Grid(weights, edge_collision=True)
    starts = [(c, r) for r, c in board.starts]
    goals = [(c, r) for r, c in board.goals]
    try:
        paths = CBS(environment).mapf(starts, goals, max_length=400, max_time=seconds)
    except RuntimeError:
        return None
    return [[(r, c) for c, r in path] for path in paths] or None
