"""`jaxlake report`: write the report of a run as one HTML page."""

import argparse

from jaxlake.command_line.arguments import add_run, describe, local_path
from jaxlake.command_line.paths import require_writable
from training.commands.trust import add_trust, read_only

_HELP = """\
Write the report of a finished or unfinished run, as one self-contained HTML file.

exit status: 0 the report is written, 2 there is no such run, or its files are invalid
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    describe(parser, run, _HELP)
    add_run(parser)
    add_trust(parser)
    parser.add_argument(
        "--output",
        metavar="FILE",
        type=local_path,
        help="where to write it (default: RUN/report.html)",
    )


@read_only
def run(args: argparse.Namespace) -> int:
    """Write the report and print its path."""
    from training.commands.runs import require_run

    require_run(args.run_dir)
    require_writable(args.output, make_folders=True)
    from training.analysis.report import build_report

    print(build_report(args.run_dir, args.output), flush=True)
    return 0
