"""`--trust-code`: let commands that only read runs import the code that their config.yaml names."""

import argparse
import functools

from jaxlake.command_line.arguments import Command


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add the option `--trust-code`; see `reading`."""
    parser.add_argument(
        "--trust-code",
        action="store_true",
        help="import the modules that a configuration names as package.module:NAME",
    )


def reading(command: Command) -> Command:
    """Wrap a command so that it imports no user code without `--trust-code`."""

    @functools.wraps(command)
    def guarded(args: argparse.Namespace) -> int:
        from jaxlake.user_code import restrict_imports_to

        with restrict_imports_to(None if args.trust_code else frozenset()):
            return command(args)

    return guarded
