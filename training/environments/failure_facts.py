"""Facts about failed answers: the parsed plan, and the agents' cells at the failure."""

from collections.abc import Iterable, Sequence

from jaxlake.board.dynamics import Action
from jaxlake.board.grids import GOAL_SYMBOLS, START_SYMBOLS
from training.run.answer_records import EpisodeRecord

Cell = tuple[int, int]

_MOVES: dict[str, Cell] = {
    Action.WAIT.name: (0, 0),
    Action.UP.name: (-1, 0),
    Action.DOWN.name: (1, 0),
    Action.LEFT.name: (0, -1),
    Action.RIGHT.name: (0, 1),
}


def failure_facts(episode: EpisodeRecord) -> tuple[str, ...]:
    """Return short sentences that explain a failed answer; empty without information."""
    facts = [] if episode.reason is None else [episode.reason]
    if episode.lake is None:
        return tuple(facts)
    facts.append(f"optimal cost {episode.lake.optimum}")
    plan = episode.lake.plan
    if plan is None:
        return tuple(facts)
    read = ", ".join(f"agent {agent} {' '.join(names)}" for agent, names in enumerate(plan))
    facts.append(f"read as {read}")
    cells = [line.split() for line in episode.lines]
    starts, goals = (
        _find_symbols(cells, symbols, len(plan)) for symbols in (START_SYMBOLS, GOAL_SYMBOLS)
    )
    if episode.failure == "goal_not_reached" or episode.time is None:
        ends = [_move(start, names) for start, names in zip(starts, plan, strict=True)]
        facts.append(f"they end at {_format_cells(ends)}, the goals are {_format_cells(goals)}")
        return tuple(facts)
    before = [_move(at, names[: episode.time]) for at, names in zip(starts, plan, strict=True)]
    after = [_move(at, names[: episode.time + 1]) for at, names in zip(starts, plan, strict=True)]
    facts.append(f"in that step from {_format_cells(before)} to {_format_cells(after)}")
    return tuple(facts)


def _find_symbols(cells: Sequence[Sequence[str]], symbols: str, count: int) -> list[Cell]:
    """Return the cells of the first `count` symbols on a board."""
    places = {
        symbol: (row, column)
        for row, line in enumerate(cells)
        for column, symbol in enumerate(line)
    }
    return [places[symbol] for symbol in symbols[:count]]


def _move(cell: Cell, names: Iterable[str]) -> Cell:
    row, column = cell
    for name in names:
        row, column = row + _MOVES[name][0], column + _MOVES[name][1]
    return row, column


def _format_cells(cells: Iterable[Cell]) -> str:
    return ", ".join(map(str, cells))
