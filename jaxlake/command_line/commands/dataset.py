"""`jaxlake dataset`: sets of boards on disk."""

import argparse
import sys

from jaxlake.command_line.arguments import (
    add_action,
    add_actions,
    add_seed,
    any_path,
    describe,
    local_path,
    number,
    share,
    user_errors,
)
from jaxlake.command_line.conversion import check_source, write_boards
from jaxlake.errors import UserError
from jaxlake.remote_files import AnyPath
from jaxlake.text_tables import format_table

_HELP = """\
Sets of boards on disk: make large ones, make or check the benchmark, look at them, convert them.

exit status: 0 done, 1 boards are missing or differ, 2 invalid input or configuration
"""

_MAKE = """\
Make distinct, solved boards: a folder with a manifest and a file per part.

The knobs take one value, or one for each cell of a mixture, which have equal shares of the boards:
--size 4 6 8 --hole-ratio 0.2. The same command resumes an interrupted set and ends with the same
files. Several processes share the parts of a set by --worker I/W, with I from 0 to W - 1 and all
else alike; they need not run at the same time.

exit status: 0 all boards were made, 1 some are missing, 2 invalid input or configuration
"""

_BENCHMARK = """\
Make the benchmark of the paper's shape (3,150 boards of 3 to 5 agents) and compare its hashes with
those that this package holds. DIR gets benchmark_wr0.25.jsonl, ..._wr0.5 and ..._wr0.75.

exit status: 0 the hashes agree, 1 they differ, 2 invalid input or configuration
"""

_INFO = """\
Show the request of a set and its progress.

exit status: 0 shown, 2 not a set, or --verify found damaged parts
"""

_CONVERT = """\
Convert boards between formats.

SOURCE  a set; a MovingAI .scen file with --map and --agents; FILE.jsonl of the {"id", "grid"} lines
        that `jaxlake solve` reads and writes; rows in the published format (.jsonl, .parquet, or
        a folder of these)
TARGET  FILE.jsonl: {"id", "grid"} lines for `jaxlake solve`; any other name: a folder, which gets
        a MovingAI .map and .scen for each board

Boards that a lake or the target cannot hold are skipped and counted. Lines of boards have one
symbol per cell, so boards whose agents start on the goals of others can only become MovingAI files.

exit status: 0 all were written, 1 some were skipped, 2 invalid input or configuration
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    describe(parser, None, _HELP)
    actions = add_actions(parser)
    _add_make(add_action(actions, "make", _make, "make a large set", _MAKE))
    benchmark = add_action(
        actions, "benchmark", _benchmark, "make or check the benchmark", _BENCHMARK
    )
    benchmark.add_argument("directory", metavar="DIR", type=local_path, help="where to")
    check = "only check the files in DIR"
    benchmark.add_argument("--check", action="store_true", help=check)
    info = add_action(actions, "info", _info, "show a set", _INFO)
    info.add_argument("directory", metavar="DIR", type=any_path, help="a set")
    info.add_argument("--verify", action="store_true", help="read every part")
    convert = add_action(actions, "convert", _convert, "convert boards between formats", _CONVERT)
    convert.add_argument(
        "source", metavar="SOURCE", type=any_path, help="a set, MovingAI, boards, published rows"
    )
    convert.add_argument(
        "target", metavar="TARGET", type=local_path, help="FILE.jsonl, or a folder"
    )
    convert.add_argument("--map", metavar="FILE", type=local_path, help="the map of a .scen file")
    agents = "a board for every K rows of a .scen file"
    convert.add_argument("--agents", metavar="K", type=number(int, 1, 5), help=agents)


def _add_make(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory", metavar="DIR", type=any_path, help="a new folder, or to resume in"
    )
    for name, kind, help_text in (
        ("--size", int, "sides of the boards, 2 to 32"),
        ("--agents", int, "agents on a board, 1 to 5"),
        ("--hole-ratio", float, "shares of all cells, 0 to 1"),
        ("--wait-ratio", float, "shares of the boards that need a wait, 0 to 1"),
    ):
        parser.add_argument(name, metavar="X", type=kind, nargs="+", required=True, help=help_text)
    parser.add_argument(
        "--count", metavar="C", type=number(int, 1, 1 << 32), required=True, help="boards in all"
    )
    add_seed(parser)
    size_help = "boards per part, at most 1,048,576 (default: 65,536)"
    candidates_help = "boards of a kind to draw per part before giving up (default: 8 per board)"
    worker_help = "make only every W-th part, from part I on"
    part_size, candidates = number(int, 1, 1 << 20), number(int, 1, 1 << 30)
    parser.add_argument("--part-size", metavar="B", type=part_size, default=1 << 16, help=size_help)
    parser.add_argument("--max-candidates", metavar="M", type=candidates, help=candidates_help)
    parser.add_argument("--worker", metavar="I/W", type=share, default=(0, 1), help=worker_help)


def _make(args: argparse.Namespace) -> int:
    _check_request(args)
    from jaxlake.datasets import make_set
    from jaxlake.generator import lake_params
    from jaxlake.runtime.random_keys import threefry_key

    with user_errors(ValueError):
        params = lake_params(args.size, args.hole_ratio, args.wait_ratio, args.agents)
        make_set(
            args.directory,
            threefry_key(args.seed),
            params,
            args.count,
            part_size=args.part_size,
            worker=args.worker,
            max_size=max(args.size),
            max_agents=max(args.agents),
            max_candidates=args.max_candidates,
            progress=_report,
        )
        state, table, missing = _progress_of_set(args.directory)
    print(f"{args.directory}: {state}")
    if missing:
        print(f"jaxlake: {missing:,} boards could not be made\n{table}", file=sys.stderr)
    return 1 if missing else 0


def _progress_of_set(directory: AnyPath) -> tuple[str, str, int]:
    """Return the progress of a set, a table of its kinds, and the number of missing boards."""
    from jaxlake.datasets import missing_parts, read_counts, read_manifest

    manifest, counts = read_manifest(directory), read_counts(directory)
    waits = counts["requested_wait"] - counts["shortfall_wait"]
    num_boards = waits + counts["requested_no_wait"] - counts["shortfall_no_wait"]
    missing = counts["shortfall_wait"] + counts["shortfall_no_wait"]
    params = manifest.params
    kinds = zip(params["size"], params["num_agents"], params["hole_ratio"], strict=True)
    columns = (waits, num_boards, missing, counts["candidates"], counts["unknown"])
    rows = [
        (*(f"{value:g}" for value in kind), *(f"{column[cell]:,}" for column in columns))
        for cell, kind in enumerate(kinds)
    ]
    heads = ("size", "agents", "holes", "waits", "made", "missing", "candidates", "unknown")
    parts = manifest.num_parts
    on_disk = parts - len(missing_parts(directory))
    state = f"{num_boards.sum():,} of {manifest.count:,} boards in {on_disk} of {parts} parts"
    return state, format_table(heads, rows), int(missing.sum())


def _check_request(args: argparse.Namespace) -> None:
    """Raise `UserError` for an infeasible set, without importing JAX."""
    from jaxlake.board.limits import infeasibility, validate_mixture

    with user_errors(ValueError):
        fields = validate_mixture(args.size, args.hole_ratio, args.wait_ratio, args.agents, 1.0)
    columns = [fields[name].tolist() for name in ("size", "hole_ratio", "num_agents")]
    cells = max(map(len, columns))
    for kind in zip(*(column * (cells // len(column)) for column in columns), strict=True):
        if (reason := infeasibility(*kind)) is not None:
            raise UserError(reason)


def _report(count: int, parts: int) -> None:
    print(f"jaxlake: {count} of {parts} parts", file=sys.stderr, flush=True)


def _benchmark(args: argparse.Namespace) -> int:
    if args.check and not args.directory.is_dir():
        raise UserError(f"{args.directory}: is not a folder")
    from jaxlake.datasets import DatasetError, paper_benchmark

    def report(cell: str, count: int, total: int) -> None:
        print(f"jaxlake: {cell} ({count} of {total})", file=sys.stderr, flush=True)

    with user_errors(DatasetError):
        if args.check:
            rows = paper_benchmark.read_benchmark(args.directory)
        else:
            rows = paper_benchmark.write_benchmark(args.directory, progress=report)
    record = paper_benchmark.make_record(paper_benchmark.V2, rows)
    print(f"{args.directory}: {record['rows']:,} boards, SHA-256 {record['sha256']}")
    differences = paper_benchmark.record_differences(record, paper_benchmark.committed_record())
    for line in differences:
        print(f"jaxlake: {line}", file=sys.stderr)
    print("they differ from" if differences else "they are", f"the published {record['version']}")
    return 1 if differences else 0


def _info(args: argparse.Namespace) -> int:
    if not (path := args.directory / "manifest.json").exists():
        raise UserError(f"{path}: is missing, so the folder is not a set of boards")
    from jaxlake.datasets import DatasetError, read_parts

    with user_errors(DatasetError):
        state, table, _ = _progress_of_set(args.directory)
        print(f"{state}\n{table}")
        if args.verify:
            print(f"verified {sum(1 for _ in read_parts(args.directory))} parts")
    return 0


def _convert(args: argparse.Namespace) -> int:
    check_source(args)
    from jaxlake import GridError
    from jaxlake.datasets import DatasetError

    with user_errors(DatasetError, GridError):
        count, skipped = write_boards(args)
    print(f"{args.target}: {count:,} boards")
    if skipped:
        share = f"{len(skipped):,} of {count + len(skipped):,} boards"
        print(f"jaxlake: skipped {share}, such as {skipped[0]}", file=sys.stderr)
    return 1 if skipped else 0
