"""`jaxlake dataset`: sets of boards on disk."""

import argparse
import re
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from jaxlake.command_line.arguments import (
    add_action,
    add_actions,
    add_seed,
    describe,
    number,
    user_errors,
)
from jaxlake.command_line.conversion import check_conversion, write_boards
from jaxlake.command_line.extras import require_package
from jaxlake.command_line.json_lines import ProgressLine
from jaxlake.errors import UserError
from jaxlake.text_tables import aligned_text

if TYPE_CHECKING:
    from jaxlake.datasets import Manifest, WriteProgress
    from jaxlake.datasets.paper_benchmark import BenchmarkCell

_MANIFEST = "manifest.json"  # `jaxlake.datasets.manifest.FILE_NAME`, whose package imports JAX

_HELP = """\
Sets of boards on disk: make large ones, make or check the benchmark, look at them, convert them.

exit status: 0 done, 1 boards are missing or differ, 2 invalid input or configuration
"""

_MAKE = """\
Make distinct, solved boards in Parquet shards with a manifest; see the package jaxlake.datasets.

The knobs take one value, or one for each cell of a mixture: --size 4 6 8 --hole-ratio 0.2. Boards
are shared out by --data-ratio (equally unless given). A shard is written whole, then the manifest;
the same command goes on where an interrupted one stopped, and ends with the same files.

On several machines, each process makes one part of the set by --part I/P, with I from 0 to P - 1
and all else alike, and `jaxlake dataset merge DIR` makes one set of them. Parts have no board in
common, and don't wait for each other.

exit status: 0 all boards were made, 1 some are missing, 2 invalid input or configuration
"""

_MERGE = """\
Make one set of its parts (`jaxlake dataset make --part`): check that the folders of all of them are
in DIR, complete and of one request, and write the manifest of the set. No shard is moved. Parts
that were made on other disks are copied to DIR first, folder by folder.

exit status: 0 merged, all boards are there, 1 merged, some are missing, 2 invalid or missing parts
"""

_BENCHMARK = """\
Make the benchmark of the paper's shape (3,150 boards of 3 to 5 agents) and compare its hashes with
those that this package holds. DIR gets benchmark_wr0.25.jsonl, ..._wr0.5, ..._wr0.75, and
paper_benchmark_v2.json with the hashes.

exit status: 0 the hashes agree, 1 they differ, 2 invalid input or configuration
"""

_INFO = """\
Show what a set of shards was asked to be, and what it is so far.

exit status: 0 shown, 2 it is no set, or --verify found a damaged one
"""

_CONVERT = """\
Convert boards between formats.

SOURCE  a folder of shards; a MovingAI .scen file with --map and --agents; FILE.jsonl of the
        {"id", "grid"} lines that `jaxlake solve` reads and writes; rows in the published format
        (.jsonl, .json, .csv, .parquet, a folder of these, or owner/name on the hub)
TARGET  FILE.jsonl: {"id", "grid"} lines for `jaxlake solve`; any other name: a folder, which gets
        a MovingAI .map and .scen for each board

exit status: 0 written, 2 invalid input or configuration
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    describe(parser, None, _HELP)
    actions = add_actions(parser)
    _add_make(add_action(actions, "make", _make, "make a large set in shards", _MAKE))
    merge = add_action(actions, "merge", _merge, "make one set of its parts", _MERGE)
    merge.add_argument("directory", metavar="DIR", type=Path, help="the folder of the parts")
    what = "read every shard, compare its hashes, see that its boards belong to its part"
    merge.add_argument("--verify", action="store_true", help=what)
    benchmark = add_action(
        actions, "benchmark", _benchmark, "make or check the benchmark", _BENCHMARK
    )
    benchmark.add_argument("directory", metavar="DIR", type=Path, help="where to")
    check = "make nothing: check the files that are in DIR"
    benchmark.add_argument("--check", action="store_true", help=check)
    info = add_action(actions, "info", _info, "show a set of shards", _INFO)
    info.add_argument("directory", metavar="DIR", type=Path, help="a set of shards")
    info.add_argument("--verify", action="store_true", help="read every shard, compare its hashes")
    convert = add_action(actions, "convert", _convert, "convert boards between formats", _CONVERT)
    convert.add_argument(
        "source", metavar="SOURCE", help="shards, MovingAI, boards or published rows"
    )
    convert.add_argument("target", metavar="TARGET", type=Path, help="FILE.jsonl, or a folder")
    convert.add_argument("--map", metavar="FILE", type=Path, help="the map of a .scen file")
    agents = "a board for every K rows of a .scen file"
    convert.add_argument("--agents", metavar="K", type=int, help=agents)
    convert.add_argument("--config", metavar="NAME", help="benchmark_wr... of published rows")


def _add_make(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", type=Path, help="a new folder, or to go on in")
    for name, kind, what in (
        ("--size", int, "sides of the boards, 2 to 32"),
        ("--agents", int, "agents on a board, 1 to 5"),
        ("--hole-ratio", float, "shares of all cells, 0 to 1"),
        ("--wait-ratio", float, "shares of the boards that need a wait, 0 to 1"),
    ):
        parser.add_argument(name, metavar="X", type=kind, nargs="+", required=True, help=what)
    parser.add_argument(
        "--data-ratio", metavar="X", type=float, nargs="+", default=[1.0], help="weights of cells"
    )
    count = number(int, 1, (1 << 31) - 1)
    parser.add_argument("--count", metavar="C", type=count, required=True, help="boards in all")
    add_seed(parser)
    tries = "boards to draw for one cell in one shard before giving up (default: 262,144)"
    for name, metavar, least, most, default, what in (
        ("--shard-size", "B", 1, 1 << 16, 4096, "boards per file (default: 4,096)"),
        ("--max-candidates", "M", 1, 1 << 30, 1 << 18, tries),
        ("--max-size", "N", 2, 32, None, "padding (default: the largest size)"),
        ("--max-agents", "K", 1, 5, None, "padding (default: the most agents)"),
    ):
        read = number(int, least, most)
        parser.add_argument(name, metavar=metavar, type=read, default=default, help=what)
    parser.add_argument(
        "--part", metavar="I/P", type=_part, default=(0, 1), help="make part I of P parts, I from 0"
    )


def _part(text: str) -> tuple[int, int]:
    """Read a part such as 3/8."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not int(match[1]) < int(match[2]):
        raise argparse.ArgumentTypeError(f"got {text}, I/P with I from 0 to P - 1 is needed")
    return int(match[1]), int(match[2])


def _make(args: argparse.Namespace) -> int:
    _check_request(args)
    require_package("pyarrow")

    from jaxlake.datasets import write_shards
    from jaxlake.generator import lake_params
    from jaxlake.runtime.random_keys import threefry_key

    with user_errors(ValueError):
        params = lake_params(
            args.size, args.hole_ratio, args.wait_ratio, args.agents, args.data_ratio
        )
        manifest = write_shards(
            args.directory,
            threefry_key(args.seed),
            params,
            args.count,
            shard_size=args.shard_size,
            max_size=args.max_size or max(args.size),
            max_agents=args.max_agents or max(args.agents),
            max_candidates=args.max_candidates,
            part=args.part,
            progress=_progress_line(),
        )
    return _report(args.directory, manifest)


def _check_request(args: argparse.Namespace) -> None:
    """Raise a `UserError` for a set that can't be made, before JAX is imported."""
    from jaxlake.board.limits import checked_mixture, infeasibility

    with user_errors(ValueError):
        fields = checked_mixture(
            args.size, args.hole_ratio, args.wait_ratio, args.agents, args.data_ratio
        )
    cells = max(map(len, fields.values()))
    names = ("size", "hole_ratio", "num_agents")
    columns = [(fields[name].tolist() * cells)[:cells] for name in names]
    for size, ratio, agents in zip(*columns, strict=True):
        if (reason := infeasibility(size, ratio, agents)) is not None:
            raise UserError(reason)
    for option, padding, values in (
        ("--max-size", args.max_size, args.size),
        ("--max-agents", args.max_agents, args.agents),
    ):
        if padding is not None and padding < max(values):
            raise UserError(f"{option}: got {padding}, at least {max(values)} is needed")
    if args.part[1] > (shards := -(-args.count // args.shard_size)):
        part = "/".join(map(str, args.part))
        raise UserError(f"--part: got {part}, P up to {shards} is allowed, the number of shards")
    if args.directory.exists() and not args.directory.is_dir():
        raise UserError(f"{args.directory}: is a file; a new folder, or one to go on in, is needed")


def _require_folder(folder: Path) -> None:
    """Raise a `UserError` if there is no such folder, before JAX is imported."""
    if not folder.is_dir():
        problem = "is no folder" if folder.exists() else "there is no such folder"
        raise UserError(f"{folder}: {problem}")


def _merge(args: argparse.Namespace) -> int:
    _require_folder(args.directory)
    from jaxlake.datasets import DatasetError, merge_parts

    with user_errors(DatasetError):
        manifest = merge_parts(args.directory, verify=args.verify)
    return _report(args.directory, manifest)


def _report(directory: Path, manifest: "Manifest") -> int:
    """Say what a set or a part has and what it lacks; return the exit status."""
    request = manifest.request
    part = "" if request.part is None else f", part {request.part}/{request.parts}"
    print(f"{directory}{part}: {manifest.rows:,} boards in {manifest.num_shards} shards")
    for cell in manifest.cells:
        if cell["shortfall_wait"] or cell["shortfall_no_wait"]:
            print(
                f"jaxlake: {cell['size']}x{cell['size']}, {cell['num_agents']} agents, hole_ratio "
                f"{cell['hole_ratio']:g}, wait_ratio {cell['wait_ratio']:g}: "
                f"{cell['shortfall_wait']} boards that need a wait and "
                f"{cell['shortfall_no_wait']} that need none are missing after "
                f"{cell['candidates']} candidates",
                file=sys.stderr,
            )
    return 1 if manifest.rows < manifest.count else 0


def _progress_line() -> Callable[["WriteProgress"], None]:
    """Say on stderr how far the set is."""
    line = ProgressLine()
    resumed: int | None = None

    def report(progress: "WriteProgress") -> None:
        nonlocal resumed
        if resumed is None:
            resumed = progress.handled
            if resumed:
                print(f"jaxlake: going on after {progress.rows:,} boards", file=sys.stderr)
            return
        last = progress.shards == progress.num_shards
        if not (last or line.due):
            return
        rate = (progress.handled - resumed) / line.seconds
        left = (progress.count - progress.handled) / rate if rate else 0.0
        line.write(
            f"{progress.handled:,} of {progress.count:,} boards, shard {progress.shards} of "
            f"{progress.num_shards}, {rate:,.0f}/s, {timedelta(seconds=round(left))} left",
            last=last,
        )

    return report


def _benchmark(args: argparse.Namespace) -> int:
    if args.check:
        _require_folder(args.directory)
    from jaxlake.datasets import DatasetError, paper_benchmark
    from jaxlake.language.prompts import render

    def report(cell: "BenchmarkCell", done: int, of: int) -> None:
        spent = f"{cell.counters['candidates']:,} candidates, {cell.counters['unknown']} unknown"
        print(f"jaxlake: {cell.name} ({done} of {of}): {spent}", file=sys.stderr, flush=True)

    with user_errors(DatasetError):
        if args.check:
            rows, beside = paper_benchmark.read_benchmark(args.directory)
            unknown = {name: cell["unknown"] for name, cell in beside["cells"].items()}
            record = paper_benchmark.make_record(paper_benchmark.V2, rows, unknown)
        else:
            record = paper_benchmark.write_benchmark(
                args.directory, text=lambda board: render(board, "full"), progress=report
            )
        print(f"{args.directory}: {record['rows']:,} boards, SHA-256 {record['sha256']}")
        published = paper_benchmark.committed_record()
        differing = paper_benchmark.record_differences(record, published)
    for line in differing:
        print(f"jaxlake: {line}", file=sys.stderr)
    print("they differ from" if differing else "they are", f"the published {record['version']}")
    return 1 if differing else 0


def _info(args: argparse.Namespace) -> int:
    _require_folder(args.directory)
    if not (path := args.directory / _MANIFEST).exists():
        raise UserError(f"{path}: is missing, so the folder is not a set of shards")
    from jaxlake.datasets import DatasetError, read_manifest, read_shards

    with user_errors(DatasetError):
        manifest = read_manifest(args.directory)
    request = manifest.request
    state = "complete" if manifest.complete else "incomplete"
    part = "" if request.part is None else f" part {request.part}/{request.parts}"
    said = (
        f"{state}{part}: {manifest.rows:,} of {manifest.count:,} boards in "
        f"{len(manifest.shards)} of {manifest.num_shards} shards, padded to "
        f"{request.max_size}x{request.max_size} and {request.max_agents} agents, "
        f"made by jaxlake {manifest.jaxlake}"
    )
    print(said)
    heads = ("size", "agents", "holes", "waits", "made", "missing", "candidates", "unknown")
    rows = []
    for cell in manifest.cells:
        made = cell["made_wait"] + cell["made_no_wait"]
        missing = cell["shortfall_wait"] + cell["shortfall_no_wait"]
        counts = (cell["made_wait"], made, missing, cell["candidates"], cell["unknown"])
        kind = (f"{cell['size']}", f"{cell['num_agents']}", f"{cell['hole_ratio']:g}")
        rows.append((*kind, *(f"{count:,}" for count in counts)))
    print(aligned_text(heads, rows))
    if args.verify:
        with user_errors(DatasetError):
            shards = sum(1 for _ in read_shards(args.directory))
        print(f"verified {shards} shards")
    return 0


def _convert(args: argparse.Namespace) -> int:
    check_conversion(args)
    from jaxlake import GridError
    from jaxlake.datasets import DatasetError

    try:
        with user_errors(DatasetError, GridError):
            count = write_boards(args)
    except ModuleNotFoundError as error:
        # The reader's own message names the extra that it needs.
        if error.name in ("huggingface_hub", "pyarrow"):
            raise UserError(str(error)) from None
        raise
    print(f"{args.target}: {count:,} boards")
    return 0
