"""Read and write MovingAI maps and scenarios (`type octile`, `version 1`).

MovingAI coordinates are (x, y) = (column, row) from the top left; ours are (row, column).
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from jaxlake.board.distance_fields import UNREACHABLE, distances
from jaxlake.board.instance import Instance, agent_tasks, check_board_values, numpy_instance
from jaxlake.board.limits import MAX_SIZE
from jaxlake.datasets.source_files import DatasetError, read_text
from jaxlake.files import write_text_atomic

PASSABLE = ".GS"
"""Passable letters: ground, ground, swamp."""

BLOCKED = "@OTW"
"""Blocked letters: out of bounds (two letters), trees, and water, which is impassable from land."""

_HEADER = re.compile(r"type octile height ([1-9][0-9]{0,3}) width ([1-9][0-9]{0,3}) map")
_FIELDS = (
    *("bucket", "map", "map width", "map height"),
    *("start x", "start y", "goal x", "goal y", "optimal length"),
)
_MAX_DIGITS = 6
_distances = jax.jit(distances)


@dataclass(frozen=True)
class Scenario:
    """One row of a `.scen` file: one agent's task."""

    map_name: str
    map_shape: tuple[int, int]  # (height, width), cells
    start: tuple[int, int]  # (row, column)
    goal: tuple[int, int]  # (row, column)
    origin: str = "scenario"  # FILE:LINE, for messages


def read_map(path: str | Path) -> np.ndarray:
    """Read the passable cells of a `.map` file, bool (height, width).

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
    map_rows = lines[4:]
    while len(map_rows) > height and not map_rows[-1].strip():
        map_rows.pop()
    if len(map_rows) != height:
        raise DatasetError(f"{path}: the map must have {height} rows, got {len(map_rows)}")
    map_rows = [row.rstrip() for row in map_rows]
    for number, row in enumerate(map_rows, start=5):
        if len(row) != width:
            raise DatasetError(f"{path}:{number}: a row must have {width} cells, got {len(row)}")
        if unknown_letters := set(row) - set(PASSABLE + BLOCKED):
            raise DatasetError(
                f"{path}:{number}: cells must be {' '.join(PASSABLE)} (passable) or "
                f"{' '.join(BLOCKED)} (blocked), got {min(unknown_letters)!r}"
            )
    return np.array([[letter in PASSABLE for letter in row] for row in map_rows])


def read_scen(path: str | Path) -> list[Scenario]:
    """Read a `.scen` file of version 1 (`version 1`, `version 1.0`).

    Raises:
        DatasetError: the version, a row's number of fields or a field is wrong; the message names
            the file, the line and the field.
    """
    path = Path(path)
    lines = read_text(path).splitlines()
    if not lines or lines[0].split() not in (["version", "1"], ["version", "1.0"]):
        header = lines[0][:40] if lines else ""
        raise DatasetError(f"{path}:1: the first line must be 'version 1', got {header!r}")
    return [
        _parse_scenario(line, f"{path}:{number}")
        for number, line in enumerate(lines[1:], start=2)
        if line.strip()
    ]


def _parse_scenario(line: str, origin: str) -> Scenario:
    # Names may contain blanks if columns are separated by tabs.
    fields = line.strip().split("\t") if "\t" in line else line.split()
    if len(fields) != len(_FIELDS):
        raise DatasetError(
            f"{origin}: a row must have the {len(_FIELDS)} fields {', '.join(_FIELDS)}, got "
            f"{len(fields)}"
        )
    for name, text in zip(_FIELDS[2:8], fields[2:8], strict=True):
        if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
            requirement = f"a whole number of at most {_MAX_DIGITS} digits"
            raise DatasetError(f"{origin}: {name} must be {requirement}, got {text[:20]!r}")
    width, height, start_x, start_y, goal_x, goal_y = map(int, fields[2:8])
    return Scenario(fields[1], (height, width), (start_y, start_x), (goal_y, goal_x), origin)


def check_map_name(scenarios: Sequence[Scenario], path: str | Path) -> None:
    """Raise `DatasetError` if a row of a scenario is for a map with another file name.

    Only the last component of paths is compared; both kinds of slashes are separators.
    """
    name = Path(path).name
    for row in scenarios:
        if row.map_name.replace("\\", "/").rpartition("/")[2] != name:
            raise DatasetError(f"{row.origin}: the map must be named {row.map_name}, got {path}")


def instance_from_scenarios(
    passable: np.ndarray, scenarios: Sequence[Scenario], num_agents: int
) -> Instance:
    """Return the board of a map, with tasks from the first rows of a scenario.

    Boards are square: a rectangular map is padded with holes. Agent i gets the task of row i.

    Args:
        passable: bool (height, width), from `read_map`.
        scenarios: at least `num_agents` rows.
        num_agents: number of agents.

    Returns:
        The board, with NumPy leaves.

    Raises:
        DatasetError: the map is too large, there are too few rows, a row is for a map of another
            shape, a start or goal is not passable, two starts or two goals are equal, or an agent
            starts at its goal.
    """
    height, width = passable.shape
    side = max(height, width)
    if not 1 <= num_agents <= len(scenarios):
        raise DatasetError(f"num_agents must be in [1, {len(scenarios)}], got {num_agents}")
    if side > MAX_SIZE:
        size_limit = f"{MAX_SIZE}x{MAX_SIZE}"
        raise DatasetError(f"the map must have at most {size_limit} cells, got {height}x{width}")
    for row in scenarios[:num_agents]:
        if row.map_shape != (height, width):
            raise DatasetError(
                f"{row.origin}: for a map of {row.map_shape[0]}x{row.map_shape[1]} cells, "
                f"got {height}x{width}; scaling is not supported"
            )
        for role, (r, c) in (("start", row.start), ("goal", row.goal)):
            if not (r < height and c < width and passable[r, c]):
                place = f"x = {c}, y = {r}"
                raise DatasetError(f"{row.origin}: the {role} {place} must be a passable cell")
    holes = np.ones((side, side), bool)
    holes[:height, :width] = ~passable
    tasks = scenarios[:num_agents]
    starts, goals = (np.array([getattr(row, role) for row in tasks]) for role in ("start", "goal"))
    board = numpy_instance(holes, side, starts.astype(np.int8), goals.astype(np.int8), num_agents)
    try:
        check_board_values(board)
    except ValueError as error:
        raise DatasetError(str(error).replace("instance", tasks[0].origin, 1)) from None
    return board


def write_movingai(directory: str | Path, name: str, instance: Instance) -> None:
    """Write one board to a folder as `NAME.map` and `NAME.scen`, with one row per agent.

    The optimal length of a row is the agent's individual shortest path without diagonal steps, or
    infinity if its goal is unreachable.

    Args:
        directory: the folder, which must exist.
        name: the file name without extension.
        instance: the board, unbatched.
    """
    directory, size = Path(directory), int(instance.size)
    holes = np.asarray(instance.holes)[:size, :size]
    terrain = "".join("".join("@" if hole else "." for hole in row) + "\n" for row in holes)
    header = f"type octile\nheight {size}\nwidth {size}\nmap\n"
    write_text_atomic(directory / f"{name}.map", header + terrain)
    rows = ["version 1"]
    for _, r, c, goal_r, goal_c in agent_tasks(instance):
        steps = int(_distances(instance.holes, np.array([goal_r, goal_c]))[r, c])
        length = math.inf if steps == UNREACHABLE else steps
        rows.append(f"0\t{name}.map\t{size}\t{size}\t{c}\t{r}\t{goal_c}\t{goal_r}\t{length:.8f}")
    write_text_atomic(directory / f"{name}.scen", "\n".join(rows) + "\n")
