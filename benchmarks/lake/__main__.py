"""The command line of the benchmark: `python -m benchmarks.lake`."""

import argparse
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.lake.cases import FULL, QUICK, cases
from benchmarks.lake.comparison import compare, find_failure
from benchmarks.machine import cpu_name, git_commit
from benchmarks.results_file import write_result
from jaxlake.command_line.arguments import number

_DESCRIPTION = """\
Measure the lake on CPUs next to its peers: solving, generating, environment steps.

Both sides of a row run in separate processes and are measured in turns. Compilation is timed
separately. tools/peers.sh installs POGEMA.

exit status: 0 measured, 1 our side failed or the optima of the two sides differ, 2 wrong use
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the rows that the arguments name; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.lake",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the result here too")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--only", metavar="PART", nargs="+", help="parts of rows' names")
    seconds = number(float, 0.001, 1e6)
    parser.add_argument("--seconds", metavar="S", type=seconds, default=1.0, help="of each turn")
    parser.add_argument("--repeats", metavar="R", type=number(int, 1), default=5, help="turns")
    args = parser.parse_args(argv)
    all_cases = cases(QUICK if args.quick else FULL)
    for part in args.only or ():
        if not any(part in case.name for case in all_cases):
            names = ", ".join(case.name for case in all_cases)
            parser.error(f"--only must be part of {names}, got {part!r}")
    num_cores = len(os.sched_getaffinity(0))
    result: dict[str, Any] = {
        "quick": args.quick,
        "commit": git_commit(),
        "seconds": args.seconds,
        "repeats": args.repeats,
        "machine": {"cpu": cpu_name(), "cores": num_cores, "load_before": os.getloadavg()[0]},
        "python": platform.python_version(),
        **{name: version(name) for name in ("jaxlake", "jax", "jaxlib", "numpy")},
        "rows": [],
    }
    num_devices = 1 << (num_cores.bit_length() - 1)  # batches are powers of two
    for case in all_cases:
        if args.only and not any(part in case.name for part in args.only):
            continue
        result["rows"].append(compare(case, args.seconds, args.repeats, num_devices))
        print(format_row(result["rows"][-1]), flush=True)
    if args.json is not None:
        write_result(args.json, result)
    failures = [failure for row in result["rows"] if (failure := find_failure(row))]
    for failure in failures:
        print(f"benchmark: {failure}", file=sys.stderr)
    return 1 if failures else 0


def format_row(row: Mapping[str, Any]) -> str:
    """Return one row as a line of text."""
    sides = (row["ours"], row["peer"])
    rates = [
        f"{side['median']:,.0f} {row['unit']}s/s" if "median" in side else str(side.get("error"))
        for side in sides
    ]
    ratio = row["ratio"]
    ratio_text = "{median:.3g}x ({min:.3g} to {max:.3g})".format(**ratio) if ratio else "no ratio"
    return f"{row['name']}: {rates[0]}, {row['peer']['name']} {rates[1]}, {ratio_text}"


if __name__ == "__main__":
    sys.exit(main())
