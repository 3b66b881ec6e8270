"""A call that waits for processes ends when one of them dies, and only then."""

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
from training.threads import in_thread

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


@pytest.mark.parametrize("ctrl_c", [signal.default_int_handler, signal.SIG_IGN, signal.SIG_DFL])
def test_a_killed_process_ends_a_call_that_waits_whatever_ctrl_c_does(
    ctrl_c: object, living: BaseProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.signal(signal.SIGINT, ctrl_c)  # type: ignore[arg-type]
    try:
        process = started(time.sleep, 600)
        kill_soon(process.pid, signal.SIGKILL)
        began = time.monotonic()
        named = rf"process {process.name} \({process.pid}\) was killed by signal 9 \(SIGKILL\)"
        with pytest.raises(UserError, match=named + ".* Run the same command again"):
            call_watched([living, process], never)
        assert time.monotonic() - began < 15
        assert signal.getsignal(signal.SIGINT) == ctrl_c
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_error_of_the_call_names_the_process_that_ended_with_its_status() -> None:
    process = started(sys.exit, 3)

    def fail() -> None:
        raise RuntimeError("the engine is dead")

    with pytest.raises(UserError, match=rf"\({process.pid}\) ended with exit status 3"):
        call_watched([process], fail)


def test_ctrl_c_does_what_it_did_while_a_call_waits(living: BaseProcess) -> None:
    kill_soon(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        call_watched([living], never)


def test_an_interrupt_that_is_only_printed_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)

    class Loses:
        def __del__(self) -> None:  # what is raised here, Python prints
            never()

    def call() -> object:
        Loses()
        return never()

    process = started(time.sleep, 600)
    kill_soon(process.pid, signal.SIGKILL)
    with pytest.raises(UserError, match="SIGKILL"):
        call_watched([process], call)
    assert len(lost) == 1


def test_results_and_errors_of_a_call_come_through(
    living: BaseProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_watch, "_SECONDS_TO_END", 0.1)
    assert call_watched([living], lambda: 5) == 5
    for kind in (UserError, ValueError):

        def fail(kind: type[Exception] = kind) -> None:
            raise kind("its own")

        with pytest.raises(kind, match=r"^its own$"):
            call_watched([living], fail)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_call_that_needs_no_process_is_only_made() -> None:
    before = signal.getsignal(signal.SIGINT)
    assert call_watched([], lambda: signal.getsignal(signal.SIGINT)) is before


def from_another_thread(processes: list[BaseProcess], call: Callable[[], object]) -> object:
    """Make a watched call as a rollout that is drawn ahead does."""
    return in_thread(lambda: call_watched(processes, call), "Prefetch").result(timeout=30)


def test_from_another_thread_results_and_errors_come_through_and_ctrl_c_is_left_alone(
    living: BaseProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_watch, "_SECONDS_TO_END", 0.1)
    before = signal.getsignal(signal.SIGINT)
    assert from_another_thread([living], lambda: signal.getsignal(signal.SIGINT)) is before

    def fail() -> None:
        raise ValueError("its own")

    with pytest.raises(ValueError, match=r"^its own$"):
        from_another_thread([living], fail)


def test_from_another_thread_a_call_that_waits_for_a_killed_process_is_left_behind(
    living: BaseProcess,
) -> None:
    process = started(time.sleep, 600)
    kill_soon(process.pid, signal.SIGKILL)
    with pytest.raises(UserError, match=rf"\({process.pid}\) was killed by signal 9"):
        from_another_thread([living, process], never)
