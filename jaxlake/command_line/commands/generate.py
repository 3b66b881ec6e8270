"""`jaxlake generate`: distinct, solvable boards, each with an optimal plan."""

import argparse
import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from jaxlake.command_line.arguments import add_output, add_seed, describe, number
from jaxlake.command_line.json_lines import open_output, report_progress
from jaxlake.errors import UserError

_HELP = """\
Draw distinct, solvable boards: JSON lines out. The same arguments give the same boards.

out  {"id", "grid", "sum_of_costs", "makespan", "needs_wait", "plan", "hole_ratio"}
     the two optima; plan attains the sum of costs

Boards have floor(hole_ratio * size * size) holes. wait_ratio is the share of boards on which every
plan with the optimal sum of costs has a wait. Random candidates are drawn for up to 2,048 boards at
a time. If boards that need a wait, or boards that don't, are missing after --max-candidates for up
to 2,048 boards, no more of them are drawn. Missing boards are reported on stderr.

exit status: 0 all boards were made, 1 some are missing, 2 the request is impossible
"""

_CHUNK = 2048
_MAX_CANDIDATES = 1 << 18


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    describe(parser, run, _HELP)
    ratio = number(float, 0, 1)
    add = partial(parser.add_argument, required=True)
    add("--size", metavar="N", type=number(int, 2, 32), help="side of the board, 2 to 32")
    add("--hole-ratio", metavar="H", type=ratio, help="share of all cells, 0 to 1")
    add("--wait-ratio", metavar="W", type=ratio, help="share of boards that need a wait, 0 to 1")
    add("--count", metavar="C", type=number(int, 1, 1 << 24), help="number of boards")
    add_seed(parser)
    agents = "agents on each board, 1 to 5 (default: 2)"
    parser.add_argument("--agents", metavar="K", type=number(int, 1, 5), default=2, help=agents)
    help_text = (
        f"candidates for up to {_CHUNK:,} boards before giving up (default: {_MAX_CANDIDATES:,})"
    )
    candidates = number(int, 0, 1 << 30)
    parser.add_argument(
        "--max-candidates", metavar="M", type=candidates, default=_MAX_CANDIDATES, help=help_text
    )
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Write the boards, and report missing ones."""
    from jaxlake.board.limits import infeasibility

    if (reason := infeasibility(args.size, args.hole_ratio, args.agents)) is not None:
        raise UserError(reason)
    if args.agents == 1 and args.wait_ratio:
        raise UserError(
            f"--wait-ratio must be 0 with --agents 1, got {args.wait_ratio:g}; a single agent "
            "never needs a wait"
        )

    requested = Counter({True: round(args.wait_ratio * args.count)})
    requested[False] = args.count - requested[True]
    written: Counter[bool] = Counter()
    with open_output(args.output) as out:
        for record in report_progress(_records(args, requested), total=args.count):
            out.write(json.dumps(record) + "\n")
            written[record["needs_wait"]] += 1
    missing = requested - written
    if not missing:
        return 0
    print(
        f"jaxlake: made {written.total()} of {args.count} boards ({args.size}x{args.size}, "
        f"{args.agents} agents, hole_ratio {args.hole_ratio:g}, wait_ratio {args.wait_ratio:g}): "
        f"{missing[True]} that need a wait and {missing[False]} that don't are missing after "
        f"--max-candidates {args.max_candidates} for up to {_CHUNK:,} boards",
        file=sys.stderr,
    )
    return 1


def _records(args: argparse.Namespace, requested: Counter[bool]) -> Iterator[dict[str, Any]]:
    """Yield boards, made in chunks to save memory; stop making a kind that runs out."""
    import jax
    import numpy as np

    from jaxlake import format_grid, lake_params
    from jaxlake.datasets.solution_fields import optimum_fields
    from jaxlake.generator.board_digests import DigestSet
    from jaxlake.generator.quotas import BATCH_SIZE, CAPACITY, DrawOptions, fill_quotas
    from jaxlake.runtime.random_keys import threefry_key
    from jaxlake.solver import HORIZONS

    agents = "" if args.agents == 2 else f"_k{args.agents}"
    kind = f"{args.size}x{args.size}{agents}_hr{args.hole_ratio:g}_wr{args.wait_ratio:g}"
    params = lake_params(args.size, args.hole_ratio, num_agents=args.agents)
    # Boards are padded to one of three sizes, so that few programs are compiled.
    padded = min(limit for limit in HORIZONS if limit >= args.size)
    limits = (HORIZONS[padded], args.max_candidates, BATCH_SIZE)
    options = DrawOptions(CAPACITY, padded, args.agents, *limits)
    remaining, chunks, numbers = Counter(requested), itertools.count(), itertools.count()
    digest_set = DigestSet()
    first_key = threefry_key(args.seed)
    while count := min(_CHUNK, remaining.total()):
        waits = round(count * remaining[True] / remaining.total())
        key = jax.random.fold_in(first_key, next(chunks))
        chunk_quotas = np.array([[count - waits, waits]])
        # A chunk is the one request of its call, see `training.rollout.instances.draw_boards`.
        result = fill_quotas(jax.random.fold_in(key, 0), params, chunk_quotas, digest_set, options)
        boards = result.boards
        if not len(boards):
            return  # no board of either kind; the caller reports the shortfall
        for row in range(len(boards)):
            board, solution = jax.tree.map(
                lambda leaf, row=row: leaf[row], (boards.instances, boards.solutions)
            )
            record = {
                "id": f"{kind}_s{args.seed}_{next(numbers):06d}",
                "grid": format_grid(board),
                **optimum_fields(solution),
                "hole_ratio": args.hole_ratio,
            }
            remaining[record["needs_wait"]] -= 1
            yield record
        for needs_wait in (True, False):
            if result.counts[0, int(needs_wait)] < chunk_quotas[0, int(needs_wait)]:
                remaining[needs_wait] = 0
