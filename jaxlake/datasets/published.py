"""Read the rows of the published data set, whose boards are part of the prompts."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxlake.board.grids import START_SYMBOLS, SYMBOLS, GridError, parse_grid
from jaxlake.board.instance import Instance, agent_tasks
from jaxlake.datasets.source_files import DatasetError, read_rows

MAX_SIZE, MAX_AGENTS = 10, len(START_SYMBOLS)
SUFFIXES = (".jsonl", ".parquet")
_CELLS = frozenset(SYMBOLS)
# Decorations of a row: brackets, bars, quotes, commas between cells, and a leading row number.
_FRAME = str.maketrans(dict.fromkeys("|[]\"',", " "))
_ROW_LABEL = re.compile(r"^\s*(?:row\s*)?[0-9]+\s*[:|)]?\s+", re.IGNORECASE)
# All gaps are bounded, so that matching takes linear time on any text.
_POSITION = r"\(\s{0,8}([0-9]{1,3})\s{0,8},\s{0,8}([0-9]{1,3})\s{0,8}\)"
_TASK = re.compile(
    rf"agent\s{{0,8}}([0-9]{{1,3}})\b[^\n]{{0,80}}?{_POSITION}[^\n]{{0,40}}?{_POSITION}",
    re.IGNORECASE,
)
_SAMPLE_ID = re.compile(r"([0-9]{1,3})ag_([0-9]{1,3})x\2_hr[0-9.]{1,20}_[0-9]{1,20}")
_MAX_STEPS = 10**6
_CONFIGURATION = re.compile(r"benchmark_wr\d+(?:\.\d+)?")


@dataclass(frozen=True)
class PublishedRow:
    """One published row and its board."""

    sample_id: str
    num_agents: int
    instance: Instance  # NumPy leaves, agents in slots 0..num_agents-1
    text: str  # the prompt; empty if the row only has the board
    config: str | None  # `benchmark_wr...`, from the row or the file's path; None if absent
    optimum: tuple[int, int] | None = None  # sum of costs and makespan in steps, if both are given


def read_published(source: str | Path) -> list[PublishedRow]:
    """Read published rows, in path and row order.

    A row needs `sample_id`, `num_agents`, and either `text`, which contains the board (see
    `find_board`), or `grid`, the rows of the board.

    Args:
        source: a .jsonl or .parquet file (needs pyarrow), or a folder of such files.

    Returns:
        The rows with their boards.

    Raises:
        DatasetError: a file can't be read, a row lacks a field, or its board can't be found; the
            message names the file, the row and its sample_id.
    """
    return [
        _parse_row(record, place, _find_configuration(path))
        for path in published_files(source)
        for place, record in _read_records(path)
    ]


def find_board(text: str, *, num_agents: int | None = None, size: int | None = None) -> Instance:
    """Return the board of a prompt.

    A board is a block of n consecutive lines with n letters each that `parse_grid` accepts. Bars,
    brackets, quotes, commas and row numbers around the letters are ignored. If several boards
    match, the function returns the one that agrees with the most task descriptions in the text
    ("Agent 0 ... (1, 1) ... (1, 0)", start then goal); ties go to the last board.

    Args:
        text: the prompt.
        num_agents: required number of agents; any if None.
        size: required side of the board; any if None.

    Raises:
        DatasetError: there is no such board.
    """
    boards = find_boards(text)
    candidates = [
        board
        for board in boards
        if num_agents in (None, int(np.sum(board.agent_mask))) and size in (None, int(board.size))
    ]
    if not candidates:
        kinds = ", ".join(
            f"{int(b.size)}x{int(b.size)} with {int(np.sum(b.agent_mask))} agents" for b in boards
        )
        raise DatasetError(
            f"text: no board{'' if num_agents is None else f' of {num_agents} agents'}"
            f"{'' if size is None else f' of side {size}'} in it; found {kinds or 'none at all'}"
        )
    tasks = {tuple(map(int, match)) for match in _TASK.findall(text)}
    return max(reversed(candidates), key=lambda board: len(tasks.intersection(agent_tasks(board))))


def find_boards(text: str) -> list[Instance]:
    """Return all boards in a text, ordered by their last lines; see `find_board`."""
    rows = [_split_cells(line) for line in text.splitlines()]
    boards = []
    for end in range(1, len(rows) + 1):
        side = len(rows[end - 1])
        window = rows[max(0, end - side) : end]
        if not 2 <= side <= MAX_SIZE or [len(row) for row in window] != [side] * side:
            continue
        board = [" ".join(row) for row in window]
        with contextlib.suppress(GridError):
            boards.append(parse_grid(board, max_size=MAX_SIZE, max_agents=MAX_AGENTS))
    return boards


def _split_cells(line: str) -> list[str]:
    """Return the letters of a line of a board, or an empty list for other lines."""
    cells = _ROW_LABEL.sub("", line.translate(_FRAME)).split()
    return cells if _CELLS.issuperset(cells) else []


def _parse_row(record: Mapping[str, Any], place: str, config: str | None) -> PublishedRow:
    for field in ("sample_id", "num_agents"):
        if record.get(field) in (None, ""):
            raise DatasetError(f"{place}: {field}: missing, got the fields {_format_names(record)}")
    sample_id = f"{record['sample_id']!s:.100}"
    place = f"{place}: {sample_id}"
    num_agents = record["num_agents"]
    if type(num_agents) is not int or not 1 <= num_agents <= MAX_AGENTS:
        raise DatasetError(
            f"{place}: num_agents must be in [1, {MAX_AGENTS}], got {num_agents!r:.60}"
        )
    match = _SAMPLE_ID.fullmatch(sample_id)
    if match and int(match[1]) != num_agents:
        raise DatasetError(f"{place}: num_agents must be {match[1]} as in the id, got {num_agents}")
    size = int(match[2]) if match else None
    text = record.get("text") or ""
    try:
        if not isinstance(text, str):
            raise DatasetError(f"text must be a string, got {type(text).__name__}")
        if not (board := text or "\n".join(record.get("grid") or ())):
            raise DatasetError(f"text: missing, got the fields {_format_names(record)}")
        instance = find_board(board, num_agents=num_agents, size=size)
    except (DatasetError, TypeError) as error:  # TypeError: the grid is not a list of rows
        raise DatasetError(f"{place}: {error}") from None
    cost = _parse_steps(record, "sum_of_costs", place)
    makespan = _parse_steps(record, "makespan", place)
    optimum = None if cost is None or makespan is None else (cost, makespan)
    return PublishedRow(
        sample_id, num_agents, instance, text, record.get("config") or config, optimum
    )


def _format_names(record: Mapping[str, Any]) -> str:
    return f"{', '.join(sorted(map(str, record))):.200}"


def _parse_steps(record: Mapping[str, Any], field: str, place: str) -> int | None:
    """Return a number of steps, or None if the row lacks the field."""
    value = record.get(field)
    if value is not None and (type(value) is not int or not 0 <= value <= _MAX_STEPS):
        raise DatasetError(
            f"{place}: {field} must be a whole number up to {_MAX_STEPS}, got {value!r:.60}"
        )
    return value


def published_files(source: str | Path) -> list[Path]:
    """Return the files read by `read_published`, with the same arguments and errors."""
    path = Path(source)
    if path.is_file():
        return [path]
    paths = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES and p.is_file())
    if not paths:
        suffixes = " or ".join(SUFFIXES)
        raise DatasetError(f"{source}: must be a file, or a folder with {suffixes} files")
    return paths


def _find_configuration(path: Path) -> str | None:
    matches = filter(None, map(_CONFIGURATION.search, reversed(path.parts)))
    return next((match[0] for match in matches), None)


def _read_records(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if path.suffix == ".jsonl":
        yield from read_rows(path)
    elif path.suffix == ".parquet":
        from pyarrow import parquet

        try:
            rows = parquet.read_table(path).to_pylist()
        except Exception as error:  # pyarrow raises many types
            raise DatasetError(f"{path}: can't be read as Parquet: {error!s:.200}") from None
        for number, row in enumerate(rows, start=1):
            yield f"{path}: row {number}", row
    else:
        raise DatasetError(
            f"{path}: the file must end in {', '.join(SUFFIXES)}, got {path.suffix!r}"
        )
