"""`jaxlake solve`: the optima of boards from anywhere."""

import argparse

from training.commands import Subparsers
from training.commands.lines import LINES_HELP, answer_file

_DESCRIPTION = f"""\
Solve two-agent boards exactly: JSON lines in, JSON lines out.

in   {{"id": ..., "grid": ["S F G", "s H F", "g F F"]}}
     letters separated by blanks, sizes 2 to 10; F frozen, H hole, agents 0 and 1 start at S and s
     and have their goals at G and g
out  {{"id", "status", "sum_of_costs", "makespan", "needs_wait", "plan": [["RIGHT", ...], ...]}}
     status is OPTIMAL, UNSOLVABLE (proved) or UNKNOWN (the optimum takes more than 1,024 steps);
     the rest is null unless OPTIMAL. The two optima may belong to different plans; the plan
     attains the sum of costs and ends for each agent with its last arrival. needs_wait: every
     plan of this sum of costs has an agent wait before its last arrival.

{LINES_HELP}
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to those of `jaxlake`."""
    parser = subparsers.add_parser(
        "solve",
        help="solve two-agent boards exactly (JSON lines)",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE", help="JSON lines; - reads the standard input")
    parser.add_argument("--output", metavar="FILE", help="write here, not to the standard output")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Carry the command out."""
    from training.boards import solve_lines

    return answer_file(args.file, args.output, solve_lines)
