"""Boards as plain Python values: grids read cell by cell, random grids, distances."""

import random
from collections import deque
from dataclasses import dataclass

MOVES = {0: (0, 0), 1: (-1, 0), 2: (1, 0), 3: (0, -1), 4: (0, 1)}
STARTS, GOALS = "SsABC", "Ggabc"
GridCell = tuple[int, int]


@dataclass(frozen=True)
class GridBoard:
    """A grid read cell by cell: `free` holds the cells that are not holes."""

    size: int
    free: frozenset[GridCell]
    starts: tuple[GridCell, ...]
    goals: tuple[GridCell, ...]


Board = list[str] | GridBoard
"""A board in letters, or one whose agents start on the goals of others, for which letters fail."""


def read(grid: Board) -> GridBoard:
    """Read a grid with one letter per cell, separated by spaces; return other boards as given."""
    if isinstance(grid, GridBoard):
        return grid
    letters = {(r, c): x for r, row in enumerate(grid) for c, x in enumerate(row.split(" "))}
    at = {x: cell for cell, x in letters.items() if x not in "FH"}
    k = len(at) // 2
    return GridBoard(
        size=len(grid),
        free=frozenset(cell for cell, x in letters.items() if x != "H"),
        starts=tuple(at[x] for x in STARTS[:k]),
        goals=tuple(at[x] for x in GOALS[:k]),
    )


def neighbours(board: GridBoard, cell: GridCell) -> list[GridCell]:
    """List the free cells one move away."""
    r, c = cell
    beside = ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1))
    return [neighbour for neighbour in beside if neighbour in board.free]


def distances_to(board: GridBoard, goal: GridCell) -> dict[GridCell, int]:
    """Compute breadth-first distances from every cell that can reach the goal."""
    steps = {goal: 0}
    queue = deque([goal])
    while queue:
        cell = queue.popleft()
        for neighbour in neighbours(board, cell):
            if neighbour not in steps:
                steps[neighbour] = steps[cell] + 1
                queue.append(neighbour)
    return steps


def distances_alone(board: GridBoard) -> list[int] | None:
    """Compute the steps each agent needs alone; None if one of them can't get to its goal."""
    pairs = zip(board.starts, board.goals, strict=True)
    steps = [distances_to(board, goal).get(start) for start, goal in pairs]
    distances = [n for n in steps if n is not None]
    return distances if len(distances) == len(steps) else None


def sum_of_distances(grid: Board) -> int | None:
    """Add up the steps each agent needs alone; None if one of them can't get to its goal."""
    steps = distances_alone(read(grid))
    return None if steps is None else sum(steps)


def random_grid(
    rng: random.Random,
    size: int,
    hole_ratio: float,
    agents: int = 2,
    together: bool = False,
) -> list[str]:
    """Draw a grid with floor(hole_ratio * size**2) holes, or fewer if agents need room.

    `together` places starts and goals in the largest component of free cells, if they fit there:
    on boards with many holes agents can seldom reach their goals otherwise.
    """
    cells = [(r, c) for r in range(size) for c in range(size)]
    holes = min(hole_count(size, hole_ratio), len(cells) - 2 * agents)
    rng.shuffle(cells)
    letters = dict.fromkeys(cells, "F") | dict.fromkeys(cells[:holes], "H")
    places = cells[holes:]
    if together:
        component = _largest_component(GridBoard(size, frozenset(places), (), ()))
        if len(component) >= 2 * agents:
            places = [cell for cell in places if cell in component]
    for i in range(agents):
        letters[places[2 * i]] = STARTS[i]
        letters[places[2 * i + 1]] = GOALS[i]
    return [" ".join(letters[r, c] for c in range(size)) for r in range(size)]


def hole_count(size: int, hole_ratio: float) -> int:
    """Compute floor(hole_ratio * size**2), safe against rounding of the ratio."""
    return int(hole_ratio * size * size + 1e-9)


def _largest_component(board: GridBoard) -> set[GridCell]:
    largest: set[GridCell] = set()
    unseen = set(board.free)
    while unseen:
        component = set(distances_to(board, min(unseen)))
        unseen -= component
        largest = max(largest, component, key=len)
    return largest
