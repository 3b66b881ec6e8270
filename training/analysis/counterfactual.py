"""What the engineer of a run was shown after a stage, and what others make of it.

Others are asked on that frozen context, or one engineer with other blocks; nothing is trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engineer import (
    BLOCKS,
    BlockName,
    Configuration,
    DesignRecord,
    DesignSettings,
    Engineer,
    EngineerError,
    StageView,
    run_design,
)
from engineer.context import ContextTooLongError
from engineer.context.token_limit import CountTokens, estimate_tokens
from engineer.design import context_for
from engineer.engineers.controls import split_control
from training.errors import UserError
from training.phases.engineer_factory import make_engineer
from training.phases.stage_results import StageResult, design_settings, read_stage_results, view_of
from training.run.directory import RunDirectory
from training.run.seeds import seed_for
from training.sampling.model_server import OtherModels
from training.schema import RunConfig, known_engineer


def context_shown(path: Path, stage: int) -> str:
    """Return what the engineer was shown after a stage, or would be shown, if not asked yet."""
    directory = RunDirectory(path)
    config = directory.config()
    shown = directory.stage(stage).context
    if shown.exists():
        return shown.read()
    view = view_of(config, results_until(directory, config, stage), stage)
    settings = design_settings(config)
    control, _ = split_control(config.engineer.kind)
    if control:
        view = control.altered_view(view, seed_for(config.seed, "design", stage, 0))
    with _naming_the_limit():
        return context_for(view, settings, token_counter(config, directory, stage)).text


def results_until(
    directory: RunDirectory, config: RunConfig, stage: int, *, first: int = 1
) -> list[StageResult]:
    """Read what the stages left, from stage 0 up to one from the `first` on.

    From 1 on they have what an engineer reads.
    """
    results = read_stage_results(directory, config)
    if not first <= stage < len(results):
        validated = ", ".join(map(str, range(first, len(results)))) or "none yet"
        raise UserError(f"--stage: got {stage}, the stages with a validation are {validated}")
    return results[: stage + 1]


@contextmanager
def _naming_the_limit(engineer: str = "") -> Iterator[None]:
    """Let a prompt that can't be cut to fit be a `UserError` that names the key of its limit."""
    try:
        yield
    except ContextTooLongError as error:
        raise UserError(f"{engineer}engineer.max_context_tokens: {error}") from error


def token_counter(config: RunConfig, directory: RunDirectory, stage: int) -> CountTokens:
    """Count tokens as the run did when it built the context of a stage.

    That takes the policy's tokenizer where a limit of tokens cuts the context.
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


Design = DesignRecord[Configuration]
"""What one engineer would have written, under its name."""


def replay_stage(path: Path, stage: int, kinds: Sequence[str]) -> list[Design]:
    """Ask several engineers what they would have written after a stage."""
    with _frozen_stage(path, stage) as frozen:
        engineers = [(kind, frozen.engineer(kind)) for kind in kinds]  # all, before any is asked
        return [frozen.ask(kind, engineer, frozen.settings) for kind, engineer in engineers]


def ablate_stage(path: Path, stage: int, kind: str) -> list[Design]:
    """Ask one engineer with all blocks, with each left out, and with each alone.

    Leaving a block out makes no room for more of the others.
    """
    with _frozen_stage(path, stage) as frozen:
        engineer = frozen.engineer(kind)
        whole = frozen.settings.model_copy(update={"blocks": BLOCKS})
        with _naming_the_limit():
            detail = context_for(frozen.view, whole, frozen.count_tokens).detail
        ablations: dict[str, tuple[BlockName, ...]] = {"all blocks": BLOCKS}
        for block in BLOCKS:
            ablations[f"without {block}"] = tuple(other for other in BLOCKS if other != block)
        ablations["no block"] = ()
        ablations |= {f"only {block}": (block,) for block in BLOCKS}
        return [
            frozen.ask(name, engineer, whole.model_copy(update={"blocks": few, "detail": detail}))
            for name, few in ablations.items()
        ]


@dataclass(frozen=True)
class _FrozenStage:
    """A stage as its engineer found it: the same prompt to the byte, and the same seeds."""

    config: RunConfig
    directory: RunDirectory
    results: Sequence[StageResult]
    models: OtherModels
    view: StageView
    settings: DesignSettings
    count_tokens: CountTokens

    def engineer(self, kind: str) -> Engineer:
        """Make the engineer of a name."""
        try:
            known_engineer(kind)
            return make_engineer(self.config, self.directory, self.results, self.models, kind=kind)
        except (EngineerError, ValueError) as error:
            raise UserError(f"engineer {kind}: {error}") from error

    def ask(self, name: str, engineer: Engineer, settings: DesignSettings) -> Design:
        """Let an engineer design, under a name."""
        stage = self.results[-1].stage
        with _naming_the_limit(f"{name}: "):
            design = run_design(
                engineer,
                self.view,
                settings,
                seed=lambda attempt: seed_for(self.config.seed, "design", stage, attempt),
                count_tokens=self.count_tokens,
            )
        return design.model_copy(update={"engineer": name})


@contextmanager
def _frozen_stage(path: Path, stage: int) -> Iterator[_FrozenStage]:
    directory = RunDirectory(path)
    config = directory.config()
    results = results_until(directory, config, stage)
    view = view_of(config, results, stage)
    settings, count_tokens = design_settings(config), token_counter(config, directory, stage)
    with OtherModels(config.sampling, config.engineer) as models:
        yield _FrozenStage(config, directory, results, models, view, settings, count_tokens)
