"""Entry point of the command line."""

import argparse
import io
import os
import sys
from collections.abc import Sequence

import jaxlake
from jaxlake.command_line.catalogue import LAKE_COMMANDS, LOOP_COMMANDS, CommandParser, Parser
from jaxlake.command_line.compilation_cache import enable_compilation_cache
from jaxlake.command_line.endings import INTERRUPTED as INTERRUPTED
from jaxlake.command_line.endings import TERMINATED, end_children, exit_on_sigterm, get_ending
from jaxlake.errors import UserError, escape_controls
from jaxlake.runtime.search_flags import add_search_flags


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    Args:
        argv: The command-line arguments; `sys.argv[1:]` if None.

    Returns:
        The status of the command (0 for success), 2 for invalid input or a system error, 130 after
        an interrupt, 141 if the reader of the output closed it.

    Raises:
        SystemExit: From argparse, with status 2 for wrong arguments and 0 after `--help`.
    """
    try:
        args = make_parser().parse_args(argv)
        if sys.stdout is None:
            raise UserError("standard output is closed; /dev/null discards it")
        # Ids and messages may contain characters outside the locale's encoding.
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
            sys.stdout.reconfigure(errors="backslashreplace")
        enable_compilation_cache()
        if args.command in LAKE_COMMANDS:
            add_search_flags(os.environ)
        status: int = args.run(args)
        sys.stdout.flush()
        return status
    except (KeyboardInterrupt, Exception) as error:
        ending = get_ending(error, argv)
        if ending is None:
            raise
    if ending.message is not None:
        print(f"jaxlake: error: {escape_controls(ending.message)}", file=sys.stderr)
    if ending.status != INTERRUPTED:  # after an interrupt, `entry` ends child processes first
        _discard_output()
    return ending.status


def make_parser(*, complete: bool = False) -> argparse.ArgumentParser:
    """Return the parser of all commands.

    Args:
        complete: Whether to add the arguments of all commands now. This imports their modules,
            which otherwise happens when a command is parsed.
    """
    parser = Parser(
        prog="jaxlake",
        description="Multi-agent path finding on frozen lakes: exact in JAX, learned by GRPO, "
        "redesigned by the learner.",
    )
    parser.add_argument("--version", action="version", version=f"jaxlake {jaxlake.__version__}")
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=CommandParser
    )
    for name, summary in (LOOP_COMMANDS | LAKE_COMMANDS).items():
        command = commands.add_parser(name, help=summary, command=name)
        if complete:
            command.load_arguments()
    return parser


def entry() -> None:
    """Run the command of this process and exit with its status.

    After SIGTERM (143) and interrupts the process exits immediately, because Python crashes when
    it tears down a partially imported vLLM. No data is lost, because files are written atomically.
    """
    try:
        with exit_on_sigterm():
            status = main()
    except SystemExit as error:
        if error.code != TERMINATED:
            raise
        status = TERMINATED
    if status in (INTERRUPTED, TERMINATED):
        end_children()
        _discard_output()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def _discard_output() -> None:
    """Flush the output; if that fails, discard it, so that Python's own flush at exit succeeds."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
