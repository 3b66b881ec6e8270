"""`jaxlake run`: the whole loop, Train -> Validate -> Design."""

import argparse
from pathlib import Path

from training.commands import Subparsers, add_command, add_configuration, number
from training.errors import UserError
from training.runtime import set_library_defaults

_HELP = """\
Run all stages of a configuration, or go on where the same command was stopped.

--set replaces single values: --set grpo.learning_rate=3e-4 stages.count=2. --dry-run checks the
configuration, prints what would be done and what it would take, and stops. With --compile-for its
update is compiled, too, for devices that need not be there: h100:8, v5p:2x2x2, v6e:2x4. That needs
the repository and `make accelerators`.

exit status: 0 the run is finished, 1 the update does not compile, 2 invalid input or configuration
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
    parser.add_argument(
        "--compile-for", metavar="TARGET", help="with --dry-run: compile its update for h100:8, ..."
    )
    stop = "stop after this stage (0: the warm start); the same command without it goes on"
    parser.add_argument("--stop-after", metavar="S", type=number(int, 0), help=stop)


def run(args: argparse.Namespace) -> int:
    """Run the loop, or print what it would do."""
    set_library_defaults()
    from training.schema import load

    config = load(args.config, args.set)
    run_dir = args.run_dir or Path("runs") / config.name
    if args.compile_for and not args.dry_run:
        raise UserError("--compile-for: got no --dry-run, with which alone it is allowed")
    if args.dry_run:
        from training.run.dry_run import compile_for, print_plan

        print_plan(config, run_dir)
        return compile_for(config, args.compile_for) if args.compile_for else 0
    from training import loop

    loop.run(config, run_dir, stop_after=args.stop_after)
    return 0
