"""The chain of a run, `chain.jsonl`: one link per stage, each with the hash of the one before it.

A link holds the hashes of all that decided its stage and of all that came of it, so no stage can be
changed, left out or moved without breaking a link. docs/audit.md describes every field.
"""

from __future__ import annotations

import jax
import numpy as np
from pydantic import ValidationError

from engineer.lake import LakeConfiguration
from training.audit.digests import (
    boards_digest,
    canonical,
    file_digest,
    json_digest,
    lines_digest,
    metrics_digest,
    weights_digest,
    without_seconds,
)
from training.errors import UserError, problems_of
from training.rollout.instances import InstanceSet
from training.run.directory import RunDirectory, StageDirectory
from training.run.files import File, TextFile
from training.run.records import BoardSource, ChainLink
from training.run.seeds import key_for
from training.schema import RunConfig


def seal(
    config: RunConfig,
    directory: RunDirectory,
    validation: InstanceSet,
    stage: int,
    boards: InstanceSet | None = None,
) -> None:
    """Write the link of a stage that is complete; a link that is there stays.

    The chain is written whole, so that a kill leaves it with the new link or without it.

    Args:
        config: The configuration of the run.
        directory: Holds the files of the stage, its exported policy included.
        validation: The validation set.
        stage: The stage that has just ended.
        boards: Its training boards in the order of training; None for stage 0.

    Raises:
        UserError: A file of the stage is missing or damaged, or an earlier link is missing.
    """
    lines = chain_lines(directory)
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
    linked = linked_files(files, stage)
    link = ChainLink(
        stage=stage,
        previous=previous,
        generator=board_source(config, stage, files.configuration.read()) if stage else None,
        instances=None if boards is None else boards_digest(boards),
        validation_set=boards_digest(validation),
        files={file.path.name: stage_file_digest(files, file) for file in linked},
        metrics=metrics_digest(directory.metrics.read(), stage),
        checkpoint=weights_digest(files.policy),
        hash="0" * 64,
    )
    link = link.model_copy(update={"hash": link_hash(link)})
    TextFile(directory.chain_file).write("".join([*lines, _line(link)]))


def linked_files(files: StageDirectory, stage: int) -> list[File]:
    """List the files of which the link of a stage holds the hashes.

    The last three are those that a stage leaves only if its engineer tried configurations out, or
    wrote notes.
    """
    validated: list[File] = [files.episodes, files.failures, files.evidence, files.validation]
    if stage == 0:
        return validated
    trained: list[File] = [files.configuration, files.shortfalls, files.environment]
    designed: list[File] = [files.gate, files.context, files.answers, files.decision]
    optional: list[File] = [files.probes, files.notes, files.notes_prompt]
    return [*trained, *validated, *designed, *(file for file in optional if file.exists())]


def stage_file_digest(files: StageDirectory, file: File) -> str:
    """Hash the bytes of a file of a stage, or the engineer's answers without their seconds.

    Raises:
        UserError: The file is missing, can't be read, or holds no such answers.
    """
    if file == files.answers:
        return lines_digest(map(without_seconds, files.answers.read()))
    return file_digest(file.path)


def board_source(config: RunConfig, stage: int, configuration: LakeConfiguration) -> BoardSource:
    """Say what the training boards of a stage are drawn from."""
    key = np.asarray(jax.random.key_data(key_for(config.seed, "train", stage)))
    count = config.stages.instances
    return BoardSource(
        key=key.astype(">u4").tobytes().hex(), configuration=configuration, count=count
    )


def link_hash(link: ChainLink) -> str:
    """Return the hash that a link must have, which is of all its other fields."""
    return json_digest(link.model_dump(mode="json", exclude={"hash"}))


def chain_lines(directory: RunDirectory) -> list[str]:
    """Return the lines of the chain with their ends; none where there is no chain yet.

    Raises:
        UserError: The file can't be read.
    """
    file = TextFile(directory.chain_file)
    return file.read().splitlines(keepends=True) if file.exists() else []


def read_link(directory: RunDirectory, lines: list[str], stage: int) -> ChainLink:
    """Read the line of the chain that is the link of a stage.

    Raises:
        UserError: It is not a link, or not written as links are, to the byte.
    """
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
