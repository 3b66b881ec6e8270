"""Carry a study out: the warm start, then run after run, each in a process of its own.

vLLM can't be started twice in one process. A run that fails is reported, and the others go on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from training.report.figures import duration
from training.run.directory import RunDirectory, read_json
from training.run.progress import console
from training.study.config import Study
from training.study.directory import WARM_START, StudyDirectory
from training.study.machine import machine

COMMAND = (sys.executable, "-m", "training.cli")
"""What `run BASE --run-dir DIR ...` is appended to."""

LOG_LINES = 12
"""Lines of its log that are shown of a run that failed."""

_SECONDS_TO_END = 20.0


def carry_out(
    study: Study, directory: StudyDirectory, command: Sequence[str] | None = None
) -> bool:
    """Run whatever is not finished, and say on the terminal how it goes.

    Args:
        study: what is run.
        directory: belongs to this study already.
        command: begins the command line of each run; None: `COMMAND`.

    Returns:
        Whether every run is finished; False also where the warm start failed.

    Raises:
        UserError: another process works in the directory.
    """
    with directory.lock() as lock, _ended_by_sigterm():
        if (here := machine()) not in directory.machines.read():
            directory.machines.append(here)
        return _Runner(study, directory, tuple(command or COMMAND), lock).all()


class _Runner:
    """The processes of one call, one after the other."""

    def __init__(
        self, study: Study, directory: StudyDirectory, command: tuple[str, ...], lock: int
    ) -> None:
        self._study = study
        self._directory = directory
        self._command = command
        self._lock = lock
        self._began = time.monotonic()

    def all(self) -> bool:
        """The warm start, then every run that is not finished."""
        study, directory = self._study, self._directory
        if not directory.warm_started and not self._warm_start():
            return False
        arms = study.arms
        waiting = [arm for arm in arms if not directory.finished(arm)]
        if kept := len(arms) - len(waiting):
            console.print(f"{kept} of {len(arms)} runs are finished already.")
        failed = 0
        for number, arm in enumerate(waiting, start=1):
            run = directory.run(arm)
            title = f"[{kept + number}/{len(arms)}] {arm}"
            overrides = study.overrides(arm, directory.policy)
            arguments = ["--run-dir", str(run), "--set", *overrides]
            status, seconds = self._process(title, f"{arm.engineer}/{arm.seed}", run, arguments)
            left = self._left(len(waiting) - number)
            if status == 0 and directory.finished(arm):
                self._say(
                    f"{title}: {duration(seconds)}, {_valid(run, study.run.stages.rounds)}; {left}"
                )
            else:
                failed += 1
                self._say_failed(title, run, status, seconds)
                self._say(left)
        return not failed

    def _warm_start(self) -> bool:
        run = self._directory.warm_start
        overrides = self._study.config.set
        arguments = ["--run-dir", str(run), "--stop-after", "0"]
        arguments += ["--set", *overrides] if overrides else []
        status, seconds = self._process("warm start", WARM_START, run, arguments)
        if status == 0 and self._directory.warm_started:
            self._say(f"warm start: {duration(seconds)}, {_valid(run, 0)}")
            return True
        self._say_failed("warm start", run, status, seconds)
        self._say("Every run starts from the warm start: none can be started.")
        return False

    def _process(
        self, title: str, name: str, run: Path, arguments: Sequence[str]
    ) -> tuple[int, float]:
        """Run one process to its end: its exit status and the seconds it took.

        These are logged also where an interrupt ends both the process and the study.
        """
        log = self._directory.log(run)
        log.parent.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with log.open("ab") as output, console.status(f"{title} (see {log})"):
            process = subprocess.Popen(
                [*self._command, "run", str(self._study.base), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment(),
                pass_fds=(self._lock,),
            )
            try:
                process.wait()
            except BaseException:
                _end(process)
                raise
            finally:
                seconds = time.monotonic() - began
                self._directory.processes.append(
                    {"run": name, "status": process.returncode, "seconds": round(seconds, 1)}
                )
        return process.returncode, seconds

    def _environment(self) -> dict[str, str]:
        """The user's, with programs compiled once for all runs; the user's own values win."""
        return {
            "JAX_COMPILATION_CACHE_DIR": str(self._directory.compiled),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1",
            **os.environ,
        }

    def _left(self, runs: int) -> str:
        elapsed = f"elapsed {duration(time.monotonic() - self._began)}"
        each = self._directory.seconds_a_run
        if not runs or each is None:
            return elapsed
        return f"{elapsed}, about {duration(runs * each)} left for {runs} more"

    def _say_failed(self, title: str, run: Path, status: int, seconds: float) -> None:
        log = self._directory.log(run)
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        self._say(f"{title}: failed with {how} after {duration(seconds)}; the end of {log}:")
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]:
            self._say(f"    {line}")

    def _say(self, words: str) -> None:
        console.print(words, soft_wrap=True, markup=False)


def _valid(run: Path, stage: int) -> str:
    total = read_json(RunDirectory(run).stage(stage) / "validation.json")["total"]
    return f"valid {100 * total['valid'] / total['count']:.1f}%"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_SECONDS_TO_END)
    finally:  # does nothing to a process that has ended
        process.kill()
        process.wait()


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind the stack, so that the run in progress is ended too."""

    def unwind(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    try:
        before = signal.signal(signal.SIGTERM, unwind)
    except ValueError:  # not the main thread, which alone may handle signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
