"""How a study takes SIGINT and SIGTERM: as exceptions, but for moments that must not be cut."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait until the block has ended.

    For a moment in which an exception would lose what was just begun, such as a process that
    nobody knows of yet. A process that is started here has the default handlers, and blocks none.
    """
    waiting: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        waiting.append(number)

    before = {one: signal.signal(one, remember) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        for number in waiting:
            signal.raise_signal(number)
