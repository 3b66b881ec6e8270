"""The files of a study.

```
warm_start/              the shared warm start of all runs
first_rounds/            first stages that several runs share
runs/ENGINEER/SEED/      a run (training/run/directory.py)
runs/ENGINEER/SEED.log   the output of the run; warm starts and first stages have logs, too
jobs/                    files of submitit about cluster jobs
benchmark/ENGINEER/SEED/ an evaluation on the benchmark (training/analysis/benchmark/evaluate.py)
benchmark/results.json   the comparison of the engineers on the benchmark
report/                  report.html, results.json and outcomes.json.gz
.lock                    lock of the process that uses the directory (training/run/lock.py)
```
"""

from pathlib import Path

from training.analysis.study.config import Study, StudyRun
from training.errors import UserError
from training.run.directory import RunDirectory
from training.schema import RunConfig

_ENTRIES = {"warm_start", "warm_start.log", "first_rounds", "runs", "jobs"}
_ENTRIES |= {"benchmark", "report", ".lock"}


class StudyDirectory:
    """The files of one study."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.warm_start = RunDirectory(path / "warm_start")
        self.policy = self.warm_start.stage(0).policy.absolute()
        self.report = path / "report"

    def run_directory(self, run: StudyRun) -> RunDirectory:
        """Return the directory of one run."""
        return RunDirectory(self.path / "runs" / run.engineer / str(run.seed))

    def first_stage(self, run: StudyRun) -> RunDirectory:
        """Return the directory of a shared first stage (`Study.find_first_stage`)."""
        return RunDirectory(self.path / "first_rounds" / run.engineer / str(run.seed))

    def benchmark(self, run: StudyRun) -> Path:
        """Return the folder of the evaluation of a run's last policy."""
        return self.path / "benchmark" / run.engineer / str(run.seed)

    def check(self, study: Study) -> None:
        """Raise a `UserError` if the folder holds other files or runs of another study."""
        if self.path.is_dir() and not {child.name for child in self.path.iterdir()} <= _ENTRIES:
            raise UserError(
                f"{self.path}: is not empty and holds no study; choose another --study-dir"
            )
        for run in study.runs:
            run_directory = self.run_directory(run)
            if run_directory.config_file.exists():
                check_configuration(run_directory, run, study.make_run_config(run, self.policy))


def check_configuration(directory: RunDirectory, run: StudyRun, expected: RunConfig) -> RunConfig:
    """Return the configuration of a run; raise a `UserError` if it differs from the study's.

    The path of the model may differ, so that a study can be moved.
    """
    config = directory.config()
    model = config.model.model_copy(update={"pretrained": expected.model.pretrained})
    if config.model_copy(update={"model": model}) != expected:
        raise UserError(
            f"{directory.path}: its configuration differs from {run} of this study; choose another "
            "--study-dir, or delete this folder"
        )
    return config
