"""Which run, and which of its stages, a command is about, before what is heavy is imported."""

from pathlib import Path

from training.errors import UserError
from training.run.directory import RunDirectory


def known_run(path: Path) -> RunDirectory:
    """Return the files of a run; a `UserError` if there is no run."""
    directory = RunDirectory(path)
    if not directory.config_file.exists():
        directory.config()  # says so
    return directory


def known_stage(path: Path, stage: int | None, *, first: int = 1) -> int:
    """Return a validated stage of a run, or the last one (None).

    Raises:
        UserError: there is no run, or no such stage from `first` on; the message lists those there
            are.
    """
    directory = known_run(path)
    known = [
        number
        for number in directory.stage_numbers()
        if number >= first and directory.stage(number).validation.exists()
    ]
    if stage is None and known:
        return known[-1]
    if stage is None or stage not in known:
        got = "none" if stage is None else stage
        validated = ", ".join(map(str, known)) or "none yet"
        raise UserError(f"--stage: got {got}, the stages with a validation are {validated}")
    return stage
