"""Digests of what a stage decided and left: SHA-256 of bytes, or of JSON with sorted keys.

Equal runs leave equal digests: no time and no path is part of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from training.environments.catalogue import environment_of
from training.errors import UserError
from training.run import digests
from training.run.directory import RunDirectory, StageDirectory
from training.run.records import StageDigests
from training.schema import RunConfig


def seal(
    config: RunConfig,
    directory: RunDirectory,  # the files of the stage are there, its exported policy included
    validation: Any,  # `Instances`
    stage: int,
    boards: Any = None,  # `Instances` in the order of training; None for stage 0
) -> None:
    """Write the digests of a stage that is complete; digests that are there stay."""
    files = directory.stage(stage)
    if files.digests.exists():
        return
    if not list(files.policy.glob("*.safetensors")):
        raise UserError(f"{files.policy}: holds no *.safetensors")
    files.digests.write(
        StageDigests(
            stage=stage,
            config=file_digest(directory.config_file),
            instances=None if boards is None else instances_digest(config, boards),
            validation_set=instances_digest(config, validation),
            metrics=digests.metrics_digest(directory.metrics.read(), stage),
            files=record_digests(files) | weight_digests(files),
        )
    )


def record_digests(files: StageDirectory) -> dict[str, str]:
    """Hash the records of a stage, by their names."""
    return {
        file.path.name: file_digest(file.path)
        for file in files.records()
        if file.exists() and file != files.digests
    }


def weight_digests(files: StageDirectory) -> dict[str, str]:
    """Hash the files in the folders of a stage's weights, by names such as `policy/config.json`."""
    return {name: file_digest(path) for name, path in _weight_files(files).items()}


def _weight_files(files: StageDirectory) -> dict[str, Path]:
    paths = [path for folder in (files.policy, files.adapters) for path in folder.glob("[!.]*")]
    return {f"{path.parent.name}/{path.name}": path for path in sorted(paths)}


def require_sealed_weights(directory: RunDirectory, stage: int, *, contents: bool = True) -> None:
    """Raise a `UserError` if the weights of a stage are not those of its digests.

    Call it before computing with weights of an earlier stage. A stage without digests passes.
    Without `contents` only the names of the files are compared, which takes no time.
    """
    files = directory.stage(stage)
    if not files.digests.exists():
        return
    sealed = files.digests.read().files
    if contents:
        found = weight_digests(files)
    else:
        found = {name: sealed.get(name, "") for name in _weight_files(files)}
    for name in sorted({name for name in sealed if "/" in name} | set(found)):
        if sealed.get(name) != found.get(name):
            raise UserError(
                f"{files.path / name}: is not the file that stage {stage} left (by "
                f"{files.digests.path.name}). Restore it"
            )


def require_started_weights(config: RunConfig, directory: RunDirectory) -> None:
    """Raise a `UserError` unless the weights that a run took from another one are unchanged."""
    start, folder = config.started_from, directory.initial_policy
    if start is not None and (
        not folder.is_dir() or digests.folder_digest(folder) != start.weights
    ):
        raise UserError(f"{folder}: does not hold the weights of {start.run}. Restore the folder")


def instances_digest(config: RunConfig, instances: Any) -> str:
    """Hash instances in their order, by what tells each from any other (`digest_lines`)."""
    return digests.lines_digest(environment_of(config).digest_lines(instances))


def file_digest(path: Path) -> str:
    """Hash the bytes of a file; of `answers.jsonl` its lines without seconds."""
    try:
        if path.name != "answers.jsonl":
            return digests.file_digest(path)
        with path.open("rb") as file:
            return digests.lines_digest(_without_seconds(json.loads(line)) for line in file)
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path}: is not JSON: {error}") from error


def _without_seconds(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_seconds(one) for key, one in value.items() if key != "seconds"}
    return [_without_seconds(one) for one in value] if isinstance(value, list) else value
