"""MovingAI maps and scenarios, in and out.

The formats are those of the benchmark sets of movingai.com (`type octile` maps, `version 1`
scenarios). Their coordinates are (x, y) = (column, row) from the top left; ours are (row, column).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jaxlake.board.dynamics import ACTION_DELTAS
from jaxlake.board.instance import Instance, agent_tasks, numpy_instance
from jaxlake.datasets.source_files import DatasetError, read_text
from jaxlake.files import write_text_whole

PASSABLE = ".GS"
"""Ground, ground, swamp."""

BLOCKED = "@OTW"
"""Out of bounds (two letters for it), trees, water: water is not passable from other terrain."""

LARGEST_SIDE = 127
"""Positions of an `Instance` are int8."""

_HEADER = ("type", "height", "width")
_SCENARIO_FIELDS = (
    *("bucket", "map", "map width", "map height"),
    *("start x", "start y", "goal x", "goal y", "optimal length"),
)


@dataclass(frozen=True)
class GridMap:
    """The terrain of a `.map` file: one letter per cell, so that it can be written as it was read.

    Raises:
        ValueError: there are no cells, rows of different widths, or an unknown letter.
    """

    rows: tuple[str, ...]

    def __post_init__(self) -> None:
        widths = sorted({len(row) for row in self.rows})
        if len(widths) != 1 or not widths[0]:
            raise ValueError(f"rows: got the widths {widths}, one and the same is needed")
        unknown = sorted(set("".join(self.rows)) - set(PASSABLE + BLOCKED))
        if unknown:
            raise ValueError(f"rows: got {unknown}, allowed are {PASSABLE} and {BLOCKED}")

    @property
    def height(self) -> int:
        """The number of rows."""
        return len(self.rows)

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.rows[0])

    @property
    def passable(self) -> np.ndarray:
        """The cells that an agent may enter: bool (height, width)."""
        return np.array([[letter in PASSABLE for letter in row] for row in self.rows])


@dataclass(frozen=True)
class Scenario:
    """One row of a `.scen` file: one agent's task. x is the column, y the row."""

    bucket: int
    map_name: str
    map_width: int
    map_height: int
    start_x: int
    start_y: int
    goal_x: int
    goal_y: int
    optimal_length: float
    """As the file has it; the published sets have diagonal steps, of length sqrt(2)."""


def read_map(path: str | Path) -> GridMap:
    """Read a `.map` file.

    Raises:
        DatasetError: a header line, the number of rows, a row's width or a letter is wrong; the
            message names the file and the line.
    """
    path = Path(path)
    lines = read_text(path).splitlines()
    header: dict[str, str] = {}
    for number, line in enumerate(lines[:4], start=1):
        words = line.split()
        if words == ["map"]:
            break
        if len(words) != 2 or words[0] not in _HEADER or words[0] in header:
            raise DatasetError(
                f"{path}:{number}: got {line[:40]!r}, a header of the lines 'type octile', "
                "'height H' and 'width W', then 'map', is needed"
            )
        header[words[0]] = words[1]
    missing = [name for name in _HEADER if name not in header]
    if missing or len(lines) < 4 or lines[3].split() != ["map"]:
        lacking = ", ".join(missing) or "the line map after three others"
        raise DatasetError(f"{path}: the header lacks {lacking}")
    if header["type"] != "octile":
        raise DatasetError(f"{path}: type: got {header['type']!r}, 'octile' is read")
    height, width = (_whole(header[name], f"{path}: {name}", least=1) for name in _HEADER[1:])
    body = lines[4:]
    while len(body) > height and not body[-1].strip():
        body.pop()
    if len(body) != height:
        raise DatasetError(f"{path}: got {len(body)} rows, height {height} says otherwise")
    for number, row in enumerate(body, start=5):
        if len(row) != width:
            raise DatasetError(f"{path}:{number}: got {len(row)} cells, width {width} is needed")
        column = len(row) - len(row.lstrip(PASSABLE + BLOCKED))
        if column < width:
            raise DatasetError(
                f"{path}:{number}: column {column}: got {row[column]!r}, allowed are "
                f"{' '.join(PASSABLE)} (passable) and {' '.join(BLOCKED)} (not)"
            )
    return GridMap(tuple(body))


def write_map(path: str | Path, grid_map: GridMap) -> None:
    """Write a `.map` file; `read_map` gives the same value back."""
    header = f"type octile\nheight {grid_map.height}\nwidth {grid_map.width}\nmap\n"
    body = "".join(f"{row}\n" for row in grid_map.rows)
    write_text_whole(Path(path), header + body)


def read_scen(path: str | Path) -> list[Scenario]:
    """Read a `.scen` file of version 1 (`version 1`, `version 1.0`).

    Raises:
        DatasetError: the version, a row's number of fields or a field is wrong; the message names
            the file, the line and the field.
    """
    path = Path(path)
    lines = read_text(path).splitlines()
    if not lines or lines[0].split() not in (["version", "1"], ["version", "1.0"]):
        got = lines[0][:40] if lines else ""
        raise DatasetError(f"{path}:1: got {got!r}, 'version 1' is needed")
    return [
        _scenario(line, f"{path}:{number}")
        for number, line in enumerate(lines[1:], start=2)
        if line.strip()
    ]


def write_scen(path: str | Path, scenarios: Sequence[Scenario]) -> None:
    """Write a `.scen` file of version 1; `read_scen` gives the same values back.

    Lengths have eight decimals, as in the published files, unless that would change the value.

    Raises:
        ValueError: a map's name holds a tab or a line break, so it can't be read back.
    """
    lines = ["version 1"]
    for s in scenarios:
        if set(s.map_name) & set("\t\r\n") or s.map_name != s.map_name.strip() or not s.map_name:
            raise ValueError(f"map_name: got {s.map_name!r}, a name on one line without tabs")
        length = f"{s.optimal_length:.8f}"
        if float(length) != s.optimal_length:
            length = repr(s.optimal_length)
        *fields, _ = vars(s).values()
        lines.append("\t".join([*map(str, fields), length]))
    write_text_whole(Path(path), "\n".join(lines) + "\n")


def instance_from_scenarios(
    grid_map: GridMap,
    scenarios: Sequence[Scenario],
    num_agents: int,
    *,
    max_size: int | None = None,
    max_agents: int | None = None,
) -> Instance:
    """Make the board of a map with the tasks of the first rows of a scenario, with NumPy leaves.

    A lake is square: of a map that is not, the board's side is the longer one, and the cells that
    the map does not have are holes. Agent i has the task of row i. It is padded to N = `max_size`
    and K = `max_agents`, if they are not None.

    Raises:
        DatasetError: the board or the agents don't fit, a row is for a map of another width or
            height, or the starts and goals are not distinct passable cells of the map. (Some
            published scenarios let one agent start where another's goal is; a lake does not.)
    """
    side = max(grid_map.height, grid_map.width)
    N = side if max_size is None else max_size
    K = num_agents if max_agents is None else max_agents
    if not 1 <= num_agents <= K:
        raise DatasetError(f"num_agents: got {num_agents}, 1 to {K} are allowed")
    if num_agents > len(scenarios):
        raise DatasetError(f"num_agents: got {num_agents}, the scenario has {len(scenarios)} rows")
    if not side <= N <= LARGEST_SIDE:
        raise DatasetError(
            f"grid_map: got {grid_map.height}x{grid_map.width} cells, max_size {N} and at most "
            f"{LARGEST_SIDE} are allowed"
        )
    passable = grid_map.passable
    starts, goals = np.zeros((K, 2), np.int8), np.zeros((K, 2), np.int8)
    taken: dict[tuple[int, int], str] = {}
    for agent, row in enumerate(scenarios[:num_agents]):
        if (row.map_height, row.map_width) != (grid_map.height, grid_map.width):
            raise DatasetError(
                f"scenario row {agent}: for a map of {row.map_height}x{row.map_width} cells, "
                f"got {grid_map.height}x{grid_map.width}; scaling is not supported"
            )
        for places, what, r, c in (
            (starts, "start", row.start_y, row.start_x),
            (goals, "goal", row.goal_y, row.goal_x),
        ):
            name = f"the {what} of agent {agent}"
            if not (0 <= r < grid_map.height and 0 <= c < grid_map.width and passable[r, c]):
                raise DatasetError(f"scenario row {agent}: {name}, ({r}, {c}), is not passable")
            if (r, c) in taken:
                raise DatasetError(
                    f"scenario row {agent}: {name}, ({r}, {c}), is also {taken[r, c]}; starts and "
                    "goals of a lake are distinct"
                )
            taken[r, c] = name
            places[agent] = r, c
    holes = np.ones((N, N), bool)
    holes[: grid_map.height, : grid_map.width] = ~passable
    return numpy_instance(holes, side, starts, goals, num_agents)


def map_from_instance(instance: Instance) -> GridMap:
    """Give the terrain of one board: `.` for frozen cells, `@` for holes."""
    size = int(instance.size)
    holes = np.asarray(instance.holes)[:size, :size]
    return GridMap(tuple("".join("@" if hole else "." for hole in row) for row in holes))


def scenarios_from_instance(
    instance: Instance, map_name: str, *, bucket: int = 0
) -> list[Scenario]:
    """Give the tasks of one board, one row per agent.

    `optimal_length` is the agent's own shortest path without diagonal steps, since the lake has
    none, and infinity where there is no path.
    """
    size = int(instance.size)
    holes = np.asarray(instance.holes)[:size, :size]
    rows = []
    for _, r, c, goal_r, goal_c in agent_tasks(instance):
        length = _path_length(holes, (r, c), (goal_r, goal_c))
        rows.append(Scenario(bucket, map_name, size, size, c, r, goal_c, goal_r, length))
    return rows


def _path_length(holes: np.ndarray, start: tuple[int, int], goal: tuple[int, int]) -> float:
    free = {(r, c) for r, c in np.argwhere(~holes).tolist()}
    edge, steps = {start}, 0
    while edge:
        if goal in edge:
            return float(steps)
        free -= edge
        around = ((r + dr, c + dc) for r, c in edge for dr, dc in ACTION_DELTAS[1:].tolist())
        edge, steps = free.intersection(around), steps + 1
    return math.inf


def _scenario(line: str, place: str) -> Scenario:
    # Names may hold blanks where the columns are set apart by tabs.
    fields = line.strip().split("\t") if "\t" in line else line.split()
    if len(fields) != len(_SCENARIO_FIELDS):
        raise DatasetError(
            f"{place}: got {len(fields)} fields, {len(_SCENARIO_FIELDS)} are needed: "
            f"{', '.join(_SCENARIO_FIELDS)}"
        )
    bucket, width, height, start_x, start_y, goal_x, goal_y = (
        _whole(fields[i], f"{place}: {_SCENARIO_FIELDS[i]}", least=0) for i in (0, 2, 3, 4, 5, 6, 7)
    )
    try:
        length = float(fields[8])
    except ValueError:
        length = math.nan
    if not length >= 0:
        raise DatasetError(f"{place}: optimal length: got {fields[8][:20]!r}, at least 0 is needed")
    return Scenario(bucket, fields[1], width, height, start_x, start_y, goal_x, goal_y, length)


def _whole(text: str, place: str, *, least: int) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise DatasetError(f"{place}: got {text[:20]!r}, a whole number from {least} is needed")
    return int(text)
