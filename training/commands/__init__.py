"""The commands of `jaxlake`, one module each.

A command is a module with `add_parser(subparsers)`, which must stay cheap since every `--help`
calls it, and `run(args) -> int`, which imports what is heavy and returns the exit status.
"""

import argparse
from pathlib import Path
from typing import TypeAlias

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """Add the YAML file that a command reads, and the values that replace some of it."""
    parser.add_argument("config", metavar="CONFIG", type=Path, help="a YAML file")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        nargs="+",
        action="extend",
        default=[],
        help="replace values of the configuration, by dotted keys",
    )
