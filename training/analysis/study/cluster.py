"""Run a study as cluster jobs: with submitit on SLURM, or locally in tests."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.errors import UserError

DEFAULTS = {"timeout_min": 24 * 60}
"""Default parameters of a job. The default time limit of submitit is only a few minutes."""

_CANCEL_SECONDS = 60.0
"""Seconds after which a cancelled job counts as ended."""


class Cluster:
    """A cluster to submit jobs to."""

    def __init__(self, name: str, folder: Path, parameters: Mapping[str, Any]) -> None:
        """Open a cluster, "slurm" or "local"; `folder` and `parameters` are for submitit."""
        try:
            import submitit
        except ImportError as error:
            raise UserError(
                f"--cluster {name} needs submitit ({error}); pip install 'jaxlake[cluster]'"
            ) from error
        try:
            self._executor = submitit.AutoExecutor(folder=folder, cluster=name)
            self._executor.update_parameters(**{**DEFAULTS, **parameters})
        except (RuntimeError, ValueError, NameError, TypeError, AssertionError) as error:
            raise UserError(f"--cluster {name} with {dict(parameters)}: {error}") from error
        nodes, tasks = (int(parameters.get(key) or 1) for key in ("nodes", "tasks_per_node"))
        self._has_several_tasks = nodes * tasks > 1

    def submit(self, name: str, command: Sequence[str], log: Path) -> "ClusterJob":
        """Submit a command line, and append its output to `log`.

        A job with several tasks runs the command in each task, as the processes of one run.
        """
        options = ("--coordinator", "auto") if self._has_several_tasks else ()
        self._executor.update_parameters(name=f"jaxlake-{name}")
        task = RunCommand((*command, *options), str(log.absolute()))
        return ClusterJob(self._executor.submit(task), log)


@dataclass(frozen=True)
class RunCommand:
    """The work of a job: a command line and its log."""

    command: tuple[str, ...]
    log: str

    def __call__(self) -> int:
        """Run the command, and return its exit status."""
        import submitit

        rank = submitit.JobEnvironment().global_rank
        with open(f"{self.log}.{rank}" if rank else self.log, "ab") as output:
            process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
            try:
                return process.wait()
            except BaseException:  # the job is cancelled
                process.terminate()
                process.wait()
                raise

    def checkpoint(self, *args: Any) -> Any:
        """Resubmit the command; submitit calls this when the job reaches its time limit."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)


class ClusterJob:
    """A cluster job with the interface of a `subprocess.Popen`."""

    def __init__(self, job: Any, log: Path) -> None:
        self._job, self._log = job, log
        self._cancel_time: float | None = None

    def __str__(self) -> str:
        return f"job {self._job.job_id} {self._job.state.lower()}"

    def poll(self) -> int | None:
        """Return the exit status; None while the job is waiting or running."""
        if self._job.done():
            return self._status()
        if self._cancel_time is None or time.monotonic() - self._cancel_time <= _CANCEL_SECONDS:
            return None
        return -signal.SIGTERM

    def terminate(self) -> None:
        """Cancel the job."""
        self._cancel_time = time.monotonic()
        self._job.cancel(check=False)

    kill = terminate

    def _status(self) -> int:
        """Return the status of the first failed task; log the reason if it is missing."""
        if self._cancel_time is not None:
            return -signal.SIGTERM
        problem = self._job.exception()
        if problem is None:
            return next(filter(None, self._job.results()), 0)
        reason, stderr = str(problem).strip().partition("\n")[0], self._job.task(0).paths.stderr
        with self._log.open("a", encoding="utf-8") as log:
            log.write(f"{self}: {reason}{os.linesep}submitit's own log: {stderr}{os.linesep}")
        return 1
