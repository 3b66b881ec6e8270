"""`jaxlake check`: plans and models' answers, verified."""

import argparse
from collections.abc import Iterable

from jaxlake.command_line.arguments import add_input, add_output, describe
from jaxlake.command_line.json_lines import LINES_HELP, Answers, answer_file

_HELP = f"""\
Verify plans on boards of one to five agents: JSON lines in, JSON lines out.

in   {{"id": ..., "grid": ["S F G", "s H F", "g F F"], "plan": [["RIGHT", "WAIT"], ["UP"]]}}
     or, instead of plan, "text": a model's whole answer. Starts are S s A B C, goals G g a b c.
     A plan is a list of WAIT, UP, DOWN, LEFT, RIGHT for each agent, 4,096 steps at most; one that
     is shorter than the others waits.
out  {{"id", "parsed", "valid", "optimal_sum_of_costs", "optimal_makespan", "failure", "agent",
     "time", "sum_of_costs", "makespan"}}
     failure is null or the first in time; within one step the first of parse_error, off_board,
     hole, vertex_conflict, swapping_conflict, goal_not_reached. time is its 0-based step (for
     goal_not_reached the number of steps of the plan), agent the lowest number involved; both are
     null for parse_error, and a further field "reason" explains it. The costs are the costs of the
     given plan, null unless it is valid. The optimal_* are null if `jaxlake solve` returns UNKNOWN,
     and with --no-optimum.

{LINES_HELP}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    describe(parser, run, _HELP)
    add_input(parser)
    skip = "do not solve the boards, which takes most of the time"
    parser.add_argument("--no-optimum", action="store_false", dest="optimum", help=skip)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Answer every line of the file."""

    def answer(lines: Iterable[bytes]) -> Answers:
        from jaxlake.command_line.board_records import check_lines

        return check_lines(lines, optimum=args.optimum)

    return answer_file(args.file, args.output, answer, noun="plans")
