"""`jaxlake solve`: the optima of boards from anywhere."""

import argparse
from collections.abc import Iterable

from jaxlake.command_line.arguments import add_input, add_output, describe
from jaxlake.command_line.json_lines import LINES_HELP, Answers, answer_file

_HELP = f"""\
Solve boards of one to five agents exactly: JSON lines in, JSON lines out.

in   {{"id": ..., "grid": ["S F G", "s H F", "g F F"]}}
     letters separated by blanks, sizes 2 to 32; F frozen, H hole, agents start at S s A B C and
     have their goals at G g a b c
out  {{"id", "grid", "status", "sum_of_costs", "makespan", "needs_wait",
     "plan": [["RIGHT", ...], ...], "makespan_plan": [["RIGHT", ...], ...], "expansions"}}
     grid is the board as it came, so that `jaxlake render -` and `jaxlake check -` read the lines.
     status is OPTIMAL, UNSOLVABLE (proved) or UNKNOWN: a search has replanned 65,536 agents, or the
     optimum takes more than 1,024 steps (three to five agents: 64 up to size 10, 96 up to 16,
     160 beyond). The optima and plans are null unless OPTIMAL. plan attains the sum of costs,
     makespan_plan the makespan; both end for each agent with its last arrival.
     needs_wait: every plan of this sum of costs has an agent wait before its last arrival.
     expansions: nodes that the search expanded.

{LINES_HELP}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    describe(parser, run, _HELP)
    add_input(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Answer every line of the file."""

    def answer(lines: Iterable[bytes]) -> Answers:
        from jaxlake.command_line.board_records import solve_lines

        return solve_lines(lines)

    return answer_file(args.file, args.output, answer, noun="boards")
