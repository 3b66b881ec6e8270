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


def start_process(target: Callable[..., object], argument: object) -> BaseProcess:
    process = multiprocessing.get_context("spawn").Process(target=target, args=(argument,))
    process.start()
    return process


@pytest.fixture(scope="module")
def worker() -> Iterator[BaseProcess]:
    process = start_process(time.sleep, 600)
    yield process
    process.kill()
    process.join()


def wait_forever() -> object:
    """Wait as vLLM's client does."""
    return queue.Queue[object]().get()


def kill_soon(pid: int | None, signal_number: signal.Signals) -> None:
    assert pid is not None
    threading.Timer(0.3, os.kill, (pid, signal_number)).start()


def test_killed_process_ends_a_waiting_call(worker: BaseProcess) -> None:
    process = start_process(time.sleep, 600)
    kill_soon(process.pid, signal.SIGKILL)
    start = time.monotonic()
    message = rf"process {process.name} \({process.pid}\) was killed by signal 9 \(Killed\)"
    with pytest.raises(UserError, match=message + ".* Run the same command again"):
        call_watched([worker, process], wait_forever)
    assert time.monotonic() - start < 15


def test_call_error_names_the_ended_process_and_status() -> None:
    process = start_process(sys.exit, 3)

    def fail() -> None:
        raise RuntimeError("the engine is dead")

    with pytest.raises(UserError, match=rf"\({process.pid}\) ended with exit status 3"):
        call_watched([process], fail)


def test_ctrl_c_interrupts_a_waiting_call(worker: BaseProcess) -> None:
    kill_soon(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        call_watched([worker], wait_forever)


def test_call_watched_passes_results(worker: BaseProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_watch, "_EXIT_SECONDS", 0.1)
    assert call_watched([worker], lambda: 5) == 5
    for error_type in (UserError, ValueError):

        def fail(error_type: type[Exception] = error_type) -> None:
            raise error_type("its own")

        with pytest.raises(error_type, match=r"^its own$"):
            call_watched([worker], fail)
