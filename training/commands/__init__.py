"""The commands of `jaxlake`, one module per command.

A command's module has `add_parser(subparsers)`, which must stay cheap because every
`jaxlake --help` calls it, and a function from the parsed arguments to the exit status, which
imports what is heavy. What several commands share stands here.
"""

import argparse
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias, TypeVar

from training.errors import UserError

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Command: TypeAlias = Callable[[argparse.Namespace], int]
Number = TypeVar("Number", int, float)


def add_command(
    subparsers: Subparsers, name: str, run: Command | None, summary: str, description: str
) -> argparse.ArgumentParser:
    """Add a command, or an action of a command, and return its parser for its arguments.

    `run` returns the exit status (None: the command has actions), `summary` stands in the list of
    commands, and `description` is printed by `--help` as it is laid out.
    """
    parser = subparsers.add_parser(
        name,
        help=summary,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def add_group(subparsers: Subparsers, name: str, summary: str, description: str) -> Subparsers:
    """Add a command that has actions, such as `make` of `jaxlake dataset make`."""
    parser = add_command(subparsers, name, None, summary, description)
    return parser.add_subparsers(dest="action", metavar="ACTION", required=True)


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """Add the YAML file that a command reads, and values that replace some of the file's."""
    parser.add_argument("config", metavar="CONFIG", type=Path, help="a YAML file")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        nargs="+",
        action="extend",
        default=[],
        help="replace values of the configuration, by dotted keys",
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the directory of a run, as `args.run_dir`."""
    parser.add_argument("run_dir", metavar="RUN", type=Path, help="a run's directory")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the file that a command's answers go to; `args.output` is None for standard output."""
    parser.add_argument("--output", metavar="FILE", help="write here instead of standard output")


def add_seed(parser: argparse.ArgumentParser) -> None:
    """Add the seed that decides which boards are drawn."""
    what = "0 to 2**32 - 1; it decides the boards"
    parser.add_argument("--seed", metavar="S", type=seed, required=True, help=what)


def number(
    kind: type[Number], least: float = -math.inf, most: float = math.inf
) -> Callable[[str], Number]:
    """Make the type of an argument: a number from `least` to `most`; argparse reports others."""

    def read(text: str) -> Number:
        value = kind(text)
        if not least <= value <= most:  # refuses NaN too
            allowed = f"at least {least} is" if most == math.inf else f"{least} to {most} are"
            raise argparse.ArgumentTypeError(f"got {text}, {allowed} allowed")
        return value

    read.__name__ = kind.__name__  # argparse says "invalid int value"
    return read


seed = number(int, 0, 2**32 - 1)


def whole_numbers(text: str) -> list[int]:
    """Read numbers that are separated by commas, as the type of an argument."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        problem = f"got {text!r}, allowed are whole numbers separated by commas"
        raise argparse.ArgumentTypeError(problem) from error


@contextmanager
def user_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Let errors of these kinds end the command with their message and status 2."""
    try:
        yield
    except kinds as error:
        raise UserError(str(error)) from None
