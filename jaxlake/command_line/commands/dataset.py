"""`jaxlake dataset`: make, check, show and convert sets of boards on disk."""

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
    user_errors,
    work_part,
)
from jaxlake.command_line.conversion import check_source, write_boards
from jaxlake.errors import UserError
from jaxlake.remote_files import AnyPath
from jaxlake.text_tables import format_table

_HELP = """\
Make, check, show and convert sets of boards on disk.

exit status: 0 done, 1 boards are missing or differ, 2 invalid input or configuration
"""

_MAKE_HELP = """\
Make distinct, solved boards: a folder with a manifest and a file per part.

Options with several values define a mixture of components with equal numbers of boards, as in
--size 4 6 8 --hole-ratio 0.2; a single value applies to all components. The same command resumes an
interrupted set and ends with the same files. To share the parts among W processes, give each of
them the same arguments and --worker I/W, with I from 0 to W - 1. They may run at different times.

exit status: 0 all boards were made, 1 some are missing, 2 invalid input or configuration
"""

_BENCHMARK_HELP = """\
Make a benchmark with the structure of the paper's (3,150 boards of 3 to 5 agents), and compare its
hashes with the published ones. The files in DIR are benchmark_wr0.25.jsonl, benchmark_wr0.5.jsonl
and benchmark_wr0.75.jsonl.

exit status: 0 the hashes agree, 1 they differ, 2 invalid input or configuration
"""

_INFO_HELP = """\
Show the request of a set and its progress.

exit status: 0 shown, 2 not a set, or --verify found damaged parts
"""

_CONVERT_HELP = """\
Convert boards between formats.

SOURCE  one of: a set; a MovingAI .scen file, with --map and --agents; FILE.jsonl with the lines
        {"id", "grid"} that `jaxlake solve` reads and writes; rows in the published format (.jsonl,
        .parquet, or a folder of these)
TARGET  FILE.jsonl, for lines {"id", "grid"}; or a folder, for a MovingAI .map and .scen per board

Boards that cannot be converted are skipped and counted. A grid has one symbol per cell, so boards
with an agent that starts on another agent's goal can only be written as MovingAI files.

exit status: 0 all were written, 1 some were skipped, 2 invalid input or configuration
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    describe(parser, None, _HELP)
    actions = add_actions(parser)
    _add_make(add_action(actions, "make", _make, "make a large set", _MAKE_HELP))
    benchmark = add_action(
        actions, "benchmark", _make_benchmark, "make or check the benchmark", _BENCHMARK_HELP
    )
    benchmark.add_argument("directory", metavar="DIR", type=local_path, help="folder of the files")
    help_text = "only check the files in DIR"
    benchmark.add_argument("--check", action="store_true", help=help_text)
    info = add_action(actions, "info", _show_info, "show a set", _INFO_HELP)
    info.add_argument("directory", metavar="DIR", type=any_path, help="a set")
    info.add_argument("--verify", action="store_true", help="read every part")
    convert = add_action(
        actions, "convert", _convert, "convert boards between formats", _CONVERT_HELP
    )
    help_text = "a set, a .scen file, boards or published rows"
    convert.add_argument("source", metavar="SOURCE", type=any_path, help=help_text)
    help_text = "FILE.jsonl, or a folder"
    convert.add_argument("target", metavar="TARGET", type=local_path, help=help_text)
    convert.add_argument("--map", metavar="FILE", type=local_path, help="the map of a .scen file")
    help_text = "make a board of every K consecutive rows of a .scen file"
    convert.add_argument("--agents", metavar="K", type=number(int, 1, 5), help=help_text)


def _add_make(parser: argparse.ArgumentParser) -> None:
    help_text = "folder for the set: a new one, or that of a set to resume"
    parser.add_argument("directory", metavar="DIR", type=any_path, help=help_text)
    for name, kind, help_text in (
        ("--size", int, "sides of the boards, 2 to 32"),
        ("--agents", int, "agents on a board, 1 to 5"),
        ("--hole-ratio", float, "shares of all cells, 0 to 1"),
        ("--wait-ratio", float, "shares of the boards that need a wait, 0 to 1"),
    ):
        parser.add_argument(name, metavar="X", type=kind, nargs="+", required=True, help=help_text)
    count = number(int, 1, 1 << 32)
    parser.add_argument("--count", metavar="C", type=count, required=True, help="number of boards")
    add_seed(parser)
    add = parser.add_argument
    help_text = "boards per part, at most 1,048,576 (default: 65,536)"
    add("--part-size", metavar="B", type=number(int, 1, 1 << 20), default=1 << 16, help=help_text)
    help_text = "candidates of each kind per part before giving up (default: 8 per board)"
    add("--max-candidates", metavar="M", type=number(int, 1, 1 << 30), help=help_text)
    help_text = "make only every W-th part, from part I on"
    add("--worker", metavar="I/W", type=work_part, default=(0, 1), help=help_text)


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
            progress=_report_parts,
        )
        summary, table, num_missing = _summarise_set(args.directory)
    print(f"{args.directory}: {summary}")
    if num_missing:
        print(f"jaxlake: {num_missing:,} boards could not be made\n{table}", file=sys.stderr)
    return 1 if num_missing else 0


def _summarise_set(directory: AnyPath) -> tuple[str, str, int]:
    """Return a summary of a set, a table of its components, and the number of missing boards."""
    from jaxlake.datasets import missing_parts, read_counts, read_manifest

    manifest, counts = read_manifest(directory), read_counts(directory)
    num_waits = counts["requested_wait"] - counts["shortfall_wait"]
    num_boards = num_waits + counts["requested_no_wait"] - counts["shortfall_no_wait"]
    num_missing = counts["shortfall_wait"] + counts["shortfall_no_wait"]
    columns = [
        [f"{value:g}" for value in manifest.params[name]]
        for name in ("size", "num_agents", "hole_ratio")
    ]
    for column in (num_waits, num_boards, num_missing, counts["candidates"], counts["unknown"]):
        columns.append([f"{count:,}" for count in column])
    rows = list(zip(*columns, strict=True))
    headers = ("size", "agents", "holes", "waits", "made", "missing", "candidates", "unknown")
    num_parts = manifest.num_parts
    on_disk = num_parts - len(missing_parts(directory))
    summary = f"{num_boards.sum():,} of {manifest.count:,} boards in {on_disk} of {num_parts} parts"
    return summary, format_table(headers, rows), int(num_missing.sum())


def _check_request(args: argparse.Namespace) -> None:
    """Raise `UserError` for an infeasible set, without importing JAX."""
    from jaxlake.board.limits import infeasibility, validate_lake_params

    with user_errors(ValueError):
        fields = validate_lake_params(args.size, args.hole_ratio, args.wait_ratio, args.agents, 1.0)
    columns = [fields[name].tolist() for name in ("size", "hole_ratio", "num_agents")]
    num_components = max(map(len, columns))
    for component in zip(
        *(column * (num_components // len(column)) for column in columns), strict=True
    ):
        if (reason := infeasibility(*component)) is not None:
            raise UserError(reason)


def _report_parts(num_finished: int, num_parts: int) -> None:
    print(f"jaxlake: {num_finished} of {num_parts} parts", file=sys.stderr, flush=True)


def _make_benchmark(args: argparse.Namespace) -> int:
    if args.check and not args.directory.is_dir():
        raise UserError(f"{args.directory}: is not a folder")
    from jaxlake.datasets import DatasetError, paper_benchmark

    def report_cells(cell: str, count: int, total: int) -> None:
        print(f"jaxlake: {cell} ({count} of {total})", file=sys.stderr, flush=True)

    with user_errors(DatasetError):
        if args.check:
            rows = paper_benchmark.read_benchmark(args.directory)
        else:
            rows = paper_benchmark.write_benchmark(args.directory, progress=report_cells)
    record = paper_benchmark.make_record(paper_benchmark.V2, rows)
    print(f"{args.directory}: {record['rows']:,} boards, SHA-256 {record['sha256']}")
    published_record = paper_benchmark.read_published_record()
    differences = paper_benchmark.compare_records(record, published_record)
    for difference in differences:
        print(f"jaxlake: {difference}", file=sys.stderr)
    relation = "differs from" if differences else "equals"
    print(f"the benchmark {relation} the published {record['version']}")
    return 1 if differences else 0


def _show_info(args: argparse.Namespace) -> int:
    if not (path := args.directory / "manifest.json").exists():
        raise UserError(f"{path.parent}: must be the folder of a set, but {path.name} is missing")
    from jaxlake.datasets import DatasetError, read_parts

    with user_errors(DatasetError):
        summary, table, _ = _summarise_set(args.directory)
        print(f"{summary}\n{table}")
        if args.verify:
            print(f"verified {sum(1 for _ in read_parts(args.directory))} parts")
    return 0


def _convert(args: argparse.Namespace) -> int:
    check_source(args)
    from jaxlake import GridError
    from jaxlake.datasets import DatasetError

    with user_errors(DatasetError, GridError):
        num_boards, skip_reasons = write_boards(args)
    print(f"{args.target}: {num_boards:,} boards")
    if skip_reasons:
        num_skipped = f"{len(skip_reasons):,} of {num_boards + len(skip_reasons):,} boards"
        print(f"jaxlake: skipped {num_skipped}, such as {skip_reasons[0]}", file=sys.stderr)
    return 1 if skip_reasons else 0
