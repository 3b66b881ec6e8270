"""One JSON line per question and answer between the benchmark and its worker processes.

Every side of a comparison runs in a separate process: it may need other versions of the same
libraries, and it waits for input while another side is measured.
This file uses only the standard library, because it runs in other libraries' environments, too.
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
        python: the interpreter of the environment to run in.
        module: the module to run, which calls `serve`.
        environment: variables to add to this process's environment.
    """

    def __init__(self, python: Path, module: str, environment: Mapping[str, str]) -> None:
        self._name = module
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed in __exit__)
        # Answers use a separate pipe, because libraries may print to standard output.
        reading, writing = os.pipe()
        try:
            self._process = subprocess.Popen(
                [str(python), "-m", module, str(writing)],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(writing,),
                text=True,
            )
        finally:
            os.close(writing)
        self._answers = os.fdopen(reading)
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
        """Ask one question, a method of the contestant with its arguments, and wait for the answer.

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
            end = " | ".join(self._log.read().strip().splitlines()[-3:])
            raise WorkerError(f"{self._name}: ended with status {status}: {end}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(f"{self._name}: {answer['error']}")
        return answer


def serve(contestant: object) -> None:
    """Answer questions from standard input until it ends; each worker's module calls this.

    A question is a method of the contestant. `prepare` makes everything, compiles it and runs it
    once; `measure` works for so many `seconds` and returns the `units` done and the `seconds`
    taken.

    An exception is answered by `{"error": ...}`. Answers go to the pipe whose number is the only
    argument of the process.
    """
    answers = os.fdopen(int(sys.argv[1]), "w")
    for line in sys.stdin:
        fields = json.loads(line)
        try:
            answer = getattr(contestant, fields.pop("question"))(**fields)
        except Exception as error:
            traceback.print_exc()
            first = (str(error).strip().splitlines() or [""])[0]
            answer = {"error": f"{type(error).__name__}: {first}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def repeat(call: Callable[[], float], seconds: float) -> dict[str, float]:
    """Call again and again until `seconds` have passed, at least once.

    Each call does its work to the end and returns how many units it did. The answer holds the
    `units` done and the `seconds` that they took, by a monotonic clock.
    """
    units = 0.0
    start = time.perf_counter()
    while True:
        units += call()
        passed = time.perf_counter() - start
        if passed >= seconds:
            return {"units": units, "seconds": passed}
