"""Processes that run one command of `jaxlake` after the other, for runs that are alike.

What a process has imported and compiled is there for its next run: a sixth of a short run's time.
A run in a worker writes what it would write in a process of its own.

As a program (`python -m training.analysis.study.workers FD`) this is such a process: an order is a
line of JSON on its standard input, and the exit status of each is a line to the file descriptor FD.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

COMMAND = (sys.executable, "-m", "training.analysis.study.workers")

MOST_RUNS = 16
"""How many runs one worker does: a process may hold only so many compiled programs."""


class Worker:
    """A process that takes orders, one after the other."""

    def __init__(self, environment: Mapping[str, str], inherited: Sequence[int] = ()) -> None:
        """Start it, with an environment and file descriptors that it is to hold."""
        self._answers, told = os.pipe()
        self._began = 0
        self._usable = True
        try:
            self.process = subprocess.Popen(
                [*COMMAND, str(told)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env=dict(environment),
                pass_fds=(*inherited, told),
            )
        finally:
            os.close(told)

    @property
    def usable(self) -> bool:
        """Whether it takes another order: it lives, all went well, and there were not too many."""
        return self._usable and self._began < MOST_RUNS and self.process.poll() is None

    def run(self, arguments: Sequence[str], log: Path) -> WorkerRun:
        """Order a command line, whose output is appended to a log."""
        self._began += 1
        order = json.dumps({"arguments": [*arguments], "log": str(log)}) + "\n"
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, which its run will say
            self.process.stdin.write(order.encode())
            self.process.stdin.flush()
        return WorkerRun(self)

    def answer(self, timeout: float | None) -> int | None:
        """Wait for the exit status of the order; None if it takes longer than the timeout, s.

        Of a worker that ended before it could answer this is the process's own.
        """
        if not select.select([self._answers], [], [], timeout)[0]:
            return None
        answer = os.read(self._answers, 64)
        status = int(answer) if answer else self.process.wait()
        self._usable = bool(answer) and status == 0
        return status

    def close(self) -> None:
        """End a worker that has nothing to do, and wait for its end."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        os.close(self._answers)


class WorkerRun:
    """One order in progress, to be handled like a process of its own."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit status; None if it isn't known yet."""
        if self.returncode is None:
            self.returncode = self._worker.answer(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status; a `subprocess.TimeoutExpired` after so many seconds."""
        if self.returncode is None:
            self.returncode = self._worker.answer(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(COMMAND, timeout or 0.0)
        return self.returncode

    def terminate(self) -> None:
        """Ask the worker to end."""
        if self.returncode is None:
            self._worker.process.terminate()

    def kill(self) -> None:
        """Kill the worker."""
        if self.returncode is None:
            self._worker.process.kill()


def _serve(orders: TextIO, answers: int) -> None:
    """Do one order after the other until there are no more, or one was interrupted."""
    from jaxlake.command_line.entry import INTERRUPTED, main

    for line in orders:
        order = json.loads(line)
        log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        os.dup2(log, sys.stdout.fileno())
        os.dup2(log, sys.stderr.fileno())
        os.close(log)
        try:
            status = main(order["arguments"])
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(answers, f"{status}\n".encode())
        if status == INTERRUPTED:
            os._exit(status)  # see `jaxlake.command_line.entry`


def _main() -> None:
    answers = int(sys.argv[1])
    os.set_inheritable(answers, False)  # a process of a run must not hold it when this one ends
    orders = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # orders are not a run's input
    with suppress(KeyboardInterrupt):
        _serve(orders, answers)


if __name__ == "__main__":
    _main()
