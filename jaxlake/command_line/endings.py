"""How a command ends that was interrupted or failed: its exit status, and what people are told."""

import errno
import multiprocessing
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from jaxlake.command_line.catalogue import LAKE, LOOP
from jaxlake.command_line.extras import installation
from jaxlake.errors import UserError

# What a shell reports for a process that SIGINT, SIGPIPE or SIGTERM ended.
INTERRUPTED = 130
BROKEN_PIPE = 141
TERMINATED = 143

_OWN_PACKAGES = ("jaxlake", "engineer", "training")
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SECONDS_TO_END = 5.0


@dataclass(frozen=True)
class Ending:
    """The exit status of a command, and the line that says why."""

    status: int
    message: str | None = None  # None: there is nothing that a user has to be told


def ending_of(error: BaseException, arguments: Sequence[str] | None = None) -> Ending | None:
    """Return how a command ends that raised `error`; None: it is a bug, and needs its traceback.

    `arguments` are those of the command line (None: those of this process).
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
        words = sys.argv[1:] if arguments is None else arguments
        command = next((word for word in words if word in LOOP | LAKE), "")
        message = (
            f"`jaxlake {command}` needs the package {package!r}, which isn't installed: "
            f"{installation(package)}"
        )
    elif isinstance(error, OSError):
        if error.errno in _DISK_FULL and error.filename is None:
            message = f"a file, or standard output, can't be written: {error.strerror}"
    elif not isinstance(error, UserError):
        return None
    return Ending(2, message)


def end_children() -> None:
    """End the processes that vLLM started; without Python's own end nobody else does."""
    children = multiprocessing.active_children()
    for child in children:
        child.terminate()
    deadline = time.monotonic() + _SECONDS_TO_END
    for child in children:
        child.join(max(0.0, deadline - time.monotonic()))
        child.kill()  # does nothing to a process that has ended


@contextmanager
def unwound_by_sigterm() -> Iterator[None]:
    """Let SIGTERM raise SystemExit with status 143, so that locks and children are let go of."""

    def unwind(number: int, frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
