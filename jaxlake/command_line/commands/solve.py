"""`jaxlake solve`: solve boards exactly."""

import argparse
from collections.abc import Iterable

from jaxlake.command_line.arguments import add_input, add_output, describe
from jaxlake.command_line.json_lines import LINES_HELP, Results, process_file

_HELP = f"""\
Solve boards of one to five agents exactly: JSON lines in, JSON lines out.

in   {{"id": ..., "grid": ["S F G", "s H F", "g F F"]}}
     grid      2 to 32 rows of letters separated by spaces: F is frozen, H is a hole, agents start
               at S s A B C and have their goals at G g a b c
out  {{"id", "grid", "status", "sum_of_costs", "makespan", "needs_wait",
     "plan": [["RIGHT", ...], ...], "makespan_plan": [["RIGHT", ...], ...], "expansions"}}
     grid      the input, so that `jaxlake render -` and `jaxlake check -` can read the results
     status    OPTIMAL, UNSOLVABLE (proved) or UNKNOWN. UNKNOWN means that a search has replanned
               65,536 agents, or that the optimum has more than 1,024 steps (with three to five
               agents: 64 steps up to size 10, 96 up to size 16, 160 for larger boards).
     plan, makespan_plan
               plans with the minimal sum of costs and with the minimal makespan; the actions of
               each agent end with its last arrival
     needs_wait
               whether every plan with the minimal sum of costs makes an agent wait before its last
               arrival
     expansions
               number of nodes that the search expanded
     The costs, needs_wait and the plans are null unless status is OPTIMAL.

{LINES_HELP}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    describe(parser, run, _HELP)
    add_input(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Solve the board of every line."""

    def solve(lines: Iterable[bytes]) -> Results:
        from jaxlake.command_line.board_records import solve_lines

        return solve_lines(lines)

    return process_file(args.file, args.output, solve, noun="boards")
