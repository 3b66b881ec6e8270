"""Checkpoints (Orbax): weights, optimizer state and progress, each complete or absent."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import jax
import orbax.checkpoint as ocp

from training.errors import UserError
from training.learner.optimizer import LearnerState


@dataclass(frozen=True)
class RunProgress:
    """How far a run had come when its weights were saved."""

    phase: Literal["pretrain", "warm_start", "train"]
    stage: int  # from 1; 0 before the first
    update: int  # steps of the warm start, or updates of the stage, that are done
    step: int  # warm-start steps and updates that are done in all


class Checkpoints:
    """The newest checkpoints of a run."""

    def __init__(self, folder: Path) -> None:
        """Open `folder`, or make it; what an interrupted save left there is removed."""
        self._manager = ocp.CheckpointManager(
            folder.absolute(),
            options=ocp.CheckpointManagerOptions(
                max_to_keep=2,
                create=True,
                cleanup_tmp_directories=True,
                enable_async_checkpointing=False,
            ),
        )

    def save(self, state: LearnerState, progress: RunProgress) -> None:
        """Save both under the number `progress.step`; a checkpoint of that number is kept."""
        if progress.step not in self._manager.all_steps():
            parts = ocp.args.Composite(
                state=ocp.args.StandardSave(state), progress=ocp.args.JsonSave(asdict(progress))
            )
            self._manager.save(progress.step, args=parts)

    def progress(self) -> RunProgress | None:
        """Return how far the newest checkpoint is; None if there is none."""
        step = self._manager.latest_step()
        if step is None:
            return None
        parts = ocp.args.Composite(progress=ocp.args.JsonRestore())
        return RunProgress(**self._manager.restore(step, args=parts)["progress"])

    def restore(self, like: LearnerState) -> LearnerState:
        """Read the newest state, with the shapes, dtypes and sharding of `like`.

        A `UserError` says that there is no checkpoint, or that its arrays have other shapes.
        """
        step = self._manager.latest_step()
        if step is None:
            raise UserError(f"{self._manager.directory}: holds no checkpoint")
        shapes = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        parts = ocp.args.Composite(state=ocp.args.StandardRestore(shapes))
        try:
            return self._manager.restore(step, args=parts)["state"]
        except (ValueError, KeyError, FileNotFoundError) as error:
            message = f"{self._manager.directory}/{step}: can't be restored: {error}"
            raise UserError(message) from error

    def close(self) -> None:
        """Release the folder."""
        self._manager.close()
