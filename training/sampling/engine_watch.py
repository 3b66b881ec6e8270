"""Calls into an engine in other processes, which fail if one of these processes dies.

vLLM's synchronous client would wait forever.
"""

import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from training.errors import UserError
from training.threads import run_in_thread

T = TypeVar("T")

# Time for a call to fail by itself after a process has died: vLLM's own error keeps its client
# usable.
_GRACE_SECONDS = 1.0
# Time for the engine's process to end after vLLM's own error about a dead worker.
_EXIT_SECONDS = 5.0


def engine_processes(engine: Any) -> Sequence[BaseProcess]:
    """Return the processes of a `vllm.LLM`'s engine; empty if the engine is in this process.

    Workers are not included: when one dies, vLLM ends the engine's process.
    """
    resources = getattr(engine.llm_engine.engine_core, "resources", None)
    return () if resources is None else tuple(resources.engine_manager.processes)


def call_watched(processes: Sequence[BaseProcess], call: Callable[[], T]) -> T:
    """Run `call` while watching the child processes that it depends on.

    The call runs in a thread, which is abandoned if it still waits after a process has exited.

    Raises:
        UserError: A process exited and the call failed; the message names the process.
    """
    if not processes:
        return call()
    reader, writer = Pipe(duplex=False)
    future = run_in_thread(call, "EngineCall")
    future.add_done_callback(lambda _: writer.close())  # makes the reader readable
    dead_process = _wait_for_exit(processes, stop_signal=reader)
    if dead_process is not None:
        wait([reader], _GRACE_SECONDS)
        if not future.done():
            raise UserError(_exit_message(dead_process))
    try:
        return future.result()
    except UserError:
        raise
    except Exception as error:
        dead_process = _wait_for_exit(processes, timeout=_EXIT_SECONDS)
        if dead_process is None:
            raise
        raise UserError(_exit_message(dead_process)) from error


def _wait_for_exit(
    processes: Sequence[BaseProcess],
    *,
    stop_signal: Connection | None = None,
    timeout: float | None = None,
) -> BaseProcess | None:
    """Wait for a process to end; return None after `timeout` seconds or on `stop_signal`."""
    connections = [] if stop_signal is None else [stop_signal]
    ready_objects = wait([*(process.sentinel for process in processes), *connections], timeout)
    if stop_signal in ready_objects:
        return None
    return next((process for process in processes if process.sentinel in ready_objects), None)


def _exit_message(process: BaseProcess) -> str:
    process.join(1.0)  # another thread may receive the exit status first
    status = process.exitcode
    if status is not None and status < 0:
        cause = f"was killed by signal {-status} ({signal.strsignal(-status)})"
    else:  # vLLM ends it when a worker has died
        cause = f"ended with exit status {status}, maybe because one of its workers died"
    return (
        f"vLLM's process {process.name} ({process.pid}) {cause}; often memory is full. Run the "
        "same command again: a run resumes from its last checkpoint"
    )
