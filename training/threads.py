"""Daemon threads, and lower priorities for existing threads."""

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

XLA_WORKERS = "tf_XLAEigen"
"""Prefix of the names of XLA's worker threads on CPUs."""

_LOWEST = 19


def run_in_thread(function: Callable[[], T], name: str) -> Future[T]:
    """Call a function in a daemon thread, and return a future of its result."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def lower_priority(prefix: str, niceness: int = 10) -> int:
    """Lower the priority of threads whose names start with `prefix`, and return their number.

    Only Linux has priorities per thread. On other systems this does nothing and returns 0.
    """
    if sys.platform != "linux":
        return 0
    priority = min(os.getpriority(os.PRIO_PROCESS, 0) + niceness, _LOWEST)
    count = 0
    for task in Path("/proc/self/task").iterdir():
        try:
            if (task / "comm").read_text().startswith(prefix):
                os.setpriority(os.PRIO_PROCESS, int(task.name), priority)
                count += 1
        except OSError:  # the thread has ended, or its priority is lower already
            continue
    return count
