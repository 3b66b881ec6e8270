"""Arguments shared by several commands, and parsers of their values."""

import argparse
import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias, TypeVar

from jaxlake.errors import UserError
from jaxlake.remote_files import AnyPath, as_path, require_local

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Command: TypeAlias = Callable[[argparse.Namespace], int]
Number = TypeVar("Number", int, float)
Value = TypeVar("Value")


def describe(parser: argparse.ArgumentParser, run: Command | None, description: str) -> None:
    """Set a command's description and its function `run`, which is None if it has actions."""
    parser.description = description
    parser.set_defaults(run=run)


def add_actions(parser: argparse.ArgumentParser) -> Subparsers:
    """Add actions to a command, such as `make` of `jaxlake dataset make`."""
    return parser.add_subparsers(dest="action", metavar="ACTION", required=True)


def add_action(
    actions: Subparsers, name: str, run: Command, summary: str, description: str
) -> argparse.ArgumentParser:
    """Add an action of a command, and return its parser."""
    parser = actions.add_parser(name, help=summary)
    describe(parser, run, description)
    return parser


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """Add the YAML configuration file and the option that overrides its values."""
    parser.add_argument("config", metavar="CONFIG", type=local_path, help="a YAML file")
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
    parser.add_argument("run_dir", metavar="RUN", type=local_path, help="a run's directory")


def add_input(parser: argparse.ArgumentParser) -> None:
    """Add the input file of records, as `args.file`."""
    help_text = "JSON lines; - reads standard input"
    parser.add_argument("file", metavar="FILE", type=local_name, help=help_text)


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the output file, as `args.output`; None means standard output."""
    help_text = "write here instead of standard output"
    parser.add_argument("--output", metavar="FILE", type=local_name, help=help_text)


def add_seed(parser: argparse.ArgumentParser) -> None:
    """Add the seed of the random boards."""
    help_text = "0 to 2**32 - 1; determines the boards"
    parser.add_argument("--seed", metavar="S", type=seed, required=True, help=help_text)


def local_name(text: str) -> str:
    """Argument type: the name of a local file or folder."""
    return _parse(require_local, text)


def local_path(text: str) -> Path:
    """Argument type: a local path; see `local_name`."""
    return Path(local_name(text))


def any_path(text: str) -> AnyPath:
    """Argument type: a path or a URL such as gs://bucket/folder."""
    return _parse(as_path, text)


def _parse(parse: Callable[[str], Value], text: str) -> Value:
    """Parse a value, and convert `ValueError` to an error whose message argparse prints."""
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def number(
    kind: type[Number], low: float = -math.inf, high: float = math.inf
) -> Callable[[str], Number]:
    """Return an argument type for numbers from `low` to `high`."""
    limits_text = f"at least {low}" if high == math.inf else f"from {low} to {high}"
    noun = "a whole number" if kind is int else "a number"

    def parse(text: str) -> Number:
        try:
            value = kind(text)
        except ValueError:
            problem = f"must be {noun} {limits_text}, got {text!r}"
            raise argparse.ArgumentTypeError(problem) from None
        if not low <= value <= high:  # also rejects NaN
            raise argparse.ArgumentTypeError(f"must be {limits_text}, got {text}")
        return value

    return parse


seed = number(int, 0, 2**32 - 1)


def work_part(text: str) -> tuple[int, int]:
    """Argument type: part I of N, such as 3/8, as (index, count)."""
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if match is None or not int(match[1]) < int(match[2]):
        problem = f"must be I/N with I from 0 to N - 1, got {text}"
        raise argparse.ArgumentTypeError(problem)
    return int(match[1]), int(match[2])


def whole_numbers(text: str) -> list[int]:
    """Argument type: comma-separated integers."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        problem = f"must be whole numbers separated by commas, got {text!r}"
        raise argparse.ArgumentTypeError(problem) from error


def reject_ignored(args: argparse.Namespace, cause: str, options: Iterable[str]) -> None:
    """Raise `UserError` if an option is set that has no effect because of `cause`."""
    for option in options:
        value = getattr(args, option.removeprefix("--").replace("-", "_"))
        if value is not None and value != []:
            text = " ".join(map(str, value)) if isinstance(value, list) else value
            raise UserError(f"{option} must not be set with {cause}, which ignores it, got {text}")


@contextmanager
def user_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Convert errors of these kinds to `UserError`, which ends the command with status 2."""
    try:
        yield
    except kinds as error:
        raise UserError(str(error)) from None
