"""Exit statuses and error messages of interrupted and failed commands."""

import errno
import multiprocessing
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from jaxlake.command_line.catalogue import LAKE_COMMANDS, LOOP_COMMANDS
from jaxlake.command_line.extras import install_command
from jaxlake.errors import UserError

# The exit statuses that shells report after SIGINT, SIGPIPE and SIGTERM.
INTERRUPTED = 130
BROKEN_PIPE = 141
TERMINATED = 143

_OWN_PACKAGES = ("jaxlake", "engineer", "training")
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_TERMINATION_SECONDS = 5.0


@dataclass(frozen=True)
class Ending:
    """The exit status of a command, with an optional error message."""

    status: int
    message: str | None = None  # None: print nothing


def get_ending(error: BaseException, arguments: Sequence[str] | None = None) -> Ending | None:
    """Return the ending of a command that raised `error`, or None for bugs (show the traceback).

    Args:
        error: The exception.
        arguments: The command-line arguments; `sys.argv[1:]` if None.
    """
    message = str(error)
    if isinstance(error, KeyboardInterrupt):
        return Ending(INTERRUPTED)
    if isinstance(error, BrokenPipeError):
        return Ending(BROKEN_PIPE)
    if isinstance(error, SystemExit) and isinstance(error.code, int):  # such as 143 after SIGTERM
        return Ending(error.code)
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        if package in ("", *_OWN_PACKAGES):
            return None
        arguments = sys.argv[1:] if arguments is None else arguments
        commands = LOOP_COMMANDS | LAKE_COMMANDS
        command = next((argument for argument in arguments if argument in commands), "")
        message = (
            f"`jaxlake {command}` needs the package {package!r}, which isn't installed: "
            f"{install_command(package, for_training=command in LOOP_COMMANDS)}"
        )
    elif isinstance(error, OSError):
        if error.errno in _DISK_FULL and error.filename is None:
            message = f"a file or standard output can't be written: {error.strerror}"
    elif not isinstance(error, UserError):
        return None
    return Ending(2, message)


def end_children() -> None:
    """Terminate the child processes of vLLM, which outlive a process that ends by `os._exit`."""
    children = multiprocessing.active_children()
    for child in children:
        child.terminate()
    deadline = time.monotonic() + _TERMINATION_SECONDS
    for child in children:
        child.join(max(0.0, deadline - time.monotonic()))
        child.kill()  # has no effect on finished processes


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM raise SystemExit with status 143, so that locks and children are released."""

    def raise_exit(number: int, frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    previous_handler = signal.signal(signal.SIGTERM, raise_exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous_handler)
