"""Arguments that several commands share, and how their values are read."""

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
    """Set what `--help` prints, and the function that runs the command (None: it has actions)."""
    parser.description = description
    parser.set_defaults(run=run)


def add_actions(parser: argparse.ArgumentParser) -> Subparsers:
    """Add actions to a command, such as `make` of `jaxlake dataset make`."""
    return parser.add_subparsers(dest="action", metavar="ACTION", required=True)


def add_action(
    actions: Subparsers, name: str, run: Command, summary: str, description: str
) -> argparse.ArgumentParser:
    """Add an action of a command, and return its parser; see `describe`."""
    parser = actions.add_parser(name, help=summary)
    describe(parser, run, description)
    return parser


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """Add the YAML file that a command reads, and values that replace some of the file's."""
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
    """Add the file that a command reads records from, as `args.file`."""
    what = "JSON lines; - reads standard input"
    parser.add_argument("file", metavar="FILE", type=local_name, help=what)


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the file that a command's answers go to; `args.output` is None for standard output."""
    what = "write here instead of standard output"
    parser.add_argument("--output", metavar="FILE", type=local_name, help=what)


def add_seed(parser: argparse.ArgumentParser) -> None:
    """Add the seed that decides which boards are drawn."""
    what = "0 to 2**32 - 1; it decides the boards"
    parser.add_argument("--seed", metavar="S", type=seed, required=True, help=what)


def local_name(text: str) -> str:
    """Return the name of a file or folder on this host, as the type of an argument."""
    return _argument(require_local, text)


def local_path(text: str) -> Path:
    """Read a path on this host, as the type of an argument; see `local_name`."""
    return Path(local_name(text))


def any_path(text: str) -> AnyPath:
    """Read a path or a URL such as gs://bucket/folder, as the type of an argument."""
    return _argument(as_path, text)


def _argument(read: Callable[[str], Value], text: str) -> Value:
    """Let argparse report the message of a `ValueError`, not only that there was one."""
    try:
        return read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def number(
    kind: type[Number], least: float = -math.inf, most: float = math.inf
) -> Callable[[str], Number]:
    """Make the type of an argument: a number from `least` to `most`; argparse reports others."""
    allowed = f"at least {least} is" if most == math.inf else f"{least} to {most} are"
    wanted = "a whole number" if kind is int else "a number"

    def read(text: str) -> Number:
        try:
            value = kind(text)
        except ValueError:
            problem = f"got {text!r}, {wanted} is needed, {allowed} allowed"
            raise argparse.ArgumentTypeError(problem) from None
        if not least <= value <= most:  # refuses NaN too
            raise argparse.ArgumentTypeError(f"got {text}, {allowed} allowed")
        return value

    return read


seed = number(int, 0, 2**32 - 1)


def share(text: str) -> tuple[int, int]:
    """Read a share of the work such as 3/8, as the type of an argument: number and count."""
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if match is None or not int(match[1]) < int(match[2]):
        problem = f"got {text}, I/N with I from 0 to N - 1 is needed"
        raise argparse.ArgumentTypeError(problem)
    return int(match[1]), int(match[2])


def whole_numbers(text: str) -> list[int]:
    """Read numbers that are separated by commas, as the type of an argument."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        problem = f"got {text!r}, allowed are whole numbers separated by commas"
        raise argparse.ArgumentTypeError(problem) from error


def refuse_ignored(args: argparse.Namespace, given: str, options: Iterable[str]) -> None:
    """Raise a `UserError` for the first of `options` that came beside `given`, which ignores it."""
    for option in options:
        value = getattr(args, option.removeprefix("--").replace("-", "_"))
        if value is not None and value != []:
            shown = " ".join(map(str, value)) if isinstance(value, list) else value
            raise UserError(f"{option}: got {shown}, not allowed with {given}, which ignores it")


@contextmanager
def user_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Let errors of these kinds end the command with their message and status 2."""
    try:
        yield
    except kinds as error:
        raise UserError(str(error)) from None
