"""Convert boards between formats, for `jaxlake dataset convert`."""

import argparse
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jaxlake.command_line.arguments import reject_ignored
from jaxlake.command_line.json_lines import open_output, require_readable
from jaxlake.command_line.paths import make_unique_name
from jaxlake.errors import UserError
from jaxlake.remote_files import AnyPath, RemotePath

if TYPE_CHECKING:
    from jaxlake import Instance

Boards = Iterator[tuple[str, "Instance"]]
"""(id, board)"""


def check_source(args: argparse.Namespace) -> None:
    """Raise `UserError` for an unreadable source, without importing JAX."""
    source = args.source
    if isinstance(source, RemotePath):
        reject_ignored(args, str(source), ("--map", "--agents"))
        if not (source / "manifest.json").exists():
            raise UserError(f"{source}: a URL must name a set of boards")
        return
    if source.suffix == ".scen":
        if args.map is None or args.agents is None:
            raise UserError(f"{source}: --map and --agents must be set for a .scen file")
        require_readable(str(args.map))
        require_readable(str(source))
        return
    if source.suffix == ".map":
        raise UserError(f"SOURCE must be the .scen file, with its map in --map, got {source}")
    reject_ignored(args, str(source), ("--map", "--agents"))
    if not source.exists():
        raise UserError(f"{source}: no such file or folder")


def write_boards(args: argparse.Namespace) -> tuple[int, list[str]]:
    """Write the boards of a source to a target.

    Returns:
        The number of boards, and one sentence per board that cannot be converted.
    """
    skip_reasons: list[str] = []
    boards = _read_source(args, skip_reasons)
    if args.target.suffix == ".jsonl":
        return _write_lines(args.target, boards, skip_reasons), skip_reasons
    return _write_movingai(args.target, boards), skip_reasons


def _read_source(args: argparse.Namespace, skip_reasons: list[str]) -> Boards:
    source = args.source
    if source.suffix == ".scen":
        return _read_scenarios(source, args.map, args.agents, skip_reasons)
    if (source / "manifest.json").exists():
        return _read_set(source)
    if source.suffix == ".jsonl" and source.is_file():
        with source.open("rb") as lines:
            if b'"sample_id"' not in lines.readline():
                return _read_lines(source)
    return _read_published(source)


def _read_scenarios(
    source: Path, map_file: Path, num_agents: int, skip_reasons: list[str]
) -> Boards:
    """Yield one board for each `num_agents` consecutive rows of a .scen file."""
    from jaxlake import datasets

    passable, scenarios = datasets.read_map(map_file), datasets.read_scen(source)
    datasets.check_map_name(scenarios, map_file)
    num_boards, num_unused = divmod(len(scenarios), num_agents)
    if not num_boards:
        raise UserError(
            f"--agents must be at most {len(scenarios)}, the number of rows of {source}, "
            f"got {num_agents}"
        )
    if num_unused:
        print(f"jaxlake: {source}: the last {num_unused} rows are not used", file=sys.stderr)
    for number in range(num_boards):
        name = f"{source.stem}-{number:05d}"
        rows = scenarios[number * num_agents : (number + 1) * num_agents]
        try:
            board = datasets.instance_from_scenarios(passable, rows, num_agents)
        except datasets.DatasetError as error:
            skip_reasons.append(f"{name}: {error}")
        else:
            yield name, board


def _read_set(source: AnyPath) -> Boards:
    import jax

    from jaxlake import datasets

    counter = itertools.count()
    for part in datasets.read_parts(source):
        for row in range(len(part.component)):
            board = jax.tree.map(lambda leaf, row=row: leaf[row], part.instances)
            yield f"{next(counter):08d}", board


def _read_lines(source: Path) -> Boards:
    from jaxlake import GridError, parse_grid
    from jaxlake.datasets.source_files import read_rows

    for location, record in read_rows(source):
        if not {"id", "grid"} <= record.keys():
            raise UserError(f"{location}: a line must be an object with id and grid")
        try:
            yield str(record["id"]), parse_grid(record["grid"])
        except GridError as error:
            raise UserError(f"{location}: {error}") from None


def _read_published(source: Path) -> Boards:
    from jaxlake import datasets

    for row in datasets.read_published(source):
        yield row.sample_id if row.config is None else f"{row.config}_{row.sample_id}", row.instance


def _write_lines(target: Path, boards: Boards, skip_reasons: list[str]) -> int:
    from jaxlake import GridError, format_grid

    count = 0
    with open_output(str(target)) as out:
        for name, board in boards:
            try:
                grid = format_grid(board)
            except GridError as error:
                skip_reasons.append(f"{name}: {error}")
                continue
            out.write(json.dumps({"id": name, "grid": grid}) + "\n")
            count += 1
    return count


def _write_movingai(target: Path, boards: Boards) -> int:
    from jaxlake.datasets import write_movingai

    all_boards = list(boards)  # read everything first, so that a damaged source leaves no files
    target.mkdir(parents=True, exist_ok=True)
    used_names = set[str]()
    for number, (name, board) in enumerate(all_boards, 1):
        write_movingai(target, make_unique_name(name, number, used_names), board)
    return len(all_boards)
