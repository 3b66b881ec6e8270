"""Boards from one format into another, for `jaxlake dataset convert`."""

import argparse
import itertools
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jaxlake.board.limits import MAX_AGENTS
from jaxlake.command_line.json_lines import open_output, require_readable
from jaxlake.command_line.paths import file_name, require_writable
from jaxlake.errors import UserError
from jaxlake.files import read_json_lines

if TYPE_CHECKING:
    from jaxlake import Instance


def check_conversion(args: argparse.Namespace) -> None:
    """Raise a `UserError` for files that can't be read or written, before JAX is imported."""
    source = Path(args.source)
    scenarios = source.suffix == ".scen"
    for option, value in (("--agents", args.agents), ("--map", args.map)):
        if value is not None and not scenarios:
            raise UserError(f"{option}: got {value}, allowed with a .scen file only, not {source}")
    if args.agents is not None and not 1 <= args.agents <= MAX_AGENTS:
        raise UserError(f"--agents: got {args.agents}, 1 to {MAX_AGENTS} are allowed")
    if scenarios:
        if args.map is None or args.agents is None:
            raise UserError(f"{source}: --map and --agents are needed for a .scen file")
        require_readable(str(args.map))
        require_readable(args.source)
    elif not source.exists() and not re.fullmatch(r"[\w.-]+/[\w.-]+", args.source):
        problem = "no such file or folder, and not owner/name on the hub"
        raise UserError(f"{args.source}: {problem}")
    if args.target.suffix == ".jsonl":
        require_writable(args.target)
    elif args.target.exists() and not args.target.is_dir():
        raise UserError(f"{args.target}: is a file; FILE.jsonl or a folder is needed")


def write_boards(args: argparse.Namespace) -> int:
    """Write the boards of a source into a target, and return how many there are."""
    write = _write_lines if args.target.suffix == ".jsonl" else _write_movingai
    return write(args.target, _boards(args))


def _boards(args: argparse.Namespace) -> Iterator[tuple[str, "Instance"]]:
    """Yield (id, board) for every board of the source."""
    from jaxlake import datasets
    from jaxlake.datasets.board_sets import MANIFEST

    source = Path(args.source)
    if source.suffix == ".scen":
        yield from _boards_of_scenarios(source, args.map, args.agents)
    elif (source / MANIFEST).exists():
        yield from _boards_of_set(source)
    elif _holds_board_lines(source):
        yield from _boards_of_lines(source)
    else:
        for published in datasets.read_published(args.source):
            config, name = published.config, published.sample_id
            yield name if config is None else f"{config}_{name}", published.instance


def _boards_of_scenarios(source: Path, map_file: Path, K: int) -> Iterator[tuple[str, "Instance"]]:
    from jaxlake import datasets

    grid_map, scenarios = datasets.read_map(map_file), datasets.read_scen(source)
    if (rows := len(scenarios)) < K:
        raise UserError(f"--agents: got {K}, {source} has {rows} rows, so 1 to {rows} are allowed")
    if rest := rows % K:
        print(f"jaxlake: {source}: no board of the last {rest} rows", file=sys.stderr)
    for number in range(rows // K):
        tasks = scenarios[number * K : (number + 1) * K]
        try:
            board = datasets.instance_from_scenarios(grid_map, tasks, K)
        except datasets.DatasetError as error:
            place = f"{source}: board {number}, of the {K} rows from row {number * K} on"
            raise UserError(f"{place}: {error}") from None
        yield f"{source.stem}-{number:05d}", board


def _boards_of_set(source: Path) -> Iterator[tuple[str, "Instance"]]:
    import jax

    from jaxlake import datasets

    numbers = itertools.count()
    for made in datasets.read_parts(source):
        for row in range(len(made.cell)):
            board = jax.tree.map(lambda leaf, row=row: leaf[row], made.instances)
            yield f"{next(numbers):08d}", board


def _boards_of_lines(source: Path) -> Iterator[tuple[str, "Instance"]]:
    from jaxlake import GridError, parse_grid
    from jaxlake.datasets.source_files import read_rows

    for place, record in read_rows(source):
        if not {"id", "grid"} <= record.keys():
            raise UserError(f"{place}: an object with id and grid is needed")
        try:
            yield str(record["id"]), parse_grid(record["grid"])
        except GridError as error:
            raise UserError(f"{place}: {error}") from None


def _holds_board_lines(source: Path) -> bool:
    """Whether this is a file of `{"id", "grid"}` lines, by its first one."""
    if source.suffix != ".jsonl" or not source.is_file():
        return False
    try:
        _, first = next(read_json_lines(source), (0, None))
    except ValueError:
        return False  # the reader of published rows says what is wrong with it
    return isinstance(first, dict) and {"id", "grid"} <= first.keys() - {"sample_id"}


def _write_lines(target: Path, boards: Iterator[tuple[str, "Instance"]]) -> int:
    from jaxlake import format_grid

    count = 0
    with open_output(str(target)) as out:
        for name, board in boards:
            out.write(json.dumps({"id": name, "grid": format_grid(board)}) + "\n")
            count += 1
    return count


def _write_movingai(target: Path, boards: Iterator[tuple[str, "Instance"]]) -> int:
    from jaxlake.datasets import map_from_instance, scenarios_from_instance, write_map, write_scen

    every = list(boards)  # a source that is damaged further down leaves no files
    target.mkdir(parents=True, exist_ok=True)
    names = set[str]()
    for number, (given, board) in enumerate(every, 1):
        name = file_name(given, number, names)
        write_map(target / f"{name}.map", map_from_instance(board))
        write_scen(target / f"{name}.scen", scenarios_from_instance(board, f"{name}.map"))
    return len(names)
