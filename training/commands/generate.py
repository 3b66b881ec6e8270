"""`jaxlake generate`: boards of a kind, each with an optimal plan."""

import argparse
import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from training.commands import Subparsers, add_command, add_output, add_seed, number
from training.commands.json_lines import open_output, report_progress
from training.errors import UserError

_HELP = """\
Draw distinct, solvable boards of one kind: JSON lines out, the same for the same arguments.

out  {"id", "grid", "sum_of_costs", "makespan", "needs_wait", "plan", "hole_ratio"}
     the two optima; plan attains the sum of costs

Holes are floor(hole_ratio * size * size) cells. wait_ratio is the share of the boards for which
every plan of optimal sum of costs has an agent wait. Boards are drawn at random until there are
enough of either kind, or --max-candidates have been drawn; what is missing then is said on stderr.

exit status: 0 all boards were made, 1 some are missing, 2 there can be no such board
"""

_MAX_SIZE = 10
_MAX_COUNT = 1_000_000
_CHUNK = 2048
_MAX_CANDIDATES = 1 << 18


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to those of `jaxlake`."""
    parser = add_command(
        subparsers, "generate", run, "draw boards with optimal plans (JSON lines)", _HELP
    )
    for name, metavar, kind, what in (
        ("--size", "N", number(int, 2, _MAX_SIZE), "side of the board, 2 to 10"),
        ("--hole-ratio", "H", number(float, 0, 1), "share of all cells, 0 to 1"),
        ("--wait-ratio", "W", number(float, 0, 1), "share of the boards that need a wait, 0 to 1"),
        ("--count", "C", number(int, 1, _MAX_COUNT), "number of boards, at least 1"),
    ):
        parser.add_argument(name, metavar=metavar, type=kind, required=True, help=what)
    add_seed(parser)
    tries = f"boards to draw for every {_CHUNK:,} before giving up (default: {_MAX_CANDIDATES:,})"
    for name, metavar, kind, default, what in (
        ("--agents", "K", number(int, 1, 5), 2, "agents on each board, 1 to 5 (default: 2)"),
        ("--max-candidates", "M", number(int, 1, 1 << 30), _MAX_CANDIDATES, tries),
    ):
        parser.add_argument(name, metavar=metavar, type=kind, default=default, help=what)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Write the boards, and say which are missing."""
    from jaxlake import infeasibility

    if (reason := infeasibility(args.size, args.hole_ratio, args.agents)) is not None:
        raise UserError(reason)
    if args.agents == 1 and args.wait_ratio:
        raise UserError(
            f"--wait-ratio: got {args.wait_ratio:g}, a single agent never needs a wait: only 0 is "
            "allowed with --agents 1"
        )

    wanted = Counter({True: round(args.wait_ratio * args.count)})
    wanted[False] = args.count - wanted[True]
    made: Counter[bool] = Counter()
    with open_output(args.output) as out:
        for _, record in report_progress(enumerate(_records(args, wanted))):
            out.write(json.dumps(record) + "\n")
            made[record["needs_wait"]] += 1
    missing = wanted - made
    if not missing:
        return 0
    print(
        f"jaxlake: made {made.total()} of {args.count} boards ({args.size}x{args.size}, "
        f"{args.agents} agents, hole_ratio {args.hole_ratio:g}, wait_ratio {args.wait_ratio:g}): "
        f"{missing[True]} that need a wait and {missing[False]} that need none are missing after "
        f"--max-candidates {args.max_candidates}",
        file=sys.stderr,
    )
    return 1


def _records(args: argparse.Namespace, wanted: Counter[bool]) -> Iterator[dict[str, Any]]:
    """Boards in chunks, so that many of them needn't be held; a kind that ran out is given up."""
    import jax

    from jaxlake.generator.board_digests import DigestSet
    from training.commands.board_records import solution_fields
    from training.rollout.instances import BoardRequest, draw_boards

    agents = "" if args.agents == 2 else f"_k{args.agents}"
    kind = f"{args.size}x{args.size}{agents}_hr{args.hole_ratio:g}_wr{args.wait_ratio:g}"
    draw = partial(
        draw_boards, max_size=_MAX_SIZE, max_candidates=args.max_candidates, seen=DigestSet()
    )
    left, chunks, made = Counter(wanted), itertools.count(), itertools.count()
    while count := min(_CHUNK, left.total()):
        waits = round(count * left[True] / left.total())
        request = BoardRequest(args.size, args.hole_ratio, waits / count, count, args.agents)
        key = jax.random.fold_in(jax.random.key(args.seed), next(chunks))
        try:
            boards, (outcome,) = draw(key, [request])
        except UserError:
            # Not one board of either kind: the shortfall says it.
            return
        for row in range(len(boards)):
            solution = jax.tree.map(lambda leaf, row=row: leaf[row], boards.solutions)
            record = {
                "id": f"{kind}_s{args.seed}_{next(made):06d}",
                "grid": boards.grid(row),
                **solution_fields(solution),
                "hole_ratio": args.hole_ratio,
            }
            left[record["needs_wait"]] -= 1
            yield record
        if outcome.missing_wait:
            left[True] = 0
        if outcome.missing_no_wait:
            left[False] = 0
