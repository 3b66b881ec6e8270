"""Run a study: the warm start, then run after run; or say how.

vLLM can't be started twice in one process, so that each run has a process of its own. Runs without
it follow each other in one process per job. A run that fails is reported, and the others go on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

from jaxlake.command_line.termination import unwound_by_sigterm
from training.analysis.study.cluster import Cluster, ClusterJob
from training.analysis.study.config import Study, StudyRun
from training.analysis.study.directory import (
    FIRST_ROUNDS,
    WARM_START,
    ProcessRecord,
    StudyDirectory,
    this_machine,
)
from training.analysis.study.interrupts import interrupts_held
from training.analysis.study.workers import Worker, WorkerRun
from training.errors import UserError
from training.run.answer_records import count_answers
from training.run.directory import RunDirectory
from training.run.forking import fork_first_round
from training.run.progress import (
    console,
    duration,
    new_table,
    print_table,
    working,
)
from training.run.rates import success_rates

COMMAND = (sys.executable, "-m", "jaxlake")
"""Begins the command line of every run; `run BASE --run-dir DIR ...` follows."""

LOG_LINES = 12
"""How many lines of its log are shown of a run that failed."""

_SECONDS_TO_END = 20.0
_MOMENT = 0.2
"""Seconds between two looks at processes that run side by side."""


def print_study_plan(study: Study, directory: StudyDirectory) -> None:
    """Print the runs, their state, and what each of them and all of them take."""
    config, warm_start, runs = study.config, study.warm_start, study.runs
    left = [run for run in runs if not directory.run(run).finished()]
    console.print(f"Plan of {config.name} in {directory.path}; nothing is started.\n")
    table = new_table("Runs, in their order", "run", "set", "state", left=3)
    if study.warms_up:
        state = "finished" if directory.warm_started else "to do"
        table.add_row("warm start", " ".join(config.set), state)
    overrides = {one.name: " ".join(one.set) for one in config.engineers}
    for run in runs:
        begun = "to be continued" if directory.run(run).path.exists() else "to do"
        table.add_row(str(run), overrides[run.engineer], begun if run in left else "finished")
    print_table(table)

    wanted = warm_start.cells
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
    print_table(table)
    if left and (each := directory.seconds_per_run) is not None:
        console.print(
            f"\n{len(left)} of {len(runs)} runs are left; at {duration(each)} per run, as so far, "
            f"they take about {duration(len(left) * each)}."
        )


def run_study(
    study: Study, directory: StudyDirectory, *, jobs: int = 1, cluster: Cluster | None = None
) -> bool:
    """Run whatever is not finished in the study's directory, and say on the terminal how it goes.

    `jobs` runs go side by side, each on its own part of the processor's cores, or as jobs of a
    cluster. True if every run is finished then; False also if the warm start failed. A `UserError`
    says that there are more jobs than cores.
    """
    if cluster is None and jobs > (cores := len(_usable_cores())):
        raise UserError(f"--jobs: got {jobs}, allowed are 1 to {cores}, the cores of this machine")
    with directory.lock() as lock, unwound_by_sigterm():
        if (here := this_machine()) not in directory.machines.read():
            directory.machines.append(here)
        return _Runner(study, directory, lock, jobs, cluster).run_all()


_Handle: TypeAlias = "subprocess.Popen[bytes] | WorkerRun | ClusterJob"
"""What is waited for, asked to end, and killed."""


class _Process(NamedTuple):
    """A process in progress, or what a worker was ordered to do."""

    title: str
    name: str  # in processes.jsonl
    files: RunDirectory
    process: _Handle
    began: float


# What there is to do for a run: gives a process, and is sent its exit status and seconds.
_Steps: TypeAlias = Generator[_Process, tuple[int, float], None]


@dataclass
class _Runner:
    """Runs the processes of one call, `jobs` side by side."""

    study: Study
    directory: StudyDirectory
    lock: int
    jobs: int
    cluster: Cluster | None = None  # None: processes of this machine
    began: float = field(default_factory=time.monotonic)
    failed: int = 0  # runs, and the warm start; a first round is none of them
    left: int = 0  # runs that have neither finished nor failed
    first_rounds: set[StudyRun] = field(default_factory=set)  # those in progress
    workers: dict[int, Worker] = field(default_factory=dict)  # by the number of their job
    in_progress: dict[int, _Process] = field(default_factory=dict)  # the same

    def run_all(self) -> bool:
        """Run the warm start, if there is to be one, then every run that is not finished."""
        try:
            return self._run_all()
        finally:
            for worker in self.workers.values():
                worker.close()

    def _run_all(self) -> bool:
        study, directory = self.study, self.directory
        if study.warms_up and not directory.warm_started:
            once = iter([self._warm_start])
            self._work(lambda slot: next(once, lambda _: None)(slot))
            if self.failed:
                return False
        runs = study.runs
        waiting = [run for run in runs if not directory.run(run).finished()]
        if kept := len(runs) - len(waiting):
            console.print(f"{kept} of {len(runs)} runs are finished already.")
        self.left = len(waiting)
        titles = {
            run: f"[{number}/{len(runs)}] {run}" for number, run in enumerate(waiting, kept + 1)
        }

        def start(slot: int) -> _Steps | None:
            for run in waiting:
                first = study.first_round_of(run, directory.policy)
                if first not in self.first_rounds:
                    waiting.remove(run)
                    return self._run(run, first, titles[run], slot)
            return None

        self._work(start)
        return not self.failed

    def _work(self, start: Callable[[int], _Steps | None]) -> None:
        """Take steps side by side until none are left.

        `start` is asked for more for each job that has nothing to do, by its number. If an
        interrupt ends the study, it ends all processes, which are logged like others.
        """
        running: dict[int, _Steps] = {}

        def take(slot: int, steps: _Steps, result: tuple[int, float] | None) -> None:
            with suppress(StopIteration):
                next(steps) if result is None else steps.send(result)
                running[slot] = steps

        try:
            with working("") as update:
                while True:
                    for slot in range(self.jobs):
                        if slot not in running and (steps := start(slot)) is not None:
                            take(slot, steps, None)
                    if not running:
                        return
                    processes = self.in_progress.values()
                    update(", ".join(self._shown(one) for one in processes))
                    _wait_for_one([one.process for one in processes])
                    for slot, one in list(self.in_progress.items()):
                        if one.process.poll() is not None:
                            del self.in_progress[slot]
                            take(slot, running.pop(slot), self._record(one))
        except BaseException:
            with ExitStack() as at_last:
                for one in self.in_progress.values():
                    at_last.callback(self._record, one)
                _end([one.process for one in self.in_progress.values()])
            raise

    def _run(self, run: StudyRun, first: StudyRun | None, title: str, slot: int) -> _Steps:
        """Run one run, after the first round that it shares with others."""
        study, directory = self.study, self.directory
        files = directory.run(run)
        if first is not None and not files.path.exists():
            shared = directory.first_round(first)
            if not directory.has_first_round(first):
                self.first_rounds.add(first)
                yield from self._first_round(first, shared, slot)
                self.first_rounds.remove(first)
            if directory.has_first_round(first):
                fork_first_round(shared, files.path, study.config_of(run, directory.policy))
        arguments = ["--set", *study.overrides(run, directory.policy)]
        name = f"{run.engineer}/{run.seed}"
        status, seconds = yield self._start(title, name, files, arguments, slot)
        self.left -= 1
        if status == 0 and files.finished():
            rate = _rates_of(files, study.warm_start.stages.count)
            _say(f"{title}: {duration(seconds)}, {rate}; {self._left()}")
        else:
            self.failed += 1
            self._say_failed(title, files, status, seconds)
            _say(self._left())

    def _first_round(self, first: StudyRun, files: RunDirectory, slot: int) -> _Steps:
        """Run a first round. Where it fails, runs do everything themselves."""
        title = f"first round of seed {first.seed}"
        name = f"{FIRST_ROUNDS}/{first.engineer}/{first.seed}"
        overrides = self.study.first_round_overrides(first, self.directory.policy)
        arguments = ["--stop-after", "1", "--set", *overrides]
        status, seconds = yield self._start(title, name, files, arguments, slot)
        if status == 0:
            _say(f"{title}: {duration(seconds)}, {_rates_of(files, 1)}")
        else:
            self._say_failed(title, files, status, seconds)

    def _warm_start(self, slot: int) -> _Steps:
        files, overrides = self.directory.warm_start, self.study.config.set
        arguments = ["--stop-after", "0", *(["--set", *overrides] if overrides else [])]
        status, seconds = yield self._start("warm start", WARM_START, files, arguments, slot)
        if status == 0 and self.directory.policy.is_dir():
            _say(f"warm start: {duration(seconds)}, {_rates_of(files, 0)}")
        else:
            self.failed += 1
            self._say_failed("warm start", files, status, seconds)
            _say("Every run starts from the warm start: none can be started.")

    def _start(
        self, title: str, name: str, files: RunDirectory, arguments: Sequence[str], slot: int
    ) -> _Process:
        """Start a process on the cores of a job; an interrupt waits until it can be ended."""
        log = self.directory.log(files)
        log.parent.mkdir(parents=True, exist_ok=True)
        command = ["run", str(self.study.base), "--run-dir", str(files.path)]
        # Runs share compiled programs, unless the user's environment says otherwise.
        defaults = {
            "JAX_COMPILATION_CACHE_DIR": str(self.directory.compiled),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1",
        }
        cores = _usable_cores()[slot :: self.jobs]
        if self.jobs > 1 and self.cluster is None:
            defaults["OMP_NUM_THREADS"] = str(len(cores))
        began, environment = time.monotonic(), defaults | os.environ
        whole = [*COMMAND, *command, *arguments]
        process: _Handle
        with interrupts_held():
            if self.cluster is not None:
                process = self.cluster.submit(name, whole, defaults, log)
            else:
                process = self._begin(slot, cores, environment, [*command, *arguments], log)
            one = self.in_progress[slot] = _Process(title, name, files, process, began)
        if self.cluster is not None and isinstance(process, ClusterJob):
            _say(f"{title}: job {process.id} of {self.cluster.name}, see {log}")
        return one

    def _begin(
        self,
        slot: int,
        cores: Sequence[int],
        environment: Mapping[str, str],
        arguments: Sequence[str],
        log: Path,
    ) -> _Handle:
        if self.study.warm_start.sampling.engine != "jax":
            with log.open("ab") as output:
                process = subprocess.Popen(
                    [*COMMAND, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    pass_fds=(self.lock,),
                )
            self._pin(process.pid, cores)
            return process
        worker = self.workers.get(slot)
        if worker is None or not worker.usable:
            if worker is not None:
                worker.close()
            worker = self.workers[slot] = Worker(environment, (self.lock,))
            self._pin(worker.process.pid, cores)
        return worker.run(arguments, log)

    def _pin(self, pid: int, cores: Sequence[int]) -> None:
        """Keep a process to the cores of its job, before it starts any thread."""
        if self.jobs > 1 and hasattr(os, "sched_setaffinity"):
            with suppress(ProcessLookupError):  # it has ended already
                os.sched_setaffinity(pid, cores)

    def _record(self, one: _Process) -> tuple[int, float]:
        """Log a process that has ended; its exit status and the seconds it took."""
        status = one.process.wait()
        seconds = time.monotonic() - one.began
        self.directory.processes.append(
            ProcessRecord(run=one.name, status=status, seconds=round(seconds, 1))
        )
        return status, seconds

    def _shown(self, one: _Process) -> str:
        job = one.process
        state = f"job {job.id} {job.state}, " if isinstance(job, ClusterJob) else ""
        return f"{one.title} ({state}see {self.directory.log(one.files)})"

    def _left(self) -> str:
        elapsed = f"elapsed {duration(time.monotonic() - self.began)}"
        each = self.directory.seconds_per_run
        if not self.left or each is None:
            return elapsed
        seconds = self.left * each / self.jobs
        return f"{elapsed}, about {duration(seconds)} left for {self.left} more"

    def _say_failed(self, title: str, files: RunDirectory, status: int, seconds: float) -> None:
        log = self.directory.log(files)
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        _say(f"{title}: failed with {how} after {duration(seconds)}; the end of {log}:")
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]:
            _say(f"    {line}")


def _say(words: str) -> None:
    console.print(words, soft_wrap=True, markup=False)


def _rates_of(files: RunDirectory, stage: int) -> str:
    episodes = files.stage(stage).episodes.read()
    return success_rates(count_answers(stage, episodes).total)


def _usable_cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _wait_for_one(processes: Sequence[_Handle]) -> None:
    """Wait until one of these processes has ended, or a moment if there are several.

    Of a job a moment is enough, too: its state may have changed.
    """
    forever = len(processes) == 1 and not isinstance(processes[0], ClusterJob)
    with suppress(subprocess.TimeoutExpired):
        processes[0].wait(None if forever else _MOMENT)


def _end(processes: Sequence[_Handle]) -> None:
    """Ask all processes to end, and kill those that do not, or all at a second interrupt.

    None of them is left, whatever interrupts come: each step of `at_last` is taken all the same, in
    reverse order, so that all are killed before any is waited for.
    """
    with ExitStack() as at_last:
        for process in processes:
            at_last.callback(process.wait)
        for process in processes:
            at_last.callback(process.kill)  # does nothing to a process that has ended
        for process in processes:
            process.terminate()
        deadline = time.monotonic() + _SECONDS_TO_END
        with suppress(subprocess.TimeoutExpired):
            for process in processes:
                process.wait(max(0.0, deadline - time.monotonic()))
