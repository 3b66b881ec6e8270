"""`jaxlake report`: a run's directory as one page."""

import argparse
from pathlib import Path

from training.commands import Subparsers

_DESCRIPTION = """\
Write the report of a run, finished or not: one HTML file that holds everything it needs.

exit status: 0 written, 2 something has to be mended first
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to those of `jaxlake`."""
    parser = subparsers.add_parser(
        "report",
        help="write report.html from a run directory",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run_dir", metavar="RUN_DIR", type=Path, help="a run's directory")
    parser.add_argument(
        "--output", metavar="FILE", type=Path, help="where to (default: RUN_DIR/report.html)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Carry the command out."""
    from training.report import build_report

    print(build_report(args.run_dir, args.output))
    return 0
