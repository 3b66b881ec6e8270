"""Digests of the files of a stage: SHA-256 of bytes, or of JSON with sorted keys.

Equal runs have equal digests, which don't depend on times or paths.
"""

import json
from pathlib import Path
from typing import Any

from training.environments.catalogue import get_environment
from training.environments.protocol import Instances
from training.errors import UserError
from training.run import digests
from training.run.directory import RunDirectory, StageDirectory
from training.run.records import StageDigests
from training.schema import RunConfig


def write_stage_digests(
    config: RunConfig,
    directory: RunDirectory,  # contains the stage's files, including its exported policy
    validation: Instances,
    stage: int,
    boards: Instances | None = None,  # in the order of training; None for stage 0
) -> None:
    """Write the digests of a complete stage, unless they exist."""
    files = directory.stage(stage)
    if files.digests.exists():
        return
    if not list(files.policy.glob("*.safetensors")):
        raise UserError(f"{files.policy}: has no *.safetensors")
    files.digests.write(
        StageDigests(
            stage=stage,
            config=digest_stage_file(directory.config_file),
            instances=None if boards is None else instances_digest(config, boards),
            validation_set=instances_digest(config, validation),
            metrics=digests.metrics_digest(directory.metrics.read(), stage),
            files=record_digests(files) | weight_digests(files),
        )
    )


def record_digests(files: StageDirectory) -> dict[str, str]:
    """Return the digests of a stage's records by name."""
    return {
        file.path.name: digest_stage_file(file.path)
        for file in files.records()
        if file.exists() and file != files.digests
    }


def weight_digests(files: StageDirectory) -> dict[str, str]:
    """Return the digests of a stage's weight files, by names such as `policy/config.json`."""
    return {name: digest_stage_file(path) for name, path in _list_weight_files(files).items()}


def _list_weight_files(files: StageDirectory) -> dict[str, Path]:
    paths = [path for folder in (files.policy, files.adapters) for path in folder.glob("[!.]*")]
    return {f"{path.parent.name}/{path.name}": path for path in sorted(paths)}


def check_weight_digests(directory: RunDirectory, stage: int, *, contents: bool = True) -> None:
    """Raise a `UserError` if the weights of a stage don't match its digests.

    Call this before computing with the weights of an earlier stage. Stages without digests pass.
    Without `contents`, only the names of the files are compared.
    """
    files = directory.stage(stage)
    if not files.digests.exists():
        return
    recorded_digests = files.digests.read().files
    if contents:
        actual = weight_digests(files)
    else:
        actual = {name: recorded_digests.get(name, "") for name in _list_weight_files(files)}
    for name in sorted({name for name in recorded_digests if "/" in name} | set(actual)):
        if recorded_digests.get(name) != actual.get(name):
            raise UserError(
                f"{files.path / name}: differs from its digest in {files.digests.path.name} of "
                f"stage {stage}; restore the file"
            )


def check_inherited_weights(config: RunConfig, directory: RunDirectory) -> None:
    """Raise a `UserError` if the weights that a run took from another run have changed."""
    origin, folder = config.started_from, directory.initial_policy
    if origin is not None and (
        not folder.is_dir() or digests.folder_digest(folder) != origin.weights
    ):
        raise UserError(f"{folder}: must contain the weights of {origin.run}; restore the folder")


def instances_digest(config: RunConfig, instances: Instances) -> str:
    """Return the digest of instances in their order, from their `digest_lines`."""
    return digests.lines_digest(get_environment(config).digest_lines(instances))


def digest_stage_file(path: Path) -> str:
    """Return the digest of a file's bytes; for `answers.jsonl`, of its lines without seconds."""
    try:
        if path.name != "answers.jsonl":
            return digests.file_digest(path)
        with path.open("rb") as file:
            return digests.lines_digest(_drop_seconds(json.loads(line)) for line in file)
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path}: is not JSON: {error}") from error


def _drop_seconds(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _drop_seconds(item) for key, item in value.items() if key != "seconds"}
    return [_drop_seconds(item) for item in value] if isinstance(value, list) else value
