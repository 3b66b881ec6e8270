"""One stage's frozen context before other engineers, or with other blocks. Nothing is trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from engineer import BLOCKS, BlockName, DesignSettings, EngineerError, View
from engineer.context import ContextTooLongError
from engineer.context.budget import CountTokens
from engineer.design import context_for
from engineer.engineers import Engineer
from engineer.replay import Scored, replay
from training.config import RunConfig, known_engineer
from training.design.engineers import engineer_for
from training.design.shown import check_stage, open_run, tokens_counter
from training.errors import UserError
from training.phases.context import entropy_for
from training.run.directory import RunDirectory
from training.run.records import settings_of, view_of
from training.sampling.elsewhere import OtherModels


def replay_stage(path: Path, stage: int, kinds: Sequence[str]) -> list[Scored]:
    """Ask several engineers what they would have written after a stage.

    Raises:
        UserError: there is no such run or stage, or a name is unknown.
    """
    with _frozen(path, stage) as frozen:
        settings = settings_of(frozen.config, frozen.view)
        engineers = [(kind, frozen.engineer(kind)) for kind in kinds]  # all, before any is asked
        return [frozen.scored(kind, engineer, settings) for kind, engineer in engineers]


def ablate_stage(path: Path, stage: int, kind: str) -> list[Scored]:
    """Ask one engineer with all blocks, with each left out, and with each alone.

    Raises:
        UserError: there is no such run or stage, or a name is unknown.
    """
    with _frozen(path, stage) as frozen:
        engineer = frozen.engineer(kind)
        settings = frozen.fitted(settings_of(frozen.config, frozen.view))
        return [
            frozen.scored(name, engineer, settings.model_copy(update={"blocks": blocks}))
            for name, blocks in variants()
        ]


def variants() -> Iterator[tuple[str, tuple[BlockName, ...]]]:
    """The ablations: their names and blocks, leave-one-out and then add-one."""
    yield "all blocks", BLOCKS
    for block in BLOCKS:
        yield f"without {block}", tuple(other for other in BLOCKS if other != block)
    yield "no block", ()
    for block in BLOCKS:
        yield f"only {block}", (block,)


@dataclass(frozen=True)
class _Frozen:
    """A stage as its engineer found it: the same prompt to the byte, and the same seeds."""

    config: RunConfig
    directory: RunDirectory
    stage: int
    view: View
    models: OtherModels

    @cached_property
    def count_tokens(self) -> CountTokens:
        """Of the policy's tokenizer where it cuts the prompt, as in the run."""
        return tokens_counter(self.config, self.directory, self.stage)

    def engineer(self, kind: str) -> Engineer:
        """The engineer of a name.

        Raises:
            UserError: it is unknown, or the configuration lacks what it needs.
        """
        try:
            known_engineer(kind)
            return engineer_for(self.config, self.directory, self.stage, self.models, kind=kind)
        except (EngineerError, ValueError) as error:
            raise UserError(f"engineer {kind}: {error}") from error

    def fitted(self, settings: DesignSettings) -> DesignSettings:
        """Settings under which a block that is left out makes no room for more of the others.

        Raises:
            UserError: the prompt can't be cut to fit.
        """
        whole = settings.model_copy(update={"blocks": BLOCKS})
        try:
            detail = context_for(self.view, whole, self.count_tokens).detail
        except ContextTooLongError as error:
            raise UserError(f"engineer.max_context_tokens: {error}") from error
        return settings.model_copy(update={"detail": detail})

    def scored(self, name: str, engineer: Engineer, settings: DesignSettings) -> Scored:
        """What an engineer proposes, under a name.

        Raises:
            UserError: the prompt can't be cut to fit.
        """
        try:
            [row] = replay(
                self.view,
                [engineer],
                settings,
                seed=lambda attempt: entropy_for(self.config.seed, "design", self.stage, attempt),
                count_tokens=self.count_tokens,
            )
        except ContextTooLongError as error:
            raise UserError(f"{name}: engineer.max_context_tokens: {error}") from error
        return row.model_copy(update={"engineer": name})


@contextmanager
def _frozen(path: Path, stage: int) -> Iterator[_Frozen]:
    config, directory = open_run(path)
    check_stage(directory, stage)
    with OtherModels(config.sampling, config.engineer) as models:
        yield _Frozen(config, directory, stage, view_of(config, directory, stage), models)
