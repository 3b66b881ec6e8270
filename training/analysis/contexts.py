"""The prompt that the engineer was shown after a stage, from the files of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engineer.context import ContextTooLongError
from engineer.context.token_limit import CountTokens, estimate_tokens
from engineer.design import context_for
from engineer.engineers.catalogue import SHUFFLED
from engineer.engineers.controls import shuffle
from training.errors import UserError
from training.phases.stage_results import StageResult, design_settings, read_stage_results, view_of
from training.run.directory import RunDirectory
from training.run.seeds import seed_for
from training.schema import RunConfig


def context_shown(path: Path, stage: int) -> str:
    """Return what the engineer was shown after a stage, or would be shown if it is not asked yet.

    Raises:
        UserError: There is no run, the stage is not validated, or the prompt can't be cut to fit.
    """
    directory = RunDirectory(path)
    config = directory.config()
    shown = directory.stage(stage).context
    if shown.exists():
        return shown.read()
    view = view_of(config, results_until(directory, config, stage), stage)
    settings = design_settings(config, view)
    if config.engineer.kind.startswith(SHUFFLED):
        view = shuffle(view, seed_for(config.seed, "design", stage, 0))
    with naming_the_limit():
        return context_for(view, settings, token_counter(config, directory, stage)).text


def results_until(directory: RunDirectory, config: RunConfig, stage: int) -> list[StageResult]:
    """Read what the stages left, from stage 0 up to one that has what an engineer reads.

    Raises:
        UserError: The stage is not validated yet, or is no stage, or a file is damaged.
    """
    results = read_stage_results(directory, config)
    if not 1 <= stage < len(results):
        validated = ", ".join(map(str, range(1, len(results)))) or "none yet"
        raise UserError(f"--stage: got {stage}, the stages with a validation are {validated}")
    return results[: stage + 1]


@contextmanager
def naming_the_limit(engineer: str = "") -> Iterator[None]:
    """Let a prompt that can't be cut to fit be a `UserError` that names the key of its limit."""
    try:
        yield
    except ContextTooLongError as error:
        raise UserError(f"{engineer}engineer.max_context_tokens: {error}") from error


def token_counter(config: RunConfig, directory: RunDirectory, stage: int) -> CountTokens:
    """Count tokens as the run did when it built the context of a stage.

    That takes the policy's tokenizer where a limit of tokens cuts the context.

    Raises:
        UserError: There is no such tokenizer.
    """
    if config.engineer.max_context_tokens is None:
        return estimate_tokens
    from training.policy.tokenizer import load_tokenizer

    folder = directory.stage(stage).policy
    try:
        tokenizer = load_tokenizer(folder)
    except Exception as error:  # tokenizers raises nothing narrower for a damaged file
        raise UserError(f"{folder}: holds no tokenizer that can be read") from error
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))
