"""The context of a stage, from the files of a run."""

from __future__ import annotations

from pathlib import Path

from engineer import Context, build_context
from engineer.context import ContextTooLongError
from engineer.context.budget import CountTokens, characters_over_three
from engineer.engineers.catalogue import SHUFFLED
from engineer.engineers.controls import shuffle
from training.config import RunConfig, load
from training.errors import UserError
from training.run.directory import RunDirectory
from training.run.records import view_of


def open_run(path: Path) -> tuple[RunConfig, RunDirectory]:
    """The configuration and the files of a run.

    Raises:
        UserError: there is no run.
    """
    directory = RunDirectory(path)
    if not directory.config_file.exists():
        raise UserError(f"{path}: is no run's directory, it has no config.yaml")
    return load(directory.config_file), directory


def context_shown(path: Path, stage: int) -> str:
    """What the engineer was shown after a stage, or would be shown if it has not been asked yet.

    Raises:
        UserError: there is no run, or no validation of that stage, or the prompt can't be cut to
            fit.
    """
    config, directory = open_run(path)
    shown = directory.stage(stage) / "context.txt"
    if shown.exists():
        return shown.read_bytes().decode("utf-8")
    check_stage(directory, stage)
    try:
        return first_context(config, directory, stage).text
    except ContextTooLongError as error:
        raise UserError(f"engineer.max_context_tokens: {error}") from error


def first_context(config: RunConfig, directory: RunDirectory, stage: int) -> Context:
    """The first prompt after a stage, as the configured engineer gets to see it.

    Raises:
        UserError: a budget of tokens cuts it, and there is no tokenizer to count them.
        ContextTooLongError: see `build_context`.
    """
    choice = config.engineer
    view = view_of(config, directory, stage)
    if choice.kind.startswith(SHUFFLED):
        from training.phases.context import entropy_for

        view = shuffle(view, entropy_for(config.seed, "design", stage, 0))
    return build_context(
        view,
        blocks=choice.blocks,
        style=choice.style,
        max_tokens=choice.max_context_tokens,
        count_tokens=tokens_counter(config, directory, stage),
    )


def tokens_counter(config: RunConfig, directory: RunDirectory, stage: int) -> CountTokens:
    """Counts tokens of the policy's tokenizer, if the context has a budget of its tokens.

    Raises:
        UserError: there is no such tokenizer.
    """
    if config.engineer.max_context_tokens is None:
        return characters_over_three
    return policy_tokens(directory, stage)


def policy_tokens(directory: RunDirectory, stage: int) -> CountTokens:
    """Counts tokens of the policy's tokenizer.

    Raises:
        UserError: there is no such tokenizer.
    """
    from transformers import AutoTokenizer

    folder = directory.stage(stage) / "policy"
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # tokenizers raises nothing narrower for a damaged file
        raise UserError(f"{folder}: holds no tokenizer that can be read") from error
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))


def check_stage(directory: RunDirectory, stage: int) -> None:
    """See to it that a stage has what an engineer reads.

    Raises:
        UserError: it has not been validated yet, or is no stage.
    """
    folders = (directory.path / "stages").glob("*")
    there = sorted(
        int(folder.name)
        for folder in folders
        if folder.name.isdecimal() and (folder / "validation.json").exists() and folder.name != "0"
    )
    if stage not in there:
        listed = ", ".join(map(str, there)) or "none yet"
        raise UserError(f"--stage: got {stage}, the stages with a validation are {listed}")
