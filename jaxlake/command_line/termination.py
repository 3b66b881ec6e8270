"""SIGTERM, with which schedulers and `kill` ask a process to end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

TERMINATED = 128 + signal.SIGTERM
"""What a shell reports for a process that SIGTERM ended."""


@contextmanager
def unwound_by_sigterm() -> Iterator[None]:
    """Let SIGTERM raise SystemExit with status 143, so that what was begun is let go of.

    Locks are released, and processes that were started are ended. Call it in the main thread.
    """

    def unwind(number: int, frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
