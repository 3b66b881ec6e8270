"""Replay the design of a stage with other engineers, without training."""

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
"""A design whose `engineer` is the requested name."""


def replay_stage(path: Path, stage: int, kinds: Sequence[str]) -> list[Design]:
    """Return one design per engineer from the results of a validated stage.

    The engineers get the seeds of the run and a byte-identical prompt.

    Args:
        path: Directory of the run.
        stage: Number of the stage.
        kinds: Names of engineers, as in `engineer.kind`.

    Raises:
        UserError: The stage has no results, or an engineer is unknown or unavailable.
    """
    directory = RunDirectory(path)
    config = directory.config()
    results = read_stage_results(directory, config)[: stage + 1]
    view, settings = make_stage_view(config, results, stage), make_design_settings(config)
    count_tokens = _make_token_counter(config, directory, stage)

    def create_engineer(kind: str) -> Engineer:
        try:
            return make_engineer(config, directory, results, model_server, kind=kind)
        except (EngineerError, ValueError) as error:
            raise UserError(f"engineer {kind}: {error}") from error

    def request_design(kind: str, engineer: Engineer) -> Design:
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

    with ModelServer(config.sampling, config.engineer) as model_server:
        # An unknown engineer raises here, before any request.
        engineers = [(kind, create_engineer(kind)) for kind in kinds]
        return [request_design(kind, engineer) for kind, engineer in engineers]


def _make_token_counter(config: RunConfig, directory: RunDirectory, stage: int) -> CountTokens:
    """Return the token counter with which the run truncated the context of a stage."""
    if config.engineer.max_context_tokens is None:
        return estimate_tokens
    from training.policy.tokenizer import load_tokenizer

    folder = directory.stage(stage).policy
    try:
        tokenizer = load_tokenizer(folder)
    except Exception as error:  # tokenizers has no narrower exception
        raise UserError(f"{folder}: holds no readable tokenizer") from error
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))
