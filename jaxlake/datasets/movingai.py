"""MovingAI maps and scenarios, in and out.

The formats are those of the benchmark sets of movingai.com (`type octile` maps, `version 1`
scenarios). Their coordinates are (x, y) = (column, row) from the top left; ours are (row, column).
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from jaxlake.board.distance_fields import UNREACHABLE, distances
from jaxlake.board.instance import Instance, agent_tasks, numpy_instance
from jaxlake.datasets.source_files import DatasetError, read_text
from jaxlake.files import write_text_whole

PASSABLE = ".GS"
"""Ground, ground, swamp."""

BLOCKED = "@OTW"
"""Out of bounds (two letters for it), trees, water: water is not passable from other terrain."""

LARGEST_SIDE = 127
"""Positions of an `Instance` are int8."""

_HEADER = re.compile(r"type octile height ([1-9]\d{0,3}) width ([1-9]\d{0,3}) map")
_SCENARIO_FIELDS = (
    *("bucket", "map", "map width", "map height"),
    *("start x", "start y", "goal x", "goal y", "optimal length"),
)


_distances = jax.jit(distances)


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
        DatasetError: the header, the number of rows, a row's width or a letter is wrong; the
            message names the file and the line.
    """
    path = Path(path)
    lines = read_text(path).splitlines()
    header = _HEADER.fullmatch(" ".join(" ".join(lines[:4]).split()))
    if header is None:
        raise DatasetError(
            f"{path}: the first lines must be 'type octile', 'height H', 'width W' and 'map'"
        )
    height, width = int(header[1]), int(header[2])
    body = lines[4:]
    while len(body) > height and not body[-1].strip():
        body.pop()
    if len(body) != height:
        raise DatasetError(f"{path}: got {len(body)} rows, height {height} says otherwise")
    for number, row in enumerate(body, start=5):
        if len(row) != width:
            raise DatasetError(f"{path}:{number}: got {len(row)} cells, width {width} is needed")
        if unknown := set(row) - set(PASSABLE + BLOCKED):
            raise DatasetError(
                f"{path}:{number}: got {min(unknown)!r}, allowed are {' '.join(PASSABLE)} "
                f"(passable) and {' '.join(BLOCKED)} (not)"
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
    grid_map: GridMap, scenarios: Sequence[Scenario], num_agents: int
) -> Instance:
    """Make the board of a map with the tasks of the first rows of a scenario, with NumPy leaves.

    A lake is square: of a map that is not, the board's side is the longer one, and the cells that
    the map does not have are holes. Agent i has the task of row i.

    Raises:
        DatasetError: the board or the agents don't fit, a row is for a map of another width or
            height, or the starts and goals are not distinct passable cells of the map. (Some
            published scenarios let one agent start where another's goal is; a lake does not.)
    """
    side = max(grid_map.height, grid_map.width)
    if not 1 <= num_agents <= len(scenarios):
        raise DatasetError(f"num_agents: got {num_agents}, the scenario has {len(scenarios)} rows")
    if side > LARGEST_SIDE:
        got = f"{grid_map.height}x{grid_map.width}"
        raise DatasetError(f"grid_map: got {got} cells, at most {LARGEST_SIDE} rows are allowed")
    passable = grid_map.passable
    places = np.zeros((2, num_agents, 2), np.int8)  # starts, then goals
    taken: dict[tuple[int, int], str] = {}
    for agent, row in enumerate(scenarios[:num_agents]):
        if (row.map_height, row.map_width) != (grid_map.height, grid_map.width):
            raise DatasetError(
                f"scenario row {agent}: for a map of {row.map_height}x{row.map_width} cells, "
                f"got {grid_map.height}x{grid_map.width}; scaling is not supported"
            )
        for kind, (what, r, c) in enumerate(
            (("start", row.start_y, row.start_x), ("goal", row.goal_y, row.goal_x))
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
            places[kind, agent] = r, c
    holes = np.ones((side, side), bool)
    holes[: grid_map.height, : grid_map.width] = ~passable
    return numpy_instance(holes, side, places[0], places[1], num_agents)


def map_from_instance(instance: Instance) -> GridMap:
    """Give the terrain of one board: `.` for frozen cells, `@` for holes."""
    size = int(instance.size)
    holes = np.asarray(instance.holes)[:size, :size]
    return GridMap(tuple("".join("@" if hole else "." for hole in row) for row in holes))


def scenarios_from_instance(instance: Instance, map_name: str) -> list[Scenario]:
    """Give the tasks of one board, one row per agent, all in bucket 0.

    `optimal_length` is the agent's own shortest path without diagonal steps, since the lake has
    none, and infinity where there is no path.
    """
    size = int(instance.size)
    rows = []
    for _, r, c, goal_r, goal_c in agent_tasks(instance):
        steps = int(_distances(instance.holes, np.array([goal_r, goal_c]))[r, c])
        length = math.inf if steps == UNREACHABLE else float(steps)
        rows.append(Scenario(0, map_name, size, size, c, r, goal_c, goal_r, length))
    return rows


def _scenario(line: str, place: str) -> Scenario:
    # Names may hold blanks where the columns are set apart by tabs.
    fields = line.strip().split("\t") if "\t" in line else line.split()
    if len(fields) != len(_SCENARIO_FIELDS):
        raise DatasetError(
            f"{place}: got {len(fields)} fields, {len(_SCENARIO_FIELDS)} are needed: "
            f"{', '.join(_SCENARIO_FIELDS)}"
        )
    bucket, width, height, start_x, start_y, goal_x, goal_y = (
        _whole(fields[i], f"{place}: {_SCENARIO_FIELDS[i]}") for i in (0, 2, 3, 4, 5, 6, 7)
    )
    try:
        length = float(fields[8])
    except ValueError:
        length = math.nan
    if not length >= 0:
        raise DatasetError(f"{place}: optimal length: got {fields[8][:20]!r}, at least 0 is needed")
    return Scenario(bucket, fields[1], width, height, start_x, start_y, goal_x, goal_y, length)


def _whole(text: str, place: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise DatasetError(f"{place}: got {text[:20]!r}, a whole number from 0 is needed")
    return int(text)
