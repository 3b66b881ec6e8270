"""`jaxlake generate`: draw distinct, solvable boards, each with an optimal plan."""

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
     the fields of `jaxlake solve`; plan has the minimal sum of costs

Boards have floor(hole_ratio * size * size) holes. wait_ratio is the share of boards on which every
plan with the minimal sum of costs has a wait. Boards are made in chunks of up to 2,048. For each
chunk, up to --max-candidates random candidates are drawn for the boards that need a wait, and as
many for the boards that need none. If that is not enough, no more boards of this kind are made.
Missing boards are reported on stderr.

exit status: 0 all boards were made, 1 some are missing, 2 the request is impossible
"""

_CHUNK_SIZE = 2048
_MAX_CANDIDATES = 1 << 18


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    describe(parser, run, _HELP)
    ratio_type = number(float, 0, 1)
    add_required = partial(parser.add_argument, required=True)
    add_required("--size", metavar="N", type=number(int, 2, 32), help="side of the board, 2 to 32")
    add_required("--hole-ratio", metavar="H", type=ratio_type, help="share of all cells, 0 to 1")
    help_text = "share of boards that need a wait, 0 to 1"
    add_required("--wait-ratio", metavar="W", type=ratio_type, help=help_text)
    add_required("--count", metavar="C", type=number(int, 1, 1 << 24), help="number of boards")
    add_seed(parser)
    help_text = "agents on each board, 1 to 5 (default: 2)"
    parser.add_argument("--agents", metavar="K", type=number(int, 1, 5), default=2, help=help_text)
    help_text = f"candidates of a kind per chunk before giving up (default: {_MAX_CANDIDATES:,})"
    limit_type = number(int, 0, 1 << 30)
    parser.add_argument(
        "--max-candidates", metavar="M", type=limit_type, default=_MAX_CANDIDATES, help=help_text
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

    requested_counts = Counter({True: round(args.wait_ratio * args.count)})
    requested_counts[False] = args.count - requested_counts[True]
    written_counts: Counter[bool] = Counter()
    with open_output(args.output) as out:
        for record in report_progress(_make_records(args, requested_counts), total=args.count):
            out.write(json.dumps(record) + "\n")
            written_counts[record["needs_wait"]] += 1
    missing_counts = requested_counts - written_counts
    if not missing_counts:
        return 0
    print(
        f"jaxlake: made {written_counts.total()} of {args.count} boards ({args.size}x{args.size}, "
        f"{args.agents} agents, hole_ratio {args.hole_ratio:g}, wait_ratio {args.wait_ratio:g}): "
        f"{missing_counts[True]} that need a wait and {missing_counts[False]} that don't are "
        f"missing after --max-candidates {args.max_candidates} for up to {_CHUNK_SIZE:,} boards",
        file=sys.stderr,
    )
    return 1


def _make_records(
    args: argparse.Namespace, requested_counts: Counter[bool]
) -> Iterator[dict[str, Any]]:
    """Make the requested boards, by `needs_wait`, in chunks that save memory; yield records."""
    import jax
    import numpy as np

    from jaxlake import format_grid, lake_params
    from jaxlake.datasets.solution_fields import optimum_fields
    from jaxlake.generator.board_digests import DigestSet
    from jaxlake.generator.quotas import BATCH_SIZE, CAPACITY, DrawOptions, fill_quotas
    from jaxlake.runtime.random_keys import threefry_key
    from jaxlake.solver import HORIZONS

    agents_suffix = "" if args.agents == 2 else f"_k{args.agents}"
    ratios_suffix = f"hr{args.hole_ratio:g}_wr{args.wait_ratio:g}"
    id_prefix = f"{args.size}x{args.size}{agents_suffix}_{ratios_suffix}_s{args.seed}"
    params = lake_params(args.size, args.hole_ratio, num_agents=args.agents)
    # Boards are padded to one of three sizes, so that few programs are compiled.
    max_size = min(padded_size for padded_size in HORIZONS if padded_size >= args.size)
    options = DrawOptions(
        CAPACITY, max_size, args.agents, HORIZONS[max_size], args.max_candidates, BATCH_SIZE
    )
    remaining_counts, digest_set = Counter(requested_counts), DigestSet()
    chunk_counter, board_counter = itertools.count(), itertools.count()
    while chunk_size := min(_CHUNK_SIZE, remaining_counts.total()):
        num_waits = round(chunk_size * remaining_counts[True] / remaining_counts.total())
        quotas = np.array([[chunk_size - num_waits, num_waits]])
        chunk_key = jax.random.fold_in(threefry_key(args.seed), next(chunk_counter))
        # The 0 matches `training.rollout.instances.draw_boards`, which numbers its requests.
        key = jax.random.fold_in(chunk_key, 0)
        result = fill_quotas(key, params, quotas, digest_set, options)
        boards = result.boards
        if not len(boards):
            return  # the caller reports the missing boards
        for row in range(len(boards)):
            board = boards.take(np.asarray(row))
            record = {
                "id": f"{id_prefix}_{next(board_counter):06d}",
                "grid": format_grid(board.instances),
                **optimum_fields(board.solutions),
                "hole_ratio": args.hole_ratio,
            }
            remaining_counts[record["needs_wait"]] -= 1
            yield record
        for needs_wait in (True, False):
            if result.counts[0, int(needs_wait)] < quotas[0, int(needs_wait)]:
                remaining_counts[needs_wait] = 0
