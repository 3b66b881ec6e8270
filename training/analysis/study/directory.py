"""The files of a study.

```
warm_start/              the run that all others start from, stopped after its warm start
first_rounds/            runs stopped after their first round, with which others begin
runs/ENGINEER/SEED/      a run (training/run/directory.py)
runs/ENGINEER/SEED.log   what it printed; the runs above have logs, too
jobs/                    what submitit keeps of a cluster's jobs
benchmark/ENGINEER/SEED/ an evaluation on the benchmark (training/analysis/benchmark/evaluate.py)
benchmark/results.json   the arms compared on it
report/                  report.html, results.json and outcomes.json.gz
.lock                    the process that uses the directory (training/run/lock.py), or empty
```
"""

from pathlib import Path

from training.analysis.study.config import Study, StudyRun
from training.errors import UserError
from training.run.directory import RunDirectory
from training.schema import RunConfig

_PARTS = {"warm_start", "warm_start.log", "first_rounds", "runs", "jobs"}
_PARTS |= {"benchmark", "report", ".lock"}


class StudyDirectory:
    """The files of one study."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.warm_start = RunDirectory(path / "warm_start")
        self.policy = self.warm_start.stage(0).policy.absolute()
        self.report = path / "report"

    def run(self, run: StudyRun) -> RunDirectory:
        """Return the directory of one run."""
        return RunDirectory(self.path / "runs" / run.engineer / str(run.seed))

    def first_round(self, run: StudyRun) -> RunDirectory:
        """Return the directory of a shared first round (`Study.find_first_round`)."""
        return RunDirectory(self.path / "first_rounds" / run.engineer / str(run.seed))

    def benchmark(self, run: StudyRun) -> Path:
        """Return the folder of the evaluation of a run's last policy."""
        return self.path / "benchmark" / run.engineer / str(run.seed)

    def log(self, run: RunDirectory) -> Path:
        """Return the file of a run's output, next to its directory."""
        return run.path.with_name(f"{run.path.name}.log")

    def check(self, study: Study) -> None:
        """Raise a `UserError` if a run has another configuration, or other files are there."""
        if self.path.is_dir() and not {child.name for child in self.path.iterdir()} <= _PARTS:
            raise UserError(
                f"{self.path}: holds no study, but other files; choose another --study-dir"
            )
        for run in study.runs:
            files = self.run(run)
            if files.config_file.exists():
                check_configuration(files, run, study.config_of(run, self.policy))


def check_configuration(files: RunDirectory, run: StudyRun, expected: RunConfig) -> RunConfig:
    """Return the configuration of a run; raise a `UserError` if it differs from the study's.

    The path of the model may differ, so that a study can be moved.
    """
    config = files.config()
    model = config.model.model_copy(update={"pretrained": expected.model.pretrained})
    if config.model_copy(update={"model": model}) != expected:
        raise UserError(
            f"{files.path}: its configuration is not that of {run} of this study; choose another "
            "--study-dir, or remove it"
        )
    return config
