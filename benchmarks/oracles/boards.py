"""Boards as plain Python values: parsing, random grids and distances."""

import random
from collections import deque
from dataclasses import dataclass

MOVES = {0: (0, 0), 1: (-1, 0), 2: (1, 0), 3: (0, -1), 4: (0, 1)}
"""(row, column) offsets by action number: WAIT, UP, DOWN, LEFT, RIGHT."""

STARTS, GOALS = "SsABC", "Ggabc"
"""Letters of the agents' starts and goals, in the order of the agents."""

GridCell = tuple[int, int]


@dataclass(frozen=True)
class ParsedBoard:
    """A grid read cell by cell: `free` holds the cells that are not holes."""

    size: int
    free: frozenset[GridCell]
    starts: tuple[GridCell, ...]
    goals: tuple[GridCell, ...]


BoardLike = list[str] | ParsedBoard
"""A grid of letters, or a parsed board: letters can't show an agent that starts on a goal."""


def parse_board(grid: BoardLike) -> ParsedBoard:
    """Read a grid with one letter per cell, separated by spaces; return other boards as given."""
    if isinstance(grid, ParsedBoard):
        return grid
    letters = {(r, c): x for r, row in enumerate(grid) for c, x in enumerate(row.split(" "))}
    cells = {x: cell for cell, x in letters.items() if x not in "FH"}
    num_agents = len(cells) // 2
    return ParsedBoard(
        size=len(grid),
        free=frozenset(cell for cell, x in letters.items() if x != "H"),
        starts=tuple(cells[x] for x in STARTS[:num_agents]),
        goals=tuple(cells[x] for x in GOALS[:num_agents]),
    )


def neighbours(board: ParsedBoard, cell: GridCell) -> list[GridCell]:
    """List the free cells one move away."""
    r, c = cell
    adjacent = ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1))
    return [neighbour for neighbour in adjacent if neighbour in board.free]


def distances_to(board: ParsedBoard, goal: GridCell) -> dict[GridCell, int]:
    """Compute breadth-first distances from every cell that can reach the goal."""
    distances = {goal: 0}
    queue = deque([goal])
    while queue:
        cell = queue.popleft()
        for neighbour in neighbours(board, cell):
            if neighbour not in distances:
                distances[neighbour] = distances[cell] + 1
                queue.append(neighbour)
    return distances


def solo_distances(board: ParsedBoard) -> list[int] | None:
    """Compute the distance of each agent to its goal; None if one can't reach it."""
    pairs = zip(board.starts, board.goals, strict=True)
    lengths = [distances_to(board, goal).get(start) for start, goal in pairs]
    distances = [n for n in lengths if n is not None]
    return distances if len(distances) == len(lengths) else None


def sum_of_distances(grid: BoardLike) -> int | None:
    """Compute the sum of the agents' distances to their goals; None if one can't reach it."""
    distances = solo_distances(parse_board(grid))
    return None if distances is None else sum(distances)


def random_grid(
    rng: random.Random, size: int, hole_ratio: float, agents: int = 2, together: bool = False
) -> list[str]:
    """Draw a grid with floor(hole_ratio * size**2) holes, or fewer if agents need room.

    `together` places starts and goals in the largest component of free cells, if they fit there.
    Otherwise agents can seldom reach their goals on boards with many holes.
    """
    cells = [(r, c) for r in range(size) for c in range(size)]
    num_holes = min(hole_count(size, hole_ratio), len(cells) - 2 * agents)
    rng.shuffle(cells)
    letters = dict.fromkeys(cells, "F") | dict.fromkeys(cells[:num_holes], "H")
    free_cells = cells[num_holes:]
    if together:
        component = _largest_component(ParsedBoard(size, frozenset(free_cells), (), ()))
        if len(component) >= 2 * agents:
            free_cells = [cell for cell in free_cells if cell in component]
    for i in range(agents):
        letters[free_cells[2 * i]] = STARTS[i]
        letters[free_cells[2 * i + 1]] = GOALS[i]
    return [" ".join(letters[r, c] for c in range(size)) for r in range(size)]


def hole_count(size: int, hole_ratio: float) -> int:
    """Compute floor(hole_ratio * size**2), safe against rounding of the ratio."""
    return int(hole_ratio * size * size + 1e-9)


def _largest_component(board: ParsedBoard) -> set[GridCell]:
    largest_component: set[GridCell] = set()
    unseen_cells = set(board.free)
    while unseen_cells:
        component = set(distances_to(board, min(unseen_cells)))
        unseen_cells -= component
        largest_component = max(largest_component, component, key=len)
    return largest_component
