"""Explanations of failed answers: the parsed plan, and the agents' cells at the failure."""

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
    """Return phrases that explain a failed answer, or none if nothing is known."""
    facts = [] if episode.reason is None else [episode.reason]
    if episode.lake is None:
        return tuple(facts)
    facts.append(f"optimal cost {episode.lake.optimum}")
    plan = episode.lake.plan
    if plan is None:
        return tuple(facts)
    actions = [f"agent {agent} {' '.join(names)}" for agent, names in enumerate(plan)]
    facts.append(f"read as {', '.join(actions)}")
    board = [line.split() for line in episode.lines]
    starts = _find_symbols(board, START_SYMBOLS[: len(plan)])
    goals = _find_symbols(board, GOAL_SYMBOLS[: len(plan)])
    if episode.failure == "goal_not_reached" or episode.time is None:
        ends = [_move(start, names) for start, names in zip(starts, plan, strict=True)]
        facts.append(f"they end at {_format_cells(ends)}, the goals are {_format_cells(goals)}")
        return tuple(facts)
    start_cells, next_cells = (
        [_move(start, names[:steps]) for start, names in zip(starts, plan, strict=True)]
        for steps in (episode.time, episode.time + 1)
    )
    facts.append(f"in that step from {_format_cells(start_cells)} to {_format_cells(next_cells)}")
    return tuple(facts)


def _find_symbols(board: Sequence[Sequence[str]], symbols: str) -> list[Cell]:
    cells = {
        symbol: (row, column)
        for row, line in enumerate(board)
        for column, symbol in enumerate(line)
    }
    return [cells[symbol] for symbol in symbols]


def _move(start: Cell, names: Iterable[str]) -> Cell:
    row, column = start
    for name in names:
        row, column = row + _MOVES[name][0], column + _MOVES[name][1]
    return row, column


def _format_cells(cells: Iterable[Cell]) -> str:
    return ", ".join(map(str, cells))
