"""Calls into an engine of other processes, which end when one of these dies.

vLLM's synchronous client waits without end if the engine's process was killed.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from training.errors import UserError
from training.threads import in_thread

T = TypeVar("T")

# After a death a call may go on for so long: an error of vLLM's own leaves its client in order.
_SECONDS_OF_GRACE = 1.0
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

    The call is made in a thread, which is left behind if it still waits after one of them ended.

    Raises:
        UserError: A process ended, and the call failed; the message says which one and how.
    """
    if not processes:
        return call()
    done, tell = Pipe(duplex=False)
    future = in_thread(call, "EngineCall")
    future.add_done_callback(lambda _: tell.close())
    ended = _first_to_end(processes, stopped=done)
    if ended is not None:
        wait([done], _SECONDS_OF_GRACE)
        if not future.done():
            raise UserError(_notice(ended))
    try:
        return future.result()
    except UserError:
        raise
    except Exception as error:
        ended = _first_to_end(processes, timeout=_SECONDS_TO_END)
        if ended is None:
            raise
        raise UserError(_notice(ended)) from error


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
        how = f"was killed by signal {-status} ({signal.strsignal(-status)})"
    else:  # vLLM ends it when a worker has died
        how = f"ended with exit status {status}, maybe because one of its workers died"
    return (
        f"vLLM's process {ended.name} ({ended.pid}) {how}; often memory has run out. Run the same "
        "command again: a run goes on from its last checkpoint"
    )
