"""Lookup of the run and the stage of a command, before heavy imports."""

from pathlib import Path

from jaxlake.files import require_plain_files
from training.errors import UserError
from training.run.directory import RunDirectory


def require_run(path: Path) -> RunDirectory:
    """Return the directory of a run; raise a `UserError` if the run does not exist."""
    directory = RunDirectory(path)
    if not directory.config_file.exists():
        directory.config()  # raises the error
    require_plain_files(path)
    return directory


def require_stage(path: Path, stage: int | None) -> int:
    """Return a validated stage of a run, from 1, by default the last one."""
    directory = require_run(path)
    stages = [
        number
        for number in directory.stage_numbers()
        if number and directory.stage(number).episodes.exists()
    ]
    if stage is None and stages:
        return stages[-1]
    if stage is None or stage not in stages:
        got = "none" if stage is None else stage
        allowed = ", ".join(map(str, stages)) or "none yet"
        raise UserError(f"--stage must be a validated stage ({allowed}), got {got}")
    return stage


def policy_folder(run_dir: Path, stage: int | None) -> Path:
    """Return the folder of a run's policy after a stage; None selects the newest in force."""
    directory = require_run(run_dir)
    stages = [
        number for number in directory.stage_numbers() if directory.stage(number).policy.is_dir()
    ]
    if not stages:
        raise UserError(f"{run_dir}: has no policy yet; the run must have finished a stage")
    if stage is None:
        stage = directory.weights_after(stages[-1])
    if stage not in stages:
        allowed = ", ".join(map(str, stages))
        raise UserError(f"--stage must be a stage of {run_dir} ({allowed}), got {stage}")
    from training.audit import check_weight_digests

    check_weight_digests(directory, stage)
    return directory.stage(stage).policy
