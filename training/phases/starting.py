"""Runs that start from another run: its weights, its last design and its history."""

import shutil
from pathlib import Path

from pydantic import ValidationError

from engineer import Configuration
from training.audit import check_weight_digests
from training.environments.catalogue import get_domain
from training.errors import UserError, format_validation_errors
from training.phases.stage_results import (
    StageResult,
    get_configuration,
    make_start_record,
    read_stage_results,
)
from training.policy.model_folders import replace_folder
from training.run.digests import folder_digest
from training.run.directory import RunDirectory
from training.run.progress import console
from training.run.typed_files import TextFile
from training.schema import RunConfig, StartedFrom, dump


def make_started_config(config: RunConfig, source: Path, target: Path) -> RunConfig:
    """Return the configuration of a run in `target` that starts from the run in `source`.

    `source` is not read if `target` exists already.

    Raises:
        UserError: `source` has no complete stage, its last design is invalid in `config`, or
            `target` contains a run that started differently.
    """
    if RunDirectory(target).config_file.exists():
        stored_config = RunDirectory(target).config()
        start = stored_config.started_from
        design: Configuration = stored_config.environment.initial
        if start is None or Path(start.run).resolve() != source.resolve():
            origin = "without --from" if start is None else f"from {start.run}"
            raise UserError(
                f"--from: got {source}, but the run in {target} started {origin}; choose another "
                "--run-dir"
            )
    else:
        start, design = _read_start(source)
    kind, tree = config.environment.kind, config.model_dump(mode="json")
    tree |= {"warm_start": None, "started_from": start.model_dump()}
    tree["model"]["pretrained"] = None
    tree["environment"]["initial"] = design.model_dump(mode="json")
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        raise UserError(
            f"--from {source}: its last design is not allowed in environment.kind {kind} as "
            f"configured: {'; '.join(format_validation_errors(error))}"
        ) from error


def get_start_weights(start: StartedFrom, target: Path) -> Path:
    """Return the folder of the initial weights of a run in `target`; it may not exist yet."""
    run, source = RunDirectory(target), RunDirectory(Path(start.run))
    if run.config_file.exists():
        return run.initial_policy
    return source.stage(source.weights_after(start.stage)).policy


def create_started_run(config: RunConfig, target: Path) -> None:
    """Create the directory of a run that starts from another run, unless it exists.

    The directory is created atomically.

    Raises:
        UserError: The other run is missing or has changed.
    """
    start = config.started_from
    if start is None or RunDirectory(target).require_same_config(config):
        return
    source = RunDirectory(Path(start.run))
    if _read_start(source.path)[0] != start:
        raise UserError(f"{source.path}: has changed since this run's configuration was made")
    source_config = source.config()
    record = make_start_record(source_config, _read_complete_stages(source))
    space, previous = get_domain(config).space, record.designed_from
    if previous is not None and (space.violation(previous) or space.grid_violation(previous)):
        record = record.model_copy(update={"designed_from": None})
    target.parent.mkdir(parents=True, exist_ok=True)
    with replace_folder(target) as partial_folder:
        run = RunDirectory(partial_folder)
        shutil.copytree(get_start_weights(start, target), run.initial_policy)
        run.stage(0).start.write(record)
        TextFile(run.config_file).write(dump(config))
        run.write_digest_list()
    console.print(
        f"Took the weights, the design and the history of {source.path} after stage {start.stage}.",
        soft_wrap=True,
    )
    if source_config.seed == config.seed:
        console.print(
            f"Both runs have seed {config.seed}, so their first stages draw the same random "
            f"numbers; --set seed={config.seed + 1} avoids this.",
            style="yellow",
            soft_wrap=True,
        )


def _read_start(path: Path) -> tuple[StartedFrom, Configuration]:
    """Return the origin and the first configuration of a run that starts from `path`."""
    directory = RunDirectory(path)
    directory.require_intact()
    config, results = directory.config(), _read_complete_stages(directory)
    stage = results[-1].stage
    origin = directory.weights_after(stage)
    check_weight_digests(directory, origin)
    weights = folder_digest(directory.stage(origin).policy)
    start = StartedFrom(run=str(path), stage=stage, weights=weights)
    return start, get_configuration(config, results, stage + 1)


def _read_complete_stages(directory: RunDirectory) -> list[StageResult]:
    """Return the results of the complete stages."""
    stages = directory.complete_stages()
    results = read_stage_results(directory, directory.config())
    if not stages or len(results) <= stages[-1]:
        raise UserError(f"{directory.path}: has no complete stage to start from")
    return results[: stages[-1] + 1]
