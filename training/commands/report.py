"""`jaxlake report`: a run's directory as one HTML page."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from jaxlake.command_line.arguments import add_run, describe
from jaxlake.command_line.paths import require_writable

if TYPE_CHECKING:
    from training.run.directory import RunDirectory

_HELP = """\
Write the report of a run, finished or not: one HTML file that holds everything it needs.

exit status: 0 the report is written, 2 there is no such run, or its files are invalid
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    describe(parser, run, _HELP)
    add_run(parser)
    parser.add_argument(
        "--output", metavar="FILE", type=Path, help="where to write it (default: RUN/report.html)"
    )


def run(args: argparse.Namespace) -> int:
    """Write the report and print its path."""
    from training.commands.runs import begun_run

    directory = begun_run(args.run_dir)
    require_writable(args.output, make_folders=True)
    from training.analysis.report import build_report

    print(build_report(args.run_dir, args.output), flush=True)
    _say_rates(directory)
    return 0


def _say_rates(directory: "RunDirectory") -> None:
    """Say on stderr how the last stage with a validation did; the path alone is the output."""
    from training.errors import UserError
    from training.run.answer_records import count_answers
    from training.run.progress import status_console
    from training.run.rates import success_rates

    stages = {stage: directory.stage(stage).episodes for stage in directory.stage_numbers()}
    last = [stage for stage, file in stages.items() if file.exists()][-1:]
    for stage in last:
        try:
            rates = count_answers(stage, stages[stage].read())
            line = f"stage {stage}: {success_rates(rates.total)}"
        except UserError as error:  # The page names it, too.
            line = f"{error}; its rates are left out"
        status_console.print(line, soft_wrap=True, markup=False)
