"""A watched call ends when one of its processes dies, and only then."""

import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess

import pytest

from training.errors import UserError
from training.sampling import engine_watch
from training.sampling.engine_watch import call_watched

pytestmark = pytest.mark.timeout(60)


def started(target: Callable[..., object], argument: object) -> BaseProcess:
    process = multiprocessing.get_context("spawn").Process(target=target, args=(argument,))
    process.start()
    return process


@pytest.fixture(scope="module")
def living() -> Iterator[BaseProcess]:
    process = started(time.sleep, 600)
    yield process
    process.kill()
    process.join()


def never() -> object:
    """Wait as vLLM's client does."""
    return queue.Queue[object]().get()


def kill_soon(pid: int | None, number: signal.Signals) -> None:
    assert pid is not None
    threading.Timer(0.3, os.kill, (pid, number)).start()


def test_killed_process_ends_a_waiting_call(living: BaseProcess) -> None:
    process = started(time.sleep, 600)
    kill_soon(process.pid, signal.SIGKILL)
    start = time.monotonic()
    named = rf"process {process.name} \({process.pid}\) was killed by signal 9 \(Killed\)"
    with pytest.raises(UserError, match=named + ".* Run the same command again"):
        call_watched([living, process], never)
    assert time.monotonic() - start < 15


def test_call_error_names_the_ended_process_and_status() -> None:
    process = started(sys.exit, 3)

    def fail() -> None:
        raise RuntimeError("the engine is dead")

    with pytest.raises(UserError, match=rf"\({process.pid}\) ended with exit status 3"):
        call_watched([process], fail)


def test_ctrl_c_interrupts_a_waiting_call(living: BaseProcess) -> None:
    kill_soon(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        call_watched([living], never)


def test_call_watched_passes_results(living: BaseProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_watch, "_EXIT_SECONDS", 0.1)
    assert call_watched([living], lambda: 5) == 5
    for kind in (UserError, ValueError):

        def fail(kind: type[Exception] = kind) -> None:
            raise kind("its own")

        with pytest.raises(kind, match=r"^its own$"):
            call_watched([living], fail)
