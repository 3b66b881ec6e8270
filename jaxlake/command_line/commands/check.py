"""`jaxlake check`: verify plans and models' answers."""

import argparse
from collections.abc import Iterable

from jaxlake.command_line.arguments import add_input, add_output, describe
from jaxlake.command_line.json_lines import LINES_HELP, Results, process_file

_HELP = f"""\
Verify plans on boards of one to five agents: JSON lines in, JSON lines out.

in   {{"id": ..., "grid": ["S F G", "s H F", "g F F"], "plan": [["RIGHT", "WAIT"], ["UP"]]}}
     grid      as for `jaxlake solve`
     plan      one list of WAIT, UP, DOWN, LEFT and RIGHT per agent, with at most 4,096 actions;
               an agent waits after the end of its list
     text      a model's complete answer, instead of plan
out  {{"id", "parsed", "valid", "optimal_sum_of_costs", "optimal_makespan", "failure", "agent",
     "time", "sum_of_costs", "makespan"}}
     failure   the first failure of the plan in time, or null. Failures of the same step have the
               order parse_error, off_board, hole, vertex_conflict, swapping_conflict,
               goal_not_reached.
     agent     the lowest agent involved in the failure; null for parse_error
     time      the 0-based step of the failure; for goal_not_reached, the number of steps of the
               plan; null for parse_error
     reason    why the plan can't be parsed; exists only for parse_error
     sum_of_costs, makespan
               the costs of the plan; null unless it is valid
     optimal_sum_of_costs, optimal_makespan
               null if `jaxlake solve` returns UNKNOWN, or with --no-optimum

{LINES_HELP}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    describe(parser, run, _HELP)
    add_input(parser)
    help_text = "do not solve the boards, which takes most of the time"
    parser.add_argument("--no-optimum", action="store_false", dest="optimum", help=help_text)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Check the plan of every line."""

    def check(lines: Iterable[bytes]) -> Results:
        from jaxlake.command_line.board_records import check_lines

        return check_lines(lines, optimum=args.optimum)

    return process_file(args.file, args.output, check, noun="plans")
