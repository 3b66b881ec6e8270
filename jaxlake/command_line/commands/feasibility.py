"""`jaxlake feasibility`: print acceptance rates of boards by kind."""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxlake.command_line.arguments import describe, number, seed, user_errors
from jaxlake.text_tables import format_table

if TYPE_CHECKING:
    from jaxlake.generator.feasibility import FeasibilityRow

_HELP = """\
Draw and solve candidates for a grid of board kinds, and print the acceptance rate of each.

The acceptance rate is the number of boards per candidate in a large set in which a share of
wait_ratio needs a wait. It is 0 if starts and goals don't fit, or if the candidates lack a required
kind of board. The table also shows its 95% interval.

exit status: 0 the map was printed, 2 invalid input
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    describe(parser, run, _HELP)
    ratio, hole_ratios = number(float, 0, 1), [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    for name, kind, default, help_text in (
        ("--agents", number(int, 1, 5), [2], "agents on each board, 1 to 5 (2)"),
        ("--sizes", number(int, 2, 32), range(2, 11), "sides of the boards, 2 to 32 (2 to 10)"),
        ("--hole-ratios", ratio, hole_ratios, "shares of all cells, 0 to 1 (0 to 0.5 by 0.1)"),
        ("--wait-ratios", ratio, [0.0, 0.25, 0.5, 0.75, 1.0], "shares that need a wait (quarters)"),
    ):
        parser.add_argument(
            name, metavar="X", type=kind, nargs="+", default=default, help=help_text
        )
    help_text = "candidates of each kind, 1 to 1,048,576 (2048)"
    count_type = number(int, 1, 1 << 20)
    parser.add_argument("--candidates", metavar="M", type=count_type, default=2048, help=help_text)
    parser.add_argument("--seed", metavar="S", type=seed, default=0, help="0 to 2**32 - 1 (0)")


def run(args: argparse.Namespace) -> int:
    """Print the map."""
    from jaxlake.generator.feasibility import feasibility_map
    from jaxlake.runtime.random_keys import threefry_key

    key = threefry_key(args.seed)
    with user_errors(ValueError):
        rows = []
        for num_agents in args.agents:
            message = f"jaxlake: drawing boards of {_format_agents(num_agents)}"
            print(message, file=sys.stderr, flush=True)
            rows += feasibility_map(
                key,
                num_agents=[num_agents],
                sizes=args.sizes,
                hole_ratios=args.hole_ratios,
                wait_ratios=args.wait_ratios,
                candidates=args.candidates,
            )
    _print_map(rows)
    return 0


def _print_map(rows: "Sequence[FeasibilityRow]") -> None:
    """Print a table of the rows, followed by the reasons why some are infeasible."""
    headers = ("agents", "size", "holes", "waits", "acceptance", "95% interval", "needs a wait")
    table = [
        (
            *(f"{row.num_agents}", f"{row.size}", f"{row.hole_ratio:g}", f"{row.wait_ratio:g}"),
            *(f"{row.acceptance:.5f}", f"[{row.acceptance_low:.5f}, {row.acceptance_high:.5f}]"),
            f"{row.wait_share:.4f}",
        )
        for row in rows
    ]
    print(format_table(headers, table))
    wait_ratios: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.problem:
            agents_text, size_text = _format_agents(row.num_agents), f"{row.size}x{row.size}"
            kind = f"{agents_text}, {size_text}, holes {row.hole_ratio:g}"
            wait_ratios.setdefault((kind, row.problem), []).append(f"{row.wait_ratio:g}")
    if wait_ratios:
        print()
    for (kind, problem), ratios in wait_ratios.items():
        print(f"{kind}, waits {' '.join(ratios)}: {problem}")


def _format_agents(count: int) -> str:
    return "1 agent" if count == 1 else f"{count} agents"
