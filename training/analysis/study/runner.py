"""Run a study: the warm start, shared first rounds, then all runs, each in a separate process."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jaxlake.command_line.endings import exit_on_sigterm
from jaxlake.text_tables import format_duration
from training.analysis.study.cluster import Cluster, ClusterJob
from training.analysis.study.config import Study, StudyRun
from training.analysis.study.directory import StudyDirectory
from training.errors import UserError
from training.run.answer_records import compute_validation_rates
from training.run.directory import RunDirectory
from training.run.forking import fork_first_round
from training.run.lock import lock_folder
from training.run.progress import console, new_table, print_table, show_status
from training.run.rates import format_success_rates

COMMAND = (sys.executable, "-m", "jaxlake")
"""Start of every command line, before `run BASE --run-dir DIR ...`."""

LOG_LINES = 12
"""Number of log lines printed for a failed run."""

_TERMINATION_SECONDS = 20.0
"""Seconds that processes have to end before they are killed."""

_POLL_SECONDS = 0.2
"""Seconds between polls of the processes."""

Job = subprocess.Popen[bytes] | ClusterJob


@dataclass(frozen=True)
class Task:
    """One process of a run or an evaluation."""

    title: str
    name: str
    log: Path
    arguments: tuple[str, ...]
    read_result: Callable[[], str | None]  # returns a summary, or None if the result is missing


StartTask = Callable[[Task, int], Job]
"""Starts a task in one of the parallel slots."""


def print_study_plan(study: Study, directory: StudyDirectory) -> None:
    """Print the runs with their states, and the numbers of instances and answers."""
    config, warm_start, runs = study.config, study.warm_start, study.runs
    console.print(f"Plan of {config.name} in {directory.path}; nothing is started.\n")
    table = new_table("Runs, in their order", "run", "set", "state", left=3)
    if study.has_warm_start:
        state = "finished" if _has_warm_start(directory) else "to do"
        table.add_row("warm start", " ".join(config.set), state)
    overrides = {engineer.name: " ".join(engineer.set) for engineer in config.engineers}
    for run in runs:
        files = directory.run(run)
        state = "to resume" if files.path.exists() else "to do"
        state = "finished" if files.finished() else state
        table.add_row(str(run), overrides[run.engineer], state)
    print_table(table)

    cells, stages = warm_start.cells, warm_start.stages.count
    boards = len(cells.sizes) * len(cells.hole_ratios) * len(cells.wait_ratios) * cells.per_cell
    instances = stages * warm_start.updates_per_stage * warm_start.grpo.prompts_per_update
    table = new_table("\nAmounts", "", "each run", f"all {len(runs)}")
    for name, amount in (
        ("training instances", instances),
        ("completions in training", instances * warm_start.grpo.completions),
        ("validation answers", boards * (stages + 1)),
    ):
        table.add_row(name, f"{amount:,}", f"{amount * len(runs):,}")
    print_table(table)


def run_study(
    study: Study, directory: StudyDirectory, *, jobs: int = 1, cluster: Cluster | None = None
) -> bool:
    """Run or resume all runs of a study, and return whether all are finished.

    Args:
        study: The study.
        directory: Its files.
        jobs: Maximum number of active runs. Without a cluster, they share the cores equally.
        cluster: The cluster that runs the jobs; None: this machine.

    Raises:
        UserError: `jobs` exceeds the number of cores.
    """
    start = _make_starter(jobs, cluster)
    directory.path.mkdir(parents=True, exist_ok=True)
    with lock_folder(directory.path), exit_on_sigterm():
        if study.has_warm_start and not _has_warm_start(directory):
            overrides = ("--set", *study.config.set) if study.config.set else ()
            arguments = ("--stop-after", "0", *overrides)
            files = directory.warm_start
            task = _make_task(study, directory, "warm start", "warm-start", files, arguments, 0)
            if _run_tasks([task], start, 1):
                console.print("No run is started, because all runs need the warm start.")
                return False
        _run_tasks(_list_first_rounds(study, directory), start, jobs)
        return not _run_tasks(_prepare_runs(study, directory), start, jobs)


def run_tasks(
    tasks: Sequence[Task],
    directory: StudyDirectory,
    *,
    jobs: int = 1,
    cluster: Cluster | None = None,
) -> bool:
    """Run tasks as in `run_study`, and return whether all succeeded."""
    start = _make_starter(jobs, cluster)
    with lock_folder(directory.path), exit_on_sigterm():
        return not _run_tasks(tasks, start, jobs)


def _make_starter(jobs: int, cluster: Cluster | None) -> StartTask:
    """Return a function that starts tasks; raise a `UserError` for more jobs than cores."""
    cores = _usable_cores()
    if cluster is None and jobs > len(cores):
        raise UserError(f"--jobs is {jobs}; it must be 1 to {len(cores)}, the machine's cores")

    def start(task: Task, slot: int) -> Job:
        task.log.parent.mkdir(parents=True, exist_ok=True)
        command = [*COMMAND, *task.arguments]
        if cluster is not None:
            return cluster.submit(task.name, command, task.log)
        return _start_process(command, task.log, cores[slot::jobs] if jobs > 1 else None)

    return start


def _make_task(
    study: Study,
    directory: StudyDirectory,
    title: str,
    name: str,
    files: RunDirectory,
    arguments: Sequence[str],
    stage: int,
) -> Task:
    """Return a task that runs a configuration; its summary has the rates of `stage`."""

    def read_result() -> str | None:
        episodes = files.stage(stage).episodes
        if not episodes.exists():
            return None
        return format_success_rates(compute_validation_rates(stage, episodes.read()).total)

    command = ("run", str(study.base), "--run-dir", str(files.path), *arguments)
    return Task(title, name, directory.log(files), command, read_result)


def _has_warm_start(directory: StudyDirectory) -> bool:
    """Return whether the initial policy of all runs exists."""
    return directory.warm_start.stage(0).episodes.exists() and directory.policy.is_dir()


def _has_first_round(directory: StudyDirectory, run: StudyRun) -> bool:
    return directory.first_round(run).stage(1).episodes.exists()


def _list_first_rounds(study: Study, directory: StudyDirectory) -> list[Task]:
    """Return the shared first rounds that don't exist yet."""
    new_runs = (run for run in study.runs if not directory.run(run).path.exists())
    first_rounds = dict.fromkeys(study.find_first_round(run, directory.policy) for run in new_runs)
    return [
        _make_task(
            study,
            directory,
            f"first round of seed {run.seed}",
            f"first-round-{run.engineer}-{run.seed}",
            directory.first_round(run),
            ("--stop-after", "1", "--set", *study.first_round_overrides(run, directory.policy)),
            1,
        )
        for run in first_rounds
        if run is not None and not _has_first_round(directory, run)
    ]


def _prepare_runs(study: Study, directory: StudyDirectory) -> list[Task]:
    """Copy shared first rounds to the runs, and return the runs that are not finished."""
    tasks, total = [], len(study.runs)
    for number, run in enumerate(study.runs, 1):
        files = directory.run(run)
        if files.finished():
            continue
        if not files.path.exists():
            source = study.find_first_round(run, directory.policy)
            if source is not None and _has_first_round(directory, source):
                config = study.make_run_config(run, directory.policy)
                fork_first_round(directory.first_round(source), files.path, config)
        arguments = ("--set", *study.overrides(run, directory.policy))
        title, name = f"[{number}/{total}] {run}", f"{run.engineer}-{run.seed}"
        stage = study.warm_start.stages.count
        tasks.append(_make_task(study, directory, title, name, files, arguments, stage))
    if finished := total - len(tasks):
        console.print(f"{finished} of {total} runs are finished already.")
    return tasks


def _run_tasks(tasks: Sequence[Task], start: StartTask, slots: int) -> int:
    """Run tasks in parallel, and return the number of failures. An interrupt ends all tasks."""
    waiting, failed = list(tasks), 0
    running: dict[int, tuple[Task, Job, float]] = {}
    try:
        with show_status("") as update:
            while waiting or running:
                for slot in range(slots):
                    if waiting and slot not in running:
                        task = waiting.pop(0)
                        running[slot] = task, start(task, slot), time.monotonic()
                update(", ".join(map(_describe_job, running.values())))
                time.sleep(_POLL_SECONDS)
                for slot, (task, job, start_time) in list(running.items()):
                    if (status := job.poll()) is not None:
                        del running[slot]
                        failed += not _report_outcome(task, status, time.monotonic() - start_time)
    finally:
        _end_jobs([job for _, job, _ in running.values()])
    return failed


def _describe_job(entry: tuple[Task, Job, float]) -> str:
    task, job, _ = entry
    return f"{task.title} ({job})" if isinstance(job, ClusterJob) else task.title


def _report_outcome(task: Task, status: int, seconds: float) -> bool:
    """Print the outcome of a task, and return whether it succeeded."""
    if status == 0 and (result := task.read_result()) is not None:
        _print(f"{task.title}: {format_duration(seconds)}, {result}")
        return True
    log = task.log
    cause = f"signal {-status}" if status < 0 else f"exit status {status}"
    _print(f"{task.title}: failed with {cause} after {format_duration(seconds)}; the end of {log}:")
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]:
        _print(f"    {line}")
    return False


def _print(text: str) -> None:
    console.print(text, soft_wrap=True, markup=False)


def _start_process(command: Sequence[str], log: Path, cores: Sequence[int] | None) -> Job:
    """Start a process that appends its output to a log, on the given cores (None: all)."""
    threads = {} if cores is None else {"OMP_NUM_THREADS": str(len(cores))}
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=threads | os.environ,
        )
    if cores is not None:
        with suppress(ProcessLookupError):  # the process has ended already
            os.sched_setaffinity(process.pid, cores)
    return process


def _usable_cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def _end_jobs(jobs: Sequence[Job]) -> None:
    """Terminate all jobs. Kill jobs that don't end in time, or all after another interrupt."""
    try:
        for job in jobs:
            job.terminate()
        deadline = time.monotonic() + _TERMINATION_SECONDS
        while time.monotonic() < deadline and any(job.poll() is None for job in jobs):
            time.sleep(_POLL_SECONDS)
    finally:
        for job in jobs:
            if job.poll() is None:
                job.kill()
