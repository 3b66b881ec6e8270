"""Where the command line begins: one command is run, and the process ends as it should."""

import argparse
import io
import os
import sys
from collections.abc import Sequence

import jaxlake
from jaxlake.command_line.catalogue import LAKE, LOOP, CommandParser, Parser
from jaxlake.command_line.compilation_cache import keep_compiled_programs
from jaxlake.command_line.endings import INTERRUPTED as INTERRUPTED
from jaxlake.command_line.endings import TERMINATED, end_children, ending_of, unwound_by_sigterm
from jaxlake.errors import UserError, printable
from jaxlake.runtime.search_flags import add_search_flags


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command with these arguments (None: those of this process), and return its status.

    That is the command's own (0 for success), 2 for invalid input or a system error, 130 after an
    interrupt, 141 when the reader of the output went away.

    Raises:
        SystemExit: From argparse, with status 2 for wrong arguments and 0 after `--help`.
    """
    try:
        args = make_parser().parse_args(argv)
        if sys.stdout is None:
            raise UserError("standard output is closed; /dev/null discards it")
        # Ids and messages may hold letters that the locale's encoding lacks.
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
            sys.stdout.reconfigure(errors="backslashreplace")
        keep_compiled_programs()
        if args.command in LAKE:
            add_search_flags(os.environ)
        status: int = args.run(args)
        sys.stdout.flush()
        return status
    except (KeyboardInterrupt, Exception) as error:
        ending = ending_of(error, argv)
        if ending is None:
            raise
    if ending.message is not None:
        print(f"jaxlake: error: {printable(ending.message)}", file=sys.stderr)
    if ending.status != INTERRUPTED:  # then `entry` first ends what vLLM started
        _discard_output()
    return ending.status


def make_parser(*, complete: bool = False) -> argparse.ArgumentParser:
    """Make the parser of all commands.

    The arguments of a command are added when it is parsed; with `complete`, of all commands now.
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
    for name, summary in (LOOP | LAKE).items():
        command = commands.add_parser(name, help=summary, command=name)
        if complete:
            command.complete()
    return parser


def entry() -> None:
    """Run the command of this process and end the process with its exit status.

    After SIGTERM (143) and an interrupt the process ends at once: Python crashes if it has to tear
    down a vLLM that is only half imported. Nothing is lost, because files are written whole.
    """
    try:
        with unwound_by_sigterm():
            status = main()
    except SystemExit as end:
        if end.code != TERMINATED:
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
