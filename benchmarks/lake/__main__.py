"""The command line of the benchmark: `python -m benchmarks.lake`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.lake import tables
from benchmarks.lake.benchmark import UnknownNameError, names, run
from benchmarks.lake.protocol import WorkerError
from jaxlake.command_line.arguments import number

_DESCRIPTION = """\
Measure the lake beside its peers: solving, generating, environment steps, verification.

Both sides of a row run in processes of their own and are measured in turns. Compilation is timed
separately. A peer that isn't installed is named in the table; tools/peers.sh installs those that
need an environment of their own. docs/benchmarks.md says what is measured and what the JSON holds.

exit status: 0 measured, 1 our side failed or the optima of the two sides differ, 2 wrong use
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what the arguments ask for; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.lake",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the result here too")
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: to see that it runs, not to quote"
    )
    parser.add_argument(
        "--only",
        metavar="NAMES",
        default=[],
        type=lambda names: [name for name in names.split(",") if name],
        help="rows and curves whose names contain one of these, separated by commas",
    )
    parser.add_argument(
        "--seconds",
        metavar="S",
        type=number(float, 0.001, 1e6),
        help="length of one measurement (default: 3; quick: 0.2)",
    )
    parser.add_argument(
        "--repeats",
        metavar="R",
        type=number(int, 1),
        help="measurements of each side (default: 5; quick: 2)",
    )
    parser.add_argument(
        "--devices",
        metavar="D",
        type=number(int, 1),
        help="devices to share batches out over (default: all; on a CPU one per core)",
    )
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    args = parser.parse_args(argv)
    if args.list:
        print("\n".join(names()))
        return 0
    try:
        result, wrong = run(args, _say)
    except (UnknownNameError, WorkerError) as error:
        _say(f"error: {error}")
        return 2
    print(tables.text(result))
    if args.json is not None:
        tables.write_json(args.json, result)
    for message in wrong:
        _say(message)
    return 1 if wrong else 0


def _say(message: str) -> None:
    print(f"benchmark: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
