"""Where the command line begins: one command is run, and the process ends as it should."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import jaxlake
from jaxlake.command_line.arguments import Parser
from jaxlake.command_line.catalogue import LAKE, LOOP, CommandParser
from jaxlake.command_line.compilation_cache import keep_compiled_programs
from jaxlake.command_line.endings import INTERRUPTED as INTERRUPTED
from jaxlake.command_line.endings import end_children, ending_of
from jaxlake.command_line.termination import TERMINATED, unwound_by_sigterm
from jaxlake.errors import UserError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command with these arguments (None: those of this process), and return its status.

    That is the command's own (0 for success), 2 for invalid input or a system error, 130 after an
    interrupt, 141 when the reader of the output went away.

    Raises:
        SystemExit: From argparse, with status 2 for wrong arguments and 0 after `--help`.
    """
    _occupy_closed_descriptors()
    try:
        args = make_parser().parse_args(argv)
        if sys.stdout is None:
            raise UserError("standard output is closed; /dev/null discards it")
        keep_compiled_programs()
        if args.command in LAKE:
            _speed_up_searches()
        with _resend_lost_interrupts():
            status: int = args.run(args)
        sys.stdout.flush()
        return status
    except (KeyboardInterrupt, Exception) as error:
        ending = ending_of(error, argv)
        if ending is None:
            raise
    if ending.message is not None:
        print(f"jaxlake: error: {ending.message}", file=sys.stderr)
    if ending.status != INTERRUPTED:  # then `entry` first ends what vLLM started
        _discard_output()
    return ending.status


def make_parser(*, complete: bool = False) -> Parser:
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

    SIGTERM ends the command as an interrupt does, with status 143. After either the process ends at
    once: Python crashes if it has to tear down a vLLM that is only half imported. Nothing is lost,
    because files are written whole.
    """
    _search_the_current_folder_no_more_than_now()
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


def _speed_up_searches() -> None:
    from jaxlake.runtime.search_flags import add_search_flags

    add_search_flags(os.environ)


def _search_the_current_folder_no_more_than_now() -> None:
    """Let Python processes that this one starts by `-m` leave the current folder out, if it does.

    Else a user's folder `training` would stand in the way of a study's runs, though not of the
    study.
    """
    if sys.path and sys.path[0] not in ("", os.getcwd()):
        os.environ.setdefault("PYTHONSAFEPATH", "1")


def _occupy_closed_descriptors() -> None:
    """Give the standard streams' numbers to something that can't be used, where they are closed.

    The next file to be opened would have such a number, and whatever a library prints would be
    written into it.
    """
    for descriptor, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, mode)  # the lowest number that is free
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


@contextmanager
def _resend_lost_interrupts() -> Iterator[None]:
    """Send an interrupt again if it came where Python only prints exceptions and goes on.

    JAX runs a callback at each garbage collection, and a Ctrl-C in there would be lost. So would
    SIGTERM, where it raises SystemExit.
    """
    before = sys.unraisablehook
    signals = {KeyboardInterrupt: signal.SIGINT, SystemExit: signal.SIGTERM}

    def hook(unraisable: "sys.UnraisableHookArgs", /) -> None:
        if (number := signals.get(unraisable.exc_type)) is not None:
            again = threading.Timer(0.01, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
        else:
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def _discard_output() -> None:
    """Flush the output; if that fails, discard it, so that Python's own flush at exit succeeds."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
