"""`chain.jsonl`: one link a stage, each holding the hash of the one before it."""

from __future__ import annotations

from typing import Annotated, Any

import jax
import numpy as np
from pydantic import Field, ValidationError

from engineer.space import Frozen
from training.config import RunConfig
from training.errors import UserError
from training.instances import InstanceSet
from training.phases.boards import draw_boards
from training.phases.context import key_for
from training.provenance.digests import (
    ANSWERS,
    boards_digest,
    canonical,
    digest_of,
    file_digest,
    lines_digest,
    metrics_of_stage,
    metrics_records,
    stage_file_digest,
    weights_digest,
)
from training.run.directory import RunDirectory, write_text
from training.run.records import NOTES, NOTES_PROMPT, PROBES, configuration_for

CHAIN = "chain.jsonl"
METRICS = "metrics.jsonl"
VALIDATED = ("evidence.json", "validation.json", "episodes.jsonl", "failures.jsonl")
"""What every stage leaves, the warm start (stage 0) too."""
DESIGNED = (
    "configuration.json",
    "environment.json",
    "shortfalls.json",
    "gate.json",
    "context.txt",
    ANSWERS,
    "decision.json",
)
"""What every round leaves besides."""
OPTIONAL = (NOTES, NOTES_PROMPT, PROBES)
"""What a round leaves where its engineer wrote notes, or tried configurations out."""

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Generator(Frozen):
    """What a round's training boards are drawn from."""

    key: str = Field(pattern=r"^[0-9a-f]+$", description="data of the JAX key")
    configuration: dict[str, Any]
    count: int = Field(ge=1, description="boards asked for")


class Link(Frozen):
    """One stage, by the hashes of all that decided it and came of it."""

    stage: int = Field(ge=0, description="0: the warm start")
    previous: Digest = Field(description="hash of the link before; of config.yaml for the first")
    generator: Generator | None = Field(description="null for stage 0")
    instances: Digest | None = Field(description="training boards in training order")
    validation_set: Digest
    files: dict[str, Digest] = Field(description="by name in the stage's folder")
    metrics: Digest = Field(description="the stage's records of metrics.jsonl")
    checkpoint: Digest = Field(description="weights of the policy that the stage ended with")
    hash: Digest = Field(description="of all the other fields")


def required_files(stage: int) -> tuple[str, ...]:
    """The files of a stage without which its link is not whole."""
    return VALIDATED if stage == 0 else (*DESIGNED, *VALIDATED)


def seal(
    config: RunConfig,
    directory: RunDirectory,
    validation: InstanceSet,
    stage: int,
    boards: InstanceSet | None = None,
) -> None:
    """Write the link of a stage that is complete; a link that is there stays.

    The chain is replaced as a whole, so that a kill leaves it with the link or without it. Stages
    before this one that have no link, as in a run that goes on from another one's files, get theirs
    first.

    Args:
        config: the run's.
        directory: holds the files of the stage, the exported policy too.
        validation: the validation set.
        stage: the stage that has just ended.
        boards: the stage's training boards in the order of training; None: they are drawn again.

    Raises:
        UserError: a file of the stage is missing, or the chain can't be read.
    """
    path = directory.path / CHAIN
    lines = chain_lines(directory)
    while len(lines) <= stage:
        number = len(lines)
        of_stage = boards if number == stage else None
        if of_stage is None:
            of_stage = _drawn(config, directory, number, validation)
        try:
            previous = parse_link(lines[-1]).hash if lines else file_digest(directory.config_file)
        except ValueError as error:
            raise UserError(f"{path}: line {number}: {error}") from error
        link = link_of(config, directory, validation, number, of_stage, previous)
        lines.append(line_of(link))
    write_text(path, "".join(lines))


def link_of(
    config: RunConfig,
    directory: RunDirectory,
    validation: InstanceSet,
    stage: int,
    boards: InstanceSet | None,
    previous: str,
) -> Link:
    """The link of a stage from what stands there.

    Raises:
        UserError: a file of the stage is missing.
    """
    folder = directory.stage(stage)
    optional = [name for name in OPTIONAL if (folder / name).exists()]
    metrics = metrics_records(directory.path / METRICS)
    body = {
        "stage": stage,
        "previous": previous,
        "generator": generator_of(config, directory, stage) if stage else None,
        "instances": None if boards is None else boards_digest(boards),
        "validation_set": boards_digest(validation),
        "files": {
            name: stage_file_digest(folder / name) for name in (*required_files(stage), *optional)
        },
        "metrics": lines_digest(metrics_of_stage(metrics, stage)),
        "checkpoint": weights_digest(folder / "policy"),
    }
    return Link(**body, hash=digest_of(body))


def generator_of(config: RunConfig, directory: RunDirectory, stage: int) -> dict[str, Any]:
    """What a round's boards are drawn from, as its link says it."""
    key = np.asarray(jax.random.key_data(key_for(config.seed, "train", stage)))
    return {
        "key": key.astype(">u4").tobytes().hex(),
        "configuration": configuration_for(config, directory, stage).model_dump(mode="json"),
        "count": config.stages.instances,
    }


def hash_of(link: Link) -> str:
    """The hash that a link must have."""
    return digest_of(link.model_dump(mode="json", exclude={"hash"}))


def line_of(link: Link) -> str:
    """A link as its line of the chain."""
    return canonical(link.model_dump(mode="json")) + "\n"


def parse_link(line: str) -> Link:
    """Read a line of the chain.

    Raises:
        ValueError: it is no link, or not written as links are, to the byte.
    """
    try:
        link = Link.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"no link: {where + ': ' if where else ''}{first['msg']}") from error
    if line_of(link) != line:
        raise ValueError("no link: not in canonical form")
    return link


def chain_lines(directory: RunDirectory) -> list[str]:
    """The lines of the chain with their ends; none where there is no chain yet.

    Raises:
        UserError: it can't be read.
    """
    path = directory.path / CHAIN
    if not path.exists():
        return []
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror}") from error
    return text.splitlines(keepends=True)


def _drawn(
    config: RunConfig, directory: RunDirectory, stage: int, validation: InstanceSet
) -> InstanceSet | None:
    if stage == 0:
        return None
    configuration = configuration_for(config, directory, stage)
    return draw_boards(config, stage, configuration, validation).boards
