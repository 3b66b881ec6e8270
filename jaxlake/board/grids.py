"""Conversion between `Instance` and grids in the published symbols of MAPF-FrozenLake."""

from collections.abc import Iterable, Sequence

import numpy as np

from jaxlake.board.instance import Instance, check_instance, numpy_instance
from jaxlake.board.limits import MAX_SIZE

START_SYMBOLS = "SsABC"
GOAL_SYMBOLS = "Ggabc"
FROZEN_SYMBOL = "F"
HOLE_SYMBOL = "H"
SYMBOLS = FROZEN_SYMBOL + HOLE_SYMBOL + START_SYMBOLS + GOAL_SYMBOLS

_AGENTS_IN_ORDER = ", ".join(map("{} and {}".format, START_SYMBOLS, GOAL_SYMBOLS))


class GridError(ValueError):
    """Raised for an invalid grid; the message names the row, the column and the letter."""


def parse_grid(
    rows: Sequence[str], *, max_size: int | None = None, max_agents: int | None = None
) -> Instance:
    """Return the board of a grid in the published symbols.

    Boards of one batch need the same N and K. JAX compiles once for each pair (N, K).

    Args:
        rows: One string per row, one letter per cell, cells separated by spaces. `F` is frozen,
            `H` a hole; agents 0 to 4 start at `S s A B C` and have their goals at `G g a b c`.
        max_size: N, the side of the padded board, at most 32. Defaults to the side of the grid.
        max_agents: K, the number of agent slots. Defaults to the number of agents in the grid,
            but at least two. Slots without an agent are ignored.

    Returns:
        The `Instance`, with NumPy leaves and agents in slots 0 to k-1.

    Raises:
        GridError: The grid is empty, not square or larger than `max_size`; a letter is unknown or
            occurs twice; a start has no goal or a goal no start; the agents are not numbered
            consecutively from 0; or the number of agents is not 1 to `max_agents`.
    """
    if isinstance(rows, str):
        raise GridError("grid must be a list of rows, got one string; use text.splitlines()")
    if not isinstance(rows, Iterable):
        raise GridError(f"grid must be a list of rows, got {type(rows).__name__}")
    rows = list(rows)
    size = len(rows)
    if not size:
        raise GridError("grid must have at least 1 row, got none")
    max_size = size if max_size is None else max_size
    if size > max_size:
        raise GridError(f"grid must have 1 to {max_size} rows, got {size}")
    if max_size > MAX_SIZE:
        raise GridError(f"grid must have at most {MAX_SIZE} rows, got {max_size}")
    letters = [_split_row(number, row, size) for number, row in enumerate(rows)]
    holes = np.ones((max_size, max_size), dtype=bool)
    holes[:size, :size] = np.array(letters) == HOLE_SYMBOL
    cells = _locate_agents(letters)
    num_agents = _count_agents(cells, len(START_SYMBOLS) if max_agents is None else max_agents)
    max_agents = max(2, num_agents) if max_agents is None else max_agents
    starts, goals = np.zeros((2, max_agents, 2), dtype=np.int8)
    for agent in range(num_agents):
        starts[agent] = cells[START_SYMBOLS[agent]]
        goals[agent] = cells[GOAL_SYMBOLS[agent]]
    return numpy_instance(holes, size, starts, goals, num_agents)


def _split_row(number: int, row: object, size: int) -> list[str]:
    """Return the letters of a row of a grid with `size` columns."""
    if not isinstance(row, str):
        raise GridError(f"row {number} must be a string of letters, got {type(row).__name__}")
    letters = row.split()
    if len(letters) != size:
        raise GridError(
            f"row {number} must have {size} cells separated by spaces, got {len(letters)}"
        )
    for column, letter in enumerate(letters):
        if len(letter) != 1 or letter not in SYMBOLS:
            raise GridError(
                f"row {number}, column {column} must be one of {' '.join(SYMBOLS)}, "
                f"got {letter[:20]!r}"
            )
    return letters


def _locate_agents(letters: Sequence[Sequence[str]]) -> dict[str, tuple[int, int]]:
    """Return the row and column of each start and goal symbol."""
    cells: dict[str, tuple[int, int]] = {}
    for r, row in enumerate(letters):
        for c, letter in enumerate(row):
            if letter in (FROZEN_SYMBOL, HOLE_SYMBOL):
                continue
            if letter in cells:
                raise GridError(
                    f"row {r}, column {c} repeats {letter!r} of "
                    f"row {cells[letter][0]}, column {cells[letter][1]}"
                )
            cells[letter] = (r, c)
    return cells


def _count_agents(cells: dict[str, tuple[int, int]], max_agents: int) -> int:
    """Return the number of agents, after a check that they are numbered from 0 without gaps."""
    num_agents = sum(letter in START_SYMBOLS for letter in cells)
    for letter, (r, c) in cells.items():
        is_start = letter in START_SYMBOLS
        agent = (START_SYMBOLS if is_start else GOAL_SYMBOLS).index(letter)
        partner = (GOAL_SYMBOLS if is_start else START_SYMBOLS)[agent]
        if partner not in cells:
            raise GridError(f"row {r}, column {c} has {letter!r} without its partner {partner!r}")
        if agent >= max_agents:
            raise GridError(
                f"grid must have at most {max_agents} agents, got {letter!r} of agent {agent} at "
                f"row {r}, column {c}"
            )
        if agent >= num_agents:
            raise GridError(
                f"row {r}, column {c} has {letter!r} of agent {agent} on a board of {num_agents}; "
                f"agents are numbered from 0 without gaps, by {_AGENTS_IN_ORDER}"
            )
    if num_agents == 0:
        raise GridError("grid must have 'S' and 'G' of agent 0, got no agents")
    return num_agents


def format_grid(instance: Instance) -> list[str]:
    """Return a board in the published symbols: one string per row, cells separated by spaces.

    Args:
        instance: One board with at most five agents.

    Returns:
        The rows of the board without its padding.

    Raises:
        TypeError: `instance` is not an `Instance`.
        GridError: The instance is a batch, has an agent beyond the five published symbols, or an
            agent starts on another agent's goal: a grid has one symbol per cell.
    """
    check_instance(instance)
    if np.ndim(instance.size) != 0:
        raise GridError(f"instance must be one board, got a batch of {np.shape(instance.size)}")
    size, starts, goals = map(np.asarray, (instance.size, instance.starts, instance.goals))
    cells: list[tuple[str, Sequence[int]]] = []
    for agent in np.flatnonzero(np.asarray(instance.agent_mask)):
        if agent >= len(START_SYMBOLS):
            raise GridError(
                f"agent_mask must hold agents 0 to {len(START_SYMBOLS) - 1}, which have symbols, "
                f"got agent {agent}"
            )
        cells += [(START_SYMBOLS[agent], starts[agent]), (GOAL_SYMBOLS[agent], goals[agent])]
    letters: dict[tuple[int, ...], str] = {}
    for letter, cell in cells:
        if (other_letter := letters.setdefault(tuple(map(int, cell)), letter)) != letter:
            raise GridError(
                f"instance must have one symbol per cell, got {other_letter} and {letter} at "
                f"row {cell[0]}, column {cell[1]}"
            )
    return format_rows(np.asarray(instance.holes)[:size, :size], cells)


def format_rows(holes: np.ndarray, cells: Iterable[tuple[str, Sequence[int]]]) -> list[str]:
    """Return the rows of a board with holes bool (n, n); later letters overwrite earlier ones."""
    letters = [[HOLE_SYMBOL if hole else FROZEN_SYMBOL for hole in row] for row in holes]
    for letter, (r, c) in cells:
        letters[r][c] = letter
    return [" ".join(row) for row in letters]
