"""`--trust-code`: whether a command that only reads runs may import code named in config.yaml."""

import argparse
import functools

from jaxlake.command_line.arguments import Command


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add the option `--trust-code`; see `read_only`."""
    parser.add_argument(
        "--trust-code",
        action="store_true",
        help="import the modules that a configuration names as package.module:NAME",
    )


def read_only(command: Command) -> Command:
    """Wrap a command that only reads runs; it imports user code only with `--trust-code`."""

    @functools.wraps(command)
    def restricted_command(args: argparse.Namespace) -> int:
        from jaxlake.user_code import restrict_imports_to

        with restrict_imports_to(None if args.trust_code else frozenset()):
            return command(args)

    return restricted_command
