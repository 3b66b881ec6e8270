"""Runs of a study as jobs of a cluster: submitit hands them to SLURM, or to this machine in tests.

The study stays where it was started and waits: it submits whatever can begin, follows the jobs'
states, and cancels them if it is interrupted. A job runs one command of `jaxlake`, so a run that
is submitted again goes on from its last checkpoint.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from training.errors import UserError

CLUSTERS = ("slurm", "local")

DEFAULTS = {"timeout_min": 24 * 60}
"""Parameters of a job unless others are given; submitit's own limit is a few minutes."""

_SECONDS_TO_CANCEL = 60.0
_MOMENT = 0.2


class Cluster:
    """Where jobs are submitted to."""

    def __init__(self, name: str, folder: Path, parameters: Mapping[str, Any]) -> None:
        """Open one of `CLUSTERS`, whose own files go to `folder`.

        `parameters` are submitit's, such as timeout_min, gpus_per_node and slurm_partition.

        Raises:
            UserError: submitit isn't installed, SLURM isn't here, or a parameter is none of
                submitit's.
        """
        try:
            import submitit
        except ImportError as error:
            problem = f"submitit can't be imported ({error}); pip install 'jaxlake[cluster]'"
            raise UserError(f"--cluster: got {name}: {problem}") from error
        self.name = name
        try:
            self._executor = submitit.AutoExecutor(folder=folder, cluster=name)
            self._executor.update_parameters(**{**DEFAULTS, **parameters})
        except (RuntimeError, ValueError, NameError, TypeError, AssertionError) as error:
            raise UserError(f"--cluster: got {name} with {dict(parameters)}: {error}") from error
        nodes, tasks = (int(parameters.get(key) or 1) for key in ("nodes", "tasks_per_node"))
        self._tasks = nodes * tasks

    def submit(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> ClusterJob:
        """Submit a command line; what it prints is appended to `log`.

        A job of several tasks runs it in each of them, as the processes of one run.
        """
        coordinator = ""
        if self._tasks > 1:
            coordinator = "auto" if self.name == "slurm" else _free_address()
        task = RunCommand(tuple(command), dict(environment), str(log.absolute()), coordinator)
        self._executor.update_parameters(name=f"jaxlake-{name.replace('/', '-')}")
        return ClusterJob(self._executor.submit(task), log)


@dataclass(frozen=True)
class RunCommand:
    """What a job does, wherever it is sent to."""

    command: tuple[str, ...]
    environment: dict[str, str]  # beside that of the job
    log: str
    coordinator: str = ""  # of the tasks of a job, if it has several

    def __call__(self) -> int:
        """Run the command, and return its exit status."""
        import submitit

        job, log, command = submitit.JobEnvironment(), self.log, list(self.command)
        if self.coordinator:
            command += ["--coordinator", self.coordinator]
        if self.coordinator not in ("", "auto"):
            command += ["--processes", str(job.num_tasks), "--process", str(job.global_rank)]
        if job.global_rank:
            log += f".{job.global_rank}"
        with open(log, "ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.environment | os.environ,
            )
            try:
                return process.wait()
            except BaseException:  # the job is cancelled
                process.terminate()
                process.wait()
                raise

    def checkpoint(self, *args: Any) -> Any:
        """Submit the same command again, which submitit asks for when the job's time is up."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)


class ClusterJob:
    """A job, to be handled like a process of its own."""

    def __init__(self, job: Any, log: Path) -> None:
        """Follow a submitted job of submitit."""
        self._job, self._log = job, log
        self._cancelled: float | None = None
        self._state = ""
        self.returncode: int | None = None

    @property
    def id(self) -> str:
        """The number that the cluster gave the job."""
        return str(self._job.job_id)

    @property
    def state(self) -> str:
        """The state of the job in the cluster's word, as it was last seen."""
        return self._state.lower() or "submitted"

    def poll(self) -> int | None:
        """Return the exit status; None while the job is waiting or running."""
        if self.returncode is None:
            self._state = self._job.state
            if self._job.done():
                self.returncode = self._status()
            elif self._cancelled and time.monotonic() - self._cancelled > _SECONDS_TO_CANCEL:
                self.returncode = -15  # the cluster has been told
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status; a `subprocess.TimeoutExpired` after so many seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"job {self.id}", timeout or 0.0)
            time.sleep(_MOMENT)
        return status

    def terminate(self) -> None:
        """Cancel the job."""
        if self.returncode is None and self._cancelled is None:
            self._cancelled = time.monotonic()
            self._job.cancel(check=False)

    def kill(self) -> None:
        """Cancel the job once more."""
        if self.returncode is None:
            self._job.cancel(check=False)

    def _status(self) -> int:
        """Return the first status of a task that failed; say in the log why there is none."""
        if self._cancelled is not None:
            return -15
        problem = self._job.exception()
        if problem is None:
            return next(filter(None, self._job.results()), 0)
        task = self._job.task(0)
        why = str(problem).strip().partition("\n")[0]
        with self._log.open("a", encoding="utf-8") as log:
            log.write(f"job {self.id}, {self.state}: {why}\n")
            log.write(f"what the cluster kept of it: {task.paths.stderr}\n")
        return 1


def parameters_of(texts: Sequence[str]) -> dict[str, Any]:
    """Read KEY=VALUE, with values in YAML; a `UserError` names what is something else."""
    parameters: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        try:
            parameters[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            equals = ""
        if not equals or not key.isidentifier():
            raise UserError(f"--cluster-set: got {text!r}, allowed is KEY=VALUE, the value in YAML")
    return parameters


def _free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"
