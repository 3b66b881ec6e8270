"""`jaxlake run`: the whole loop, Train -> Validate -> Design."""

import argparse
from pathlib import Path

from training.commands import Subparsers, add_command, add_configuration, number
from training.runtime import set_library_defaults

_HELP = """\
Run all stages of a configuration, or go on where the same command was stopped.

--set replaces single values: --set grpo.learning_rate=3e-4 stages.count=2. --dry-run checks the
configuration, prints what would be done and what it would take, and stops.

exit status: 0 the run is finished, 2 invalid input or configuration
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to those of `jaxlake`."""
    parser = add_command(
        subparsers, "run", run, "run Train -> Validate -> Design on a configuration", _HELP
    )
    add_configuration(parser)
    parser.add_argument(
        "--run-dir", metavar="DIR", type=Path, help="where its files go (default: runs/NAME)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="check the configuration, print the plan and stop"
    )
    stop = "stop after this stage (0: the warm start); the same command without it goes on"
    parser.add_argument("--stop-after", metavar="S", type=number(int, 0), help=stop)


def run(args: argparse.Namespace) -> int:
    """Run the loop, or print what it would do."""
    set_library_defaults()
    from training.schema import load

    config = load(args.config, args.set)
    run_dir = args.run_dir or Path("runs") / config.name
    if args.dry_run:
        from training.run.dry_run import print_plan

        print_plan(config, run_dir)
        return 0
    from training import loop

    loop.run(config, run_dir, stop_after=args.stop_after)
    return 0
