"""Orbax checkpoints: everything a run needs to go on where it was."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import jax
import orbax.checkpoint as ocp

from training.errors import UserError
from training.learning.learner import LearnerState


@dataclass(frozen=True)
class Progress:
    """How far a run has come when its weights were saved.

    Attributes:
      phase: what the weights are in the middle (or at the end) of.
      stage: the round, from 1; 0 in the warm start.
      update: steps of the warm start, or updates of this round, that are done.
      step: all warm-start steps and updates since the beginning.
      seed: the run's seed; every random number is derived from it and the place in the run.
      configuration: the lake of this round, as JSON.
      history: what the engineer remembers of earlier rounds, as JSON.
    """

    phase: Literal["warm_start", "train"]
    stage: int
    update: int
    step: int
    seed: int
    configuration: dict[str, Any] = field(default_factory=dict)
    history: list[Any] = field(default_factory=list)


class Checkpoints:
    """The newest checkpoints of a run; each is complete or absent."""

    def __init__(self, folder: Path, *, keep: int = 2) -> None:
        """Open (or make) `folder`; leftovers of an interrupted save are removed."""
        self._manager = ocp.CheckpointManager(
            folder.absolute(),
            options=ocp.CheckpointManagerOptions(
                max_to_keep=keep,
                create=True,
                cleanup_tmp_directories=True,
                enable_async_checkpointing=False,
            ),
        )

    def save(self, state: LearnerState, progress: Progress) -> None:
        """Save both under `progress.step`; an equal step that is there already is kept."""
        if progress.step in self._manager.all_steps():
            return
        self._manager.save(
            progress.step,
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(state),
                progress=ocp.args.JsonSave(asdict(progress)),
            ),
        )

    def progress(self) -> Progress | None:
        """How far the newest checkpoint is; None if there is none."""
        step = self._manager.latest_step()
        if step is None:
            return None
        restored = self._manager.restore(
            step, args=ocp.args.Composite(progress=ocp.args.JsonRestore())
        )
        return Progress(**restored["progress"])

    def restore(self, like: LearnerState) -> LearnerState:
        """Read the newest state back, with the shapes, dtypes and sharding of `like`.

        Raises:
          UserError: there is none, or it has other shapes.
        """
        step = self._manager.latest_step()
        if step is None:
            raise UserError(f"{self._manager.directory}: holds no checkpoint")
        try:
            restored = self._manager.restore(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.StandardRestore(
                        jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
                    )
                ),
            )
        except (ValueError, KeyError, FileNotFoundError) as error:
            raise UserError(
                f"{self._manager.directory}/{step}: can't be restored: {error}"
            ) from error
        return restored["state"]

    def close(self) -> None:
        """Wait for what is being written."""
        self._manager.close()
