"""`jaxlake run`: the whole loop, Train -> Validate -> Design."""

import argparse
from pathlib import Path

from training.commands import Subparsers, add_configuration
from training.environment import prepare
from training.errors import UserError

_DESCRIPTION = """\
Run all rounds of a configuration, or go on where the same command was stopped.

--set replaces single values: --set grpo.learning_rate=3e-4 stages.rounds=2. --dry-run checks the
configuration, prints what would be done and what it would take, and stops.

exit status: 0 the run is finished, 2 something has to be mended first
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to those of `jaxlake`."""
    parser = subparsers.add_parser(
        "run",
        help="run Train -> Validate -> Design on a configuration",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_configuration(parser)
    parser.add_argument(
        "--run-dir", metavar="DIR", type=Path, help="where its files go (default: runs/NAME)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="check the configuration, print the plan and stop"
    )
    parser.add_argument(
        "--stop-after",
        metavar="S",
        type=int,
        help="leave off after this round (0: the warm start); the same command without it goes on",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Carry the command out."""
    prepare()
    from training.config import load

    if args.stop_after is not None and args.stop_after < 0:
        raise UserError(f"--stop-after: got {args.stop_after}, at least 0 is allowed")
    config = load(args.config, args.set)
    if args.dry_run:
        from training.plan import print_plan

        print_plan(config)
        return 0
    from training import loop

    loop.run(config, args.run_dir or Path("runs") / config.name, stop_after=args.stop_after)
    return 0
