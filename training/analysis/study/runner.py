"""Run a study: the warm start, then run after run, each in a process of its own; or say how.

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
from dataclasses import dataclass, field
from types import FrameType

from rich.table import Table

from training.analysis.study.config import Study, StudyRun
from training.analysis.study.directory import (
    FIRST_ROUNDS,
    WARM_START,
    ProcessRecord,
    StudyDirectory,
    this_machine,
)
from training.run.directory import RunDirectory
from training.run.forking import fork_first_round
from training.run.progress import console, duration, new_table

COMMAND = (sys.executable, "-m", "training.cli")
"""Begins the command line of every run; `run BASE --run-dir DIR ...` follows."""

LOG_LINES = 12
"""How many lines of its log are shown of a run that failed."""

_SECONDS_TO_END = 20.0


def print_study_plan(study: Study, directory: StudyDirectory) -> None:
    """Print the runs, their state, and what each of them and all of them take."""
    config, warm_start, runs = study.config, study.warm_start, study.runs
    left = [run for run in runs if not directory.run(run).finished()]
    console.print(f"Plan of {config.name} in {directory.path}; nothing is started.\n")
    table = Table(title="Runs, in their order", title_justify="left")
    for head in ("run", "set", "state"):
        table.add_column(head, overflow="fold")
    if study.warms_up:
        state = "finished" if directory.warm_started else "to do"
        table.add_row("warm start", " ".join(config.set), state)
    overrides = {one.name: " ".join(one.set) for one in config.engineers}
    for run in runs:
        begun = "to be continued" if directory.run(run).path.exists() else "to do"
        table.add_row(str(run), overrides[run.engineer], begun if run in left else "finished")
    console.print(table)

    wanted = warm_start.validation
    boards = len(wanted.sizes) * len(wanted.hole_ratios) * len(wanted.wait_ratios) * wanted.per_cell
    stages = warm_start.stages.count
    updates = stages * warm_start.updates_per_stage
    instances = updates * warm_start.grpo.prompts_per_update
    table = new_table("\nWhat they take", "", "each run", f"all {len(runs)}")
    for name, amount in (
        ("stages", stages),
        ("updates", updates),
        ("training instances", instances),
        ("completions in training", instances * warm_start.grpo.completions),
        ("validation answers", boards * (stages + 1)),
    ):
        table.add_row(name, f"{amount:,}", f"{amount * len(runs):,}")
    attempts = [study.config_of(run, directory.policy).engineer.attempts for run in runs]
    most, total = stages * max(attempts), stages * sum(attempts)
    table.add_row("engineer's answers, at most", f"{most:,}", f"{total:,}")
    console.print(table)
    if left and (each := directory.seconds_per_run) is not None:
        console.print(
            f"\n{len(left)} of {len(runs)} runs are left; at {duration(each)} per run, as so far, "
            f"they take about {duration(len(left) * each)}."
        )


def run_study(study: Study, directory: StudyDirectory) -> bool:
    """Run whatever is not finished in the study's directory, and say on the terminal how it goes.

    True if every run is finished then; False also if the warm start failed.
    """
    with directory.lock() as lock, _ended_by_sigterm():
        if (here := this_machine()) not in directory.machines.read():
            directory.machines.append(here)
        return _Runner(study, directory, lock).run_all()


@dataclass(frozen=True)
class _Runner:
    """Runs the processes of one call, one after the other."""

    study: Study
    directory: StudyDirectory
    lock: int
    began: float = field(default_factory=time.monotonic)

    def run_all(self) -> bool:
        """Run the warm start, if there is to be one, then every run that is not finished."""
        study, directory = self.study, self.directory
        if study.warms_up and not directory.warm_started and not self._run_warm_start():
            return False
        runs = study.runs
        waiting = [run for run in runs if not directory.run(run).finished()]
        if kept := len(runs) - len(waiting):
            console.print(f"{kept} of {len(runs)} runs are finished already.")
        failed = 0
        for number, run in enumerate(waiting, start=1):
            files, title = directory.run(run), f"[{kept + number}/{len(runs)}] {run}"
            if not files.path.exists():
                self._share_first_round(run)
            name, overrides = f"{run.engineer}/{run.seed}", study.overrides(run, directory.policy)
            status, seconds = self._run_process(title, name, files, ["--set", *overrides])
            left = self._left(len(waiting) - number)
            if status == 0 and files.finished():
                rate = _valid_rate(files, study.warm_start.stages.count)
                _say(f"{title}: {duration(seconds)}, {rate}; {left}")
            else:
                failed += 1
                self._say_failed(title, files, status, seconds)
                _say(left)
        return not failed

    def _share_first_round(self, run: StudyRun) -> None:
        """Let a run begin with a first round that it shares with others, which is run if need be.

        Without one, because it failed, the run does everything itself.
        """
        study, directory = self.study, self.directory
        first = study.first_round_of(run, directory.policy)
        if first is None:
            return
        files = directory.first_round(first)
        if not directory.has_first_round(first):
            title = f"first round of seed {first.seed}"
            name = f"{FIRST_ROUNDS}/{first.engineer}/{first.seed}"
            overrides = study.first_round_overrides(first, directory.policy)
            arguments = ["--stop-after", "1", "--set", *overrides]
            status, seconds = self._run_process(title, name, files, arguments)
            if status != 0:
                self._say_failed(title, files, status, seconds)
                return
            _say(f"{title}: {duration(seconds)}, {_valid_rate(files, 1)}")
        config = study.config_of(run, directory.policy)
        fork_first_round(files, directory.run(run).path, config)

    def _run_warm_start(self) -> bool:
        files, overrides = self.directory.warm_start, self.study.config.set
        arguments = ["--stop-after", "0", *(["--set", *overrides] if overrides else [])]
        status, seconds = self._run_process("warm start", WARM_START, files, arguments)
        if status == 0 and self.directory.warm_started:
            _say(f"warm start: {duration(seconds)}, {_valid_rate(files, 0)}")
            return True
        self._say_failed("warm start", files, status, seconds)
        _say("Every run starts from the warm start: none can be started.")
        return False

    def _run_process(
        self, title: str, name: str, files: RunDirectory, arguments: Sequence[str]
    ) -> tuple[int, float]:
        """Run one process to its end and return its exit status and the seconds it took.

        Both are logged, also if an interrupt ends the process and the study.
        """
        log = self.directory.log(files)
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [*COMMAND, "run", str(self.study.base), "--run-dir", str(files.path)]
        # Runs share compiled programs, unless the user's environment says otherwise.
        shared = {
            "JAX_COMPILATION_CACHE_DIR": str(self.directory.compiled),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1",
        }
        began = time.monotonic()
        with log.open("ab") as output, console.status(f"{title} (see {log})"):
            process = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=shared | os.environ,
                pass_fds=(self.lock,),
            )
            try:
                process.wait()
            except BaseException:
                _end(process)
                raise
            finally:
                seconds = time.monotonic() - began
                status = process.returncode
                self.directory.processes.append(
                    ProcessRecord(run=name, status=status, seconds=round(seconds, 1))
                )
        return status, seconds

    def _left(self, runs: int) -> str:
        elapsed = f"elapsed {duration(time.monotonic() - self.began)}"
        each = self.directory.seconds_per_run
        if not runs or each is None:
            return elapsed
        return f"{elapsed}, about {duration(runs * each)} left for {runs} more"

    def _say_failed(self, title: str, files: RunDirectory, status: int, seconds: float) -> None:
        log = self.directory.log(files)
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        _say(f"{title}: failed with {how} after {duration(seconds)}; the end of {log}:")
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]:
            _say(f"    {line}")


def _say(words: str) -> None:
    console.print(words, soft_wrap=True, markup=False)


def _valid_rate(files: RunDirectory, stage: int) -> str:
    total = files.stage(stage).validation.read().total
    return f"valid {100 * total.valid / total.count:.1f}%"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end, and kill it if it does not, or at a second interrupt."""
    try:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_SECONDS_TO_END)
    finally:  # does nothing to a process that has ended
        process.kill()
        process.wait()


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM raise SystemExit, so that the run in progress is ended, too."""

    def unwind(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
