"""Calls into an engine of other processes, which end when one of these dies.

vLLM's synchronous client waits for an answer without end if the engine's process was killed.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, TypeVar

from training.errors import UserError
from training.threads import in_thread

T = TypeVar("T")

# After a death a call may go on for so long: an error of vLLM's own leaves its client in order.
_SECONDS_OF_GRACE = 1.0
_SECONDS_BETWEEN_INTERRUPTS = 0.5
# Where a worker died, vLLM's own error comes before the engine's process has ended.
_SECONDS_TO_END = 5.0


def engine_processes(engine: Any) -> Sequence[BaseProcess]:
    """Return the processes of a `vllm.LLM`'s engine; none if the engine is in this process.

    The workers are not among them: when one dies, vLLM ends the engine's process.
    """
    resources = getattr(engine.llm_engine.engine_core, "resources", None)
    return () if resources is None else tuple(resources.engine_manager.processes)


def call_watched(processes: Sequence[BaseProcess], call: Callable[[], T]) -> T:
    """Return what `call` returns; it may need all of these processes, children of this one.

    If one of them ends, a call that still waits is interrupted as by Ctrl-C, by whose signal this
    is done. A real Ctrl-C does what it would do otherwise. Python interrupts its main thread alone:
    a call from another thread is made in one more, and left behind there if it waits on.

    Raises:
        UserError: A process ended, and the call failed; the message says which one and how.
    """
    if not processes:
        return call()
    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread and signal.getsignal(signal.SIGINT) is None:  # Python can't set it back
        return call()
    watch = _Watch(processes) if in_main_thread else _WatchBeside(processes)
    try:
        return watch.run(call)
    except UserError:
        raise
    except (Exception, _EngineEnded) as error:
        ended = _first_to_end(processes, timeout=_SECONDS_TO_END)
        if ended is None:
            raise
        raise UserError(_notice(ended)) from error
    finally:
        watch.stop()


class _EngineEnded(BaseException):
    """Interrupts the call; no library takes it for an error that it knows."""


class _Watch:
    """A thread that interrupts this one while it is in a call and a process has ended."""

    def __init__(self, processes: Sequence[BaseProcess]) -> None:
        self._processes = processes
        self._in_call = False
        self._ended = False
        self._stopped, self._stop = Pipe(duplex=False)
        self._before: Any = signal.signal(signal.SIGINT, self._on_signal)
        self._thread = threading.Thread(target=self._watch, name="EngineWatch", daemon=True)
        self._thread.start()

    def run(self, call: Callable[[], T]) -> T:
        """Make the call; `_EngineEnded` if it was interrupted."""
        try:
            self._in_call = True
            return call()
        finally:
            self._in_call = False  # from here on no signal of the thread's raises anything

    def stop(self) -> None:
        """End the thread, and let Ctrl-C do what it did before."""
        self._stop.close()  # which the thread sees as something to read
        self._thread.join()
        self._stopped.close()
        signal.signal(signal.SIGINT, self._before)

    def _watch(self) -> None:
        if _first_to_end(self._processes, stopped=self._stopped) is None:
            return
        pause = _SECONDS_OF_GRACE
        # More than once: an exception that is raised in a callback of Python's is only printed.
        while not wait([self._stopped], pause):
            self._ended = True
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            pause = _SECONDS_BETWEEN_INTERRUPTS

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._ended:
            if self._in_call:
                raise _EngineEnded
        elif callable(self._before):
            self._before(number, frame)
        elif self._before == signal.SIG_DFL:
            raise KeyboardInterrupt


class _WatchBeside:
    """Waits for a call in another thread, or for the end of a process."""

    def __init__(self, processes: Sequence[BaseProcess]) -> None:
        self._processes = processes
        self._done, self._tell = Pipe(duplex=False)

    def run(self, call: Callable[[], T]) -> T:
        """Make the call; `_EngineEnded` if it still waits after the end of a process."""
        future = in_thread(call, "EngineCall")
        future.add_done_callback(lambda _: self._tell.close())
        if _first_to_end(self._processes, stopped=self._done) is not None:
            wait([self._done], _SECONDS_OF_GRACE)
        if not future.done():
            raise _EngineEnded
        return future.result()

    def stop(self) -> None:
        """Stop waiting."""
        self._done.close()


def _first_to_end(
    processes: Sequence[BaseProcess],
    *,
    stopped: Connection | None = None,
    timeout: float | None = None,
) -> BaseProcess | None:
    """Wait for the end of a process; None: the timeout, s, is over, or `stopped` can be read."""
    others = [] if stopped is None else [stopped]
    ready = wait([*(process.sentinel for process in processes), *others], timeout)
    if any(one in ready for one in others):
        return None
    return next((one for one in processes if one.sentinel in ready), None)


def _notice(ended: BaseProcess) -> str:
    ended.join(1.0)  # another thread may be the one that is told the status
    status = ended.exitcode
    if status is not None and status < 0:
        how = f"was killed by {_signal_name(-status)}"
    else:  # vLLM ends it when a worker has died
        how = "has ended" if status is None else f"ended with exit status {status}"
        how += ", maybe because one of its workers died"
    return (
        f"vLLM's process {ended.name} ({ended.pid}) {how}; often memory has run out. Run the same "
        "command again: a run goes on from its last checkpoint"
    )


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
