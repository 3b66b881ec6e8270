"""Replay a stage's design with other engineers, without training."""

from collections.abc import Sequence
from pathlib import Path

from engineer import Configuration, DesignRecord, Engineer, EngineerError, run_design
from engineer.context import ContextTooLongError
from engineer.context.token_limit import CountTokens, estimate_tokens
from training.errors import UserError
from training.phases.engineer_factory import make_engineer
from training.phases.stage_results import make_design_settings, make_stage_view, read_stage_results
from training.run.directory import RunDirectory
from training.run.seeds import derive_seed
from training.sampling.model_server import ModelServer
from training.schema import RunConfig

Design = DesignRecord[Configuration]
"""The design of one engineer, by its name."""


def replay_stage(path: Path, stage: int, kinds: Sequence[str]) -> list[Design]:
    """Return the designs after a validated stage, one per engineer; `kinds` are names of engineers.

    The engineers get the run's seeds and a byte-identical prompt.
    """
    directory = RunDirectory(path)
    config = directory.config()
    results = read_stage_results(directory, config)[: stage + 1]
    view, settings = make_stage_view(config, results, stage), make_design_settings(config)
    count_tokens = _make_token_counter(config, directory, stage)

    def make(kind: str) -> Engineer:
        try:
            return make_engineer(config, directory, results, models, kind=kind)
        except (EngineerError, ValueError) as error:
            raise UserError(f"engineer {kind}: {error}") from error

    def ask(kind: str, engineer: Engineer) -> Design:
        try:
            design = run_design(
                engineer,
                view,
                settings,
                seed=lambda attempt: derive_seed(config.seed, "design", stage, attempt),
                count_tokens=count_tokens,
            )
        except ContextTooLongError as error:
            raise UserError(f"{kind}: engineer.max_context_tokens: {error}") from error
        return design.model_copy(update={"engineer": kind})

    with ModelServer(config.sampling, config.engineer) as models:
        engineers = [(kind, make(kind)) for kind in kinds]  # create all before the first request
        return [ask(kind, engineer) for kind, engineer in engineers]


def _make_token_counter(config: RunConfig, directory: RunDirectory, stage: int) -> CountTokens:
    """Return the token counter that the run used to truncate the context of a stage."""
    if config.engineer.max_context_tokens is None:
        return estimate_tokens
    from training.policy.tokenizer import load_tokenizer

    folder = directory.stage(stage).policy
    try:
        tokenizer = load_tokenizer(folder)
    except Exception as error:  # tokenizers has no narrower exception
        raise UserError(f"{folder}: holds no tokenizer that can be read") from error
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))
