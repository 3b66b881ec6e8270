"""`jaxlake bench`: the lake measured beside its peers."""

import argparse
import sys
from pathlib import Path

from training.commands import Subparsers
from training.errors import UserError

_DESCRIPTION = """\
Measure the lake beside its peers: solving, generating, environment steps, verification.

Both sides of a row run in processes of their own and are measured in turns. Compilation is timed
apart. A peer that isn't installed is named in the table; tools/peers.sh installs those that need
an environment of their own. docs/benchmarks.md says what is measured and what the JSON holds.

exit status: 0 measured, 1 our side failed or the optima of the two sides differ, 2 wrong use
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to those of `jaxlake`."""
    parser = subparsers.add_parser(
        "bench",
        help="measure the lake beside its peers",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=["lake"], help="what to measure")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the result here, too")
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: to see that it runs, not to quote"
    )
    parser.add_argument(
        "--only",
        metavar="NAMES",
        default="",
        help="rows and curves whose names contain one of these, parted by commas",
    )
    parser.add_argument(
        "--seconds", metavar="S", type=float, help="of each measurement (default: 3; quick: 0.2)"
    )
    parser.add_argument(
        "--repeats", metavar="R", type=int, help="measurements of each side (default: 5; quick: 2)"
    )
    parser.add_argument(
        "--devices",
        metavar="D",
        type=int,
        help="devices to share batches out over (default: all; on a CPU one a core)",
    )
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Carry the command out."""
    for name in ("seconds", "repeats", "devices"):
        value = getattr(args, name)
        if value is not None and not 0 < value < 1e6:
            raise UserError(f"--{name}: got {value}, more than 0 is allowed")
    root = Path(__file__).resolve().parents[2]
    if not (root / "benchmarks" / "lake").is_dir():
        raise UserError("bench needs a checkout of the repository: benchmarks/ isn't installed")
    sys.path.insert(0, str(root))
    from benchmarks.lake import report
    from benchmarks.lake.protocol import WorkerError
    from benchmarks.lake.run import Options, UnknownNameError, names
    from benchmarks.lake.run import run as run_benchmark

    if args.list:
        print("\n".join(names()))
        return 0
    options = Options(
        quick=args.quick,
        only=[name for name in args.only.split(",") if name],
        seconds=args.seconds,
        repeats=args.repeats,
        devices=args.devices,
    )
    try:
        result, wrong = run_benchmark(
            options, lambda what: print(f"jaxlake: bench: {what}", file=sys.stderr, flush=True)
        )
    except (UnknownNameError, WorkerError) as error:
        raise UserError(str(error)) from None
    print(report.text(result))
    if args.json is not None:
        report.write_json(args.json, result)
    for told in wrong:
        print(f"jaxlake: bench: {told}", file=sys.stderr)
    return 1 if wrong else 0
