"""Run a study: the warm start, shared first stages, then all runs, each in a separate process."""

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
from training.run.forking import fork_first_stage
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
class StudyProcess:
    """A command to start, its log, and how to read its result."""

    title: str  # shown to the user
    job_name: str  # on a cluster
    log: Path
    arguments: tuple[str, ...]
    read_result: Callable[[], str | None]  # returns a summary, or None if the result is missing


StartJob = Callable[[StudyProcess, int], Job]
"""Starts a process in one of the parallel slots."""


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
        run_directory = directory.run_directory(run)
        state = "to resume" if run_directory.path.exists() else "to do"
        state = "finished" if run_directory.finished() else state
        table.add_row(str(run), overrides[run.engineer], state)
    print_table(table)

    grid, stages = warm_start.validation_grid, warm_start.stages.count
    boards = grid.num_settings * grid.per_cell
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
    study: Study, directory: StudyDirectory, *, max_jobs: int = 1, cluster: Cluster | None = None
) -> bool:
    """Run or resume all runs of a study, and return whether all are finished.

    Args:
        study: The study.
        directory: Its files.
        max_jobs: Maximum number of active runs. Without a cluster, they share the cores equally.
        cluster: The cluster that runs the jobs; None: this machine.

    Raises:
        UserError: `max_jobs` exceeds the number of cores.
    """
    start_job = _make_starter(max_jobs, cluster)
    directory.path.mkdir(parents=True, exist_ok=True)
    with lock_folder(directory.path), exit_on_sigterm():
        if study.has_warm_start and not _has_warm_start(directory):
            warm_start = _make_process(
                study,
                directory.warm_start,
                study.config.set,
                title="warm start",
                job_name="warm-start",
                stop_after=0,
            )
            if _run_and_count_failures([warm_start], start_job, num_slots=1) > 0:
                console.print("No run is started, because all runs need the warm start.")
                return False
        _run_and_count_failures(_make_missing_first_stages(study, directory), start_job, max_jobs)
        _copy_first_stages(study, directory)
        runs = _make_unfinished_runs(study, directory)
        return _run_and_count_failures(runs, start_job, max_jobs) == 0


def run_processes(
    processes: Sequence[StudyProcess],
    directory: StudyDirectory,
    *,
    max_jobs: int = 1,
    cluster: Cluster | None = None,
) -> bool:
    """Run processes as in `run_study`, and return whether all succeeded."""
    start_job = _make_starter(max_jobs, cluster)
    with lock_folder(directory.path), exit_on_sigterm():
        return _run_and_count_failures(processes, start_job, max_jobs) == 0


def _make_starter(max_jobs: int, cluster: Cluster | None) -> StartJob:
    """Return a function that starts processes; raise a `UserError` for more jobs than cores."""
    cores = _usable_cores()
    if cluster is None and max_jobs > len(cores):
        raise UserError(f"--jobs must be 1 to {len(cores)}, the usable cores, got {max_jobs}")

    def start_job(process: StudyProcess, slot: int) -> Job:
        process.log.parent.mkdir(parents=True, exist_ok=True)
        command = [*COMMAND, *process.arguments]
        if cluster is not None:
            return cluster.submit(process.job_name, command, process.log)
        return _start_locally(command, process.log, cores[slot::max_jobs] if max_jobs > 1 else None)

    return start_job


def _make_process(
    study: Study,
    directory: RunDirectory,
    overrides: Sequence[str],
    *,
    title: str,
    job_name: str,
    stop_after: int | None = None,
) -> StudyProcess:
    """Return a process that runs a configuration; its summary has the rates of the last stage."""
    command = ["run", str(study.base), "--run-dir", str(directory.path)]
    command += [] if stop_after is None else ["--stop-after", str(stop_after)]
    command += ["--set", *overrides] if overrides else []
    last_stage = study.warm_start.stages.count if stop_after is None else stop_after

    def read_result() -> str | None:
        episodes = directory.stage(last_stage).episodes
        if not episodes.exists():
            return None
        return format_success_rates(compute_validation_rates(last_stage, episodes.read()).total)

    log = directory.path.with_name(f"{directory.path.name}.log")
    return StudyProcess(title, job_name, log, tuple(command), read_result)


def _has_warm_start(directory: StudyDirectory) -> bool:
    """Return whether the initial policy of all runs exists."""
    return directory.warm_start.stage(0).episodes.exists() and directory.policy.is_dir()


def _has_first_stage(directory: StudyDirectory, run: StudyRun) -> bool:
    return directory.first_stage(run).stage(1).episodes.exists()


def _make_missing_first_stages(study: Study, directory: StudyDirectory) -> list[StudyProcess]:
    """Return processes for the shared first stages that don't exist yet."""
    new_runs = (run for run in study.runs if not directory.run_directory(run).path.exists())
    first_runs = dict.fromkeys(study.find_first_stage(run, directory.policy) for run in new_runs)
    return [
        _make_process(
            study,
            directory.first_stage(run),
            study.first_stage_overrides(run, directory.policy),
            title=f"first stage of seed {run.seed}",
            job_name=f"first-stage-{run.engineer}-{run.seed}",
            stop_after=1,
        )
        for run in first_runs
        if run is not None and not _has_first_stage(directory, run)
    ]


def _copy_first_stages(study: Study, directory: StudyDirectory) -> None:
    """Copy the shared first stages to the runs that don't exist yet."""
    for run in study.runs:
        target = directory.run_directory(run).path
        source = None if target.exists() else study.find_first_stage(run, directory.policy)
        if source is not None and _has_first_stage(directory, source):
            config = study.make_run_config(run, directory.policy)
            fork_first_stage(directory.first_stage(source), target, config)


def _make_unfinished_runs(study: Study, directory: StudyDirectory) -> list[StudyProcess]:
    """Return processes for the runs that are not finished, and print how many are."""
    num_runs = len(study.runs)
    processes = [
        _make_process(
            study,
            directory.run_directory(run),
            study.overrides(run, directory.policy),
            title=f"[{number}/{num_runs}] {run}",
            job_name=f"{run.engineer}-{run.seed}",
        )
        for number, run in enumerate(study.runs, 1)
        if not directory.run_directory(run).finished()
    ]
    if num_finished := num_runs - len(processes):
        console.print(f"{num_finished} of {num_runs} runs are finished already.")
    return processes


def _run_and_count_failures(
    processes: Sequence[StudyProcess], start_job: StartJob, num_slots: int
) -> int:
    """Run processes in parallel, and return the number of failures. An interrupt ends all."""
    pending_processes, num_failed = list(processes), 0
    active_jobs: dict[int, tuple[StudyProcess, Job, float]] = {}
    try:
        with show_status("") as update_status:
            while pending_processes or active_jobs:
                for slot in range(num_slots):
                    if pending_processes and slot not in active_jobs:
                        process = pending_processes.pop(0)
                        active_jobs[slot] = process, start_job(process, slot), time.monotonic()
                update_status(", ".join(map(_describe_job, active_jobs.values())))
                time.sleep(_POLL_SECONDS)
                for slot, (process, job, start_time) in list(active_jobs.items()):
                    if (status := job.poll()) is not None:
                        del active_jobs[slot]
                        seconds = time.monotonic() - start_time
                        num_failed += not _report_outcome(process, status, seconds)
    finally:
        _end_jobs([job for _, job, _ in active_jobs.values()])
    return num_failed


def _describe_job(entry: tuple[StudyProcess, Job, float]) -> str:
    process, job, _ = entry
    return f"{process.title} ({job})" if isinstance(job, ClusterJob) else process.title


def _report_outcome(process: StudyProcess, status: int, seconds: float) -> bool:
    """Print the outcome of a process, and return whether it succeeded."""
    if status == 0 and (result := process.read_result()) is not None:
        _print(f"{process.title}: {format_duration(seconds)}, {result}")
        return True
    title, log = process.title, process.log
    cause = f"signal {-status}" if status < 0 else f"exit status {status}"
    _print(f"{title}: failed with {cause} after {format_duration(seconds)}; the end of {log}:")
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]:
        _print(f"    {line}")
    return False


def _print(text: str) -> None:
    console.print(text, soft_wrap=True, markup=False)


def _start_locally(command: Sequence[str], log: Path, cores: Sequence[int] | None) -> Job:
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
