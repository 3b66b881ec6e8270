"""Threads that a process does not wait for when it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_thread(function: Callable[[], T], name: str) -> Future[T]:
    """Call a function in a daemon thread, and return its future result.

    Python waits at its end for the threads of an executor, also for one whose call never returns:
    vLLM answers no call that waits when its engine dies.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
