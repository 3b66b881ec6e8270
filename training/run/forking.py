"""Forks of runs: a new run starts with a copy of another run's first stage, before its design.

The runs of a study differ in their engineers only, so they can share the warm start, the first
training and the first validation.
"""

import shutil
from pathlib import Path

from training.errors import UserError
from training.policy.model_folders import replace_folder
from training.run.directory import RunDirectory
from training.run.typed_files import File, TextFile
from training.schema import EngineerConfig, RunConfig, TrackingConfig, dump

_SHARED_PHASES = ("warm_start", "pool", "train", "validate")


def has_same_first_stage(first: RunConfig, second: RunConfig) -> bool:
    """Return whether two configurations differ at most in name, tracking and engineer."""
    return _remove_engineer(first) == _remove_engineer(second)


def _remove_engineer(config: RunConfig) -> RunConfig:
    engineer, board_selection = EngineerConfig(kind="fixed"), config.engineer.picking
    if board_selection is not None:  # the boards to select from use the atlas's cells
        update = {"picking": board_selection, "atlas": config.engineer.atlas}
        engineer = engineer.model_copy(update=update)
    return config.model_copy(
        update={"name": "", "engineer": engineer, "tracking": TrackingConfig()}
    )


def fork_first_stage(source: RunDirectory, target: Path, config: RunConfig) -> None:
    """Atomically create a run of `config` in `target` that has validated its first stage.

    The first stage is a copy of `source`, a run that was stopped after its first stage.

    Raises:
        UserError: `source` has another first stage or was not stopped after its first stage, or
            `target` already exists.
    """
    if not has_same_first_stage(source.config(), config):
        raise UserError(f"{source.path}: must have the same first stage as {config.name}")
    source.require_intact()
    stages = {update.stage for update in source.updates()}
    if stages != {1} or not source.stage(1).episodes.exists():
        raise UserError(f"{source.path}: must be stopped after its first stage")
    if target.exists():
        raise UserError(f"{target}: already exists")
    with replace_folder(target) as partial_folder:
        _copy_first_stage(source, RunDirectory(partial_folder), config)


def _copy_first_stage(source: RunDirectory, target: RunDirectory, config: RunConfig) -> None:
    target.stage(1).path.mkdir(parents=True)
    stage = source.stage(1)
    folders = [source.checkpoints, source.stage(0).path, stage.policy, stage.adapters]
    for folder in (*folders, source.initial_policy):
        if folder.exists():
            destination = target.path / folder.relative_to(source.path)
            # The digests belong to the source.
            shutil.copytree(folder, destination, ignore=shutil.ignore_patterns("digests.json"))
    for file in filter(File.exists, stage.training_files()):
        shutil.copyfile(file.path, target.stage(1).path / file.path.name)
    target.metrics.write(source.metrics.read())
    timings = source.timings.read()
    target.timings.write([timing for timing in timings if timing.phase in _SHARED_PHASES])
    TextFile(target.config_file).write(dump(config))
    target.write_digest_list()
