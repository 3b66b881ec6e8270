"""Protocol between the benchmark and its workers: one JSON line per question and per answer.

Each side of a comparison runs in a separate process, because it may need other versions of the same
libraries. It waits for input while another side is measured. This file uses only the standard
library, because it also runs in the environments of other libraries.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class WorkerError(RuntimeError):
    """A worker raised an error or died; the message says which and why."""


class Worker:
    """A worker process, to be used as a context manager.

    Args:
        python: Interpreter of the worker's environment.
        module: Module to run, which calls `serve`.
        environment: Variables to add to this process's environment.
    """

    def __init__(self, python: Path, module: str, environment: Mapping[str, str]) -> None:
        self._name = module
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed in __exit__)
        # Answers use a separate pipe, because libraries may print to standard output.
        read_end, write_end = os.pipe()
        try:
            self._process = subprocess.Popen(
                [str(python), "-m", module, str(write_end)],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(write_end,),
                text=True,
            )
        finally:
            os.close(write_end)
        self._answers = os.fdopen(read_end)
        assert self._process.stdin is not None
        self._questions = self._process.stdin

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._questions.close()
            self._process.wait(timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._answers.close()
        self._log.close()

    def ask(self, question: str, **fields: Any) -> dict[str, Any]:
        """Call a method of the benchmark with these arguments, and wait for its answer.

        Raises:
            WorkerError: The worker raised an error or died.
        """
        try:
            self._questions.write(json.dumps({"question": question, **fields}) + "\n")
            self._questions.flush()
            line = self._answers.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            status = self._process.wait()
            self._log.seek(0)
            log_tail = " | ".join(self._log.read().strip().splitlines()[-3:])
            raise WorkerError(f"{self._name}: ended with status {status}: {log_tail}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(f"{self._name}: {answer['error']}")
        return answer


def serve(benchmark: object) -> None:
    """Answer questions from standard input until it ends; each worker's module calls this.

    A question names a method of the benchmark. `prepare` builds, compiles and runs the program
    once. `measure` works for some `seconds` and returns the completed `units` and the elapsed
    `seconds`.

    An exception gives the answer `{"error": ...}`. Answers go to the pipe whose number is the only
    argument of the process.
    """
    answers = os.fdopen(int(sys.argv[1]), "w")
    for line in sys.stdin:
        fields = json.loads(line)
        try:
            answer = getattr(benchmark, fields.pop("question"))(**fields)
        except Exception as error:
            traceback.print_exc()
            first_line = (str(error).strip().splitlines() or [""])[0]
            answer = {"error": f"{type(error).__name__}: {first_line}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def repeat(call: Callable[[], float], seconds: float) -> dict[str, float]:
    """Repeat a call until `seconds` have passed; return the total `units` and elapsed `seconds`.

    Each call completes its work and returns its number of units.
    """
    units = 0.0
    start = time.perf_counter()
    while True:
        units += call()
        elapsed_seconds = time.perf_counter() - start
        if elapsed_seconds >= seconds:
            return {"units": units, "seconds": elapsed_seconds}
