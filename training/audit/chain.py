"""The chain of a run, `chain.jsonl`: one link per stage, each with the hash of the one before it.

A link holds the hashes of all that decided its stage and of all that came of it, so no stage can be
changed, left out or moved without breaking a link. Hashes are SHA-256 in hexadecimal, over bytes or
over canonical JSON. docs/how_to/audit.md describes every field.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from pydantic import ValidationError

from engineer import Configuration
from training.environments.catalogue import environment_of
from training.errors import UserError, problems_of
from training.policy.adapter_files import CONFIG_FILE, WEIGHTS_FILE
from training.run.directory import RunDirectory, StageDirectory
from training.run.records import AttemptRecord, BoardSource, ChainLink, Metrics
from training.run.seeds import key_for
from training.run.typed_files import File, TextFile
from training.schema import RunConfig

METRICS = "metrics.jsonl"
"""The name of the digest of a stage's metrics among those of its files."""


def seal(
    config: RunConfig,
    directory: RunDirectory,  # the files of the stage are there, its exported policy included
    validation: Any,  # `Instances`
    stage: int,
    boards: Any = None,  # `Instances` in the order of training; None for stage 0
) -> None:
    """Write the link of a stage that is complete; a link that is there stays.

    The chain is written whole, so that a kill leaves it with the new link or without it.
    """
    lines = read_lines(directory)
    if len(lines) > stage:
        return
    if len(lines) < stage:
        problem = f"holds {len(lines)} links, but {stage} must stand before that of stage {stage}"
        raise UserError(f"{directory.chain_file}: {problem}")
    if stage == 0:
        previous = file_digest(directory.config_file)
    else:
        previous = read_link(directory, lines, stage - 1).hash
    files = directory.stage(stage)
    digests = records_digests(directory, stage)
    link = ChainLink(
        stage=stage,
        previous=previous,
        generator=board_source(config, stage, files.configuration.read()) if stage else None,
        instances=None if boards is None else instances_digest(config, boards),
        validation_set=instances_digest(config, validation),
        metrics=digests.pop(METRICS),
        files=digests,
        checkpoint=weights_digest(files.policy),
        adapters=None if config.model.lora is None else adapters_digest(files.adapters),
        hash="0" * 64,
    )
    link = link.model_copy(update={"hash": link_hash(link)})
    TextFile(directory.chain_file).write("".join([*lines, _line(link)]))


def records_digests(directory: RunDirectory, stage: int) -> dict[str, str]:
    """Hash what a complete stage wrote down: its files by their names, and `METRICS`."""
    files = directory.stage(stage)
    digests = {
        file.path.name: stage_file_digest(files, file) for file in linked_files(files, stage)
    }
    return digests | {METRICS: metrics_digest(directory.metrics.read(), stage)}


def linked_files(files: StageDirectory, stage: int) -> list[File]:
    """List the files of which the link of a stage holds the hashes.

    The last seven are those that a stage leaves only if its engineer measured an atlas, tried
    configurations out or wrote notes, if the policy learned to design, if the reading of its
    weights was measured, or if its boards were picked from a pool.
    """
    validated: list[File] = [files.episodes]
    if stage == 0:
        return validated
    trained: list[File] = [files.configuration, files.shortfalls, files.environment]
    designed: list[File] = [files.gate, files.context, files.answers, files.decision]
    noted: list[File] = [files.notes, files.notes_prompt]
    optional: list[File] = [files.atlas, files.probes, *noted, files.design_learning, files.reading]
    optional.append(files.picks)
    return [*trained, *validated, *designed, *(file for file in optional if file.exists())]


def board_source(config: RunConfig, stage: int, configuration: Configuration) -> BoardSource:
    """Say what the training instances of a stage are drawn from."""
    key = np.asarray(jax.random.key_data(key_for(config.seed, "train", stage)), ">u4").tobytes()
    count = config.stages.instances
    return BoardSource(key=key.hex(), configuration=configuration, count=count)


def read_lines(directory: RunDirectory) -> list[str]:
    """Return the lines of the chain with their ends; none where there is no chain yet."""
    file = TextFile(directory.chain_file)
    return file.read().splitlines(keepends=True) if file.exists() else []


def read_link(directory: RunDirectory, lines: list[str], stage: int) -> ChainLink:
    """Read the line of the chain that is the link of a stage, written as links are, to the byte."""
    where = f"{directory.chain_file}:{stage + 1}: is not a link"
    try:
        link = ChainLink.model_validate_json(lines[stage])
    except ValidationError as error:
        raise UserError(f"{where}: {'; '.join(problems_of(error))}") from error
    if _line(link) != lines[stage]:
        raise UserError(f"{where}: it is not in canonical form")
    return link


def _line(link: ChainLink) -> str:
    return canonical(link.model_dump(mode="json")) + "\n"


def canonical(value: Any) -> str:
    """Write JSON in its canonical form: sorted keys, no blanks, ASCII, shortest decimals."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def link_hash(link: ChainLink) -> str:
    """Return the hash that a link must have, which is of all its other fields."""
    return _text_digest(canonical(link.model_dump(mode="json", exclude={"hash"})))


def stage_file_digest(files: StageDirectory, file: File) -> str:
    """Hash the bytes of a file of a stage, or the engineer's answers without their seconds."""
    if file == files.answers:
        return _lines_digest(map(without_seconds, files.answers.read()))
    return file_digest(file.path)


def file_digest(path: Path) -> str:
    """Hash the bytes of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror}") from error


def without_seconds(attempt: AttemptRecord) -> dict[str, Any]:
    """Return an attempt as JSON without its times, which differ between runs that are equal."""
    inner = {"__all__": {"seconds"}}
    return attempt.model_dump(mode="json", exclude={"seconds": True, "candidates": inner})


def metrics_digest(metrics: Iterable[Metrics], stage: int) -> str:
    """Hash those records of `metrics.jsonl` that belong to a stage."""
    return _lines_digest(one.model_dump(mode="json") for one in metrics if one.stage == stage)


def instances_digest(config: RunConfig, instances: Any) -> str:
    """Hash instances in their order, by what tells each from any other (`digest_lines`)."""
    return _lines_digest(environment_of(config).digest_lines(instances))


def weights_digest(folder: Path) -> str:
    """Hash the names and the bytes of the `*.safetensors` in the folder of a policy."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UserError(f"{folder}: holds no *.safetensors")
    return _text_digest(canonical({file.name: file_digest(file) for file in files}))


def adapters_digest(folder: Path) -> str:
    """Hash the names and the bytes of the files in the folder of a policy's adapters."""
    files = {name: file_digest(folder / name) for name in (CONFIG_FILE, WEIGHTS_FILE)}
    return _text_digest(canonical(files))


def require_sealed_weights(directory: RunDirectory, stage: int) -> None:
    """Raise a `UserError` if a stage's policy or adapters aren't those that its link is of.

    Whoever computes with weights of an earlier stage asks for this first: others in their place
    would be used without a word. A stage that has no link yet passes, and so do adapters whose link
    was written before links had a digest of them.
    """
    lines = read_lines(directory)
    if len(lines) <= stage:
        return
    link, files = read_link(directory, lines, stage), directory.stage(stage)
    digests = [(files.policy, link.checkpoint, weights_digest)]
    if link.adapters is not None:
        digests.append((files.adapters, link.adapters, adapters_digest))
    for folder, expected, digest in digests:
        if (found := digest(folder)) != expected:
            raise UserError(
                f"{folder}: its weights have the digest {found[:16]}, the chain has "
                f"{expected[:16]} for stage {stage}: they were changed since. Restore the folder"
            )


def _lines_digest(values: Iterable[Any]) -> str:
    return _text_digest("".join(f"{canonical(value)}\n" for value in values))


def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode("ascii")).hexdigest()
