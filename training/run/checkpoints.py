"""Orbax checkpoints of weights, optimizer state and progress, with digests."""

import json
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import jax
import orbax.checkpoint as ocp

from training.errors import UserError
from training.learner.optimizer import LearnerState
from training.policy.lora import get_trainable, replace_trainable
from training.processes import call_in_first
from training.run.digests import find_damage, write_digests
from training.run.directory import require_literal_path
from training.run.progress import console

# Files without digests, because Orbax writes them after the digests.
_EXCLUDED_FILES = ("_CHECKPOINT_METADATA", "commit_success.txt")
_PROGRESS = "progress/metadata"
_SAVE_TIMEOUT_SECONDS = 24 * 3600

# Orbax logs the traceback of errors that it also raises; `UserError` reports them in one line.
logging.getLogger("absl").addFilter(
    lambda record: not (record.exc_info and "orbax" in record.pathname)
)


@dataclass(frozen=True)
class RunProgress:
    """The progress of a run when its weights were saved."""

    phase: Literal["pretrain", "warm_start", "train", "learn_to_design"]
    stage: int  # from 1; 0 before the first stage
    update: int  # completed warm-start steps, or completed updates of the stage
    step: int  # completed warm-start steps and updates of the whole run
    designs: int = 0  # stages after which the policy has learned to design
    # Sizes and digests of the logs and the prefetched rollout (`RunDirectory.log_digests`).
    logs: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """The checkpoint's number; it increases from one checkpoint to the next."""
        return self.step + self.designs


class Checkpoints:
    """The newest checkpoints of a run."""

    def __init__(self, folder: Path) -> None:
        """Open or create `folder`, and remove damaged checkpoints newer than an intact one.

        Raises:
            UserError: All checkpoints are damaged, a file can't be read, or Orbax would interpret
                the path as a pattern. No checkpoint is removed.
        """
        require_literal_path(folder)
        self._folder = folder.absolute()
        self._saving_number: int | None = None
        call_in_first("the checkpoints on disk", self._remove_unusable)
        self._manager = ocp.CheckpointManager(
            self._folder,
            options=ocp.CheckpointManagerOptions(
                max_to_keep=2,
                create=True,
                async_options=ocp.AsyncOptions(
                    timeout_secs=_SAVE_TIMEOUT_SECONDS,
                    post_finalization_callback=self._write_digests,
                ),
            ),
        )

    def save(self, state: LearnerState, progress: RunProgress) -> None:
        """Start saving a checkpoint in the background, unless its number exists.

        The state is copied before this method returns, so its buffers may be donated. Errors in the
        background are raised by the next call. With `model.lora`, only the adapters are saved.

        Raises:
            UserError: This save can't start, or the previous one failed.
        """
        self.wait()
        if progress.number in self._manager.all_steps():
            return
        self._saving_number = progress.number
        parts = ocp.args.Composite(
            state=ocp.args.StandardSave(_trainable_state(state)),
            progress=ocp.args.JsonSave(asdict(progress)),
        )
        with self._convert_errors():
            self._manager.save(progress.number, args=parts)

    def wait(self) -> None:
        """Wait until the newest checkpoint is complete; raise a `UserError` if saving failed."""
        with self._convert_errors():
            self._manager.wait_until_finished()

    def progress(self) -> RunProgress | None:
        """Return the progress of the newest checkpoint, or None without checkpoints."""
        self.wait()
        number = self._manager.latest_step()
        if number is None:
            return None
        parts = ocp.args.Composite(progress=ocp.args.JsonRestore())
        return RunProgress(**self._manager.restore(number, args=parts)["progress"])

    def restore(self, template: LearnerState) -> LearnerState:
        """Return the newest saved state.

        Shapes, dtypes, shardings and frozen weights come from `template`.

        Raises:
            UserError: No checkpoint exists, or its arrays have other shapes.
        """
        self.wait()
        number = self._manager.latest_step()
        if number is None:
            raise UserError(f"{self._folder}: has no checkpoint")
        shapes = jax.tree.map(ocp.utils.to_shape_dtype_struct, _trainable_state(template))
        parts = ocp.args.Composite(state=ocp.args.StandardRestore(shapes))
        try:
            state: LearnerState = self._manager.restore(number, args=parts)["state"]
        except (ValueError, KeyError, FileNotFoundError) as error:
            message = f"{self._folder}/{number}: can't be restored: {error}"
            raise UserError(message) from error
        return replace(state, params=replace_trainable(template.params, state.params))

    def close(self) -> None:
        """Wait for the newest checkpoint (see `wait`) and release the folder."""
        try:
            self.wait()
        finally:
            self._manager.close()

    def _remove_unusable(self) -> None:
        for unfinished_folder in self._folder.glob(f"*{ocp.utils.TMP_DIR_SUFFIX}*"):
            shutil.rmtree(unfinished_folder)
        _remove_damaged(self._folder)

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # Orbax raises errors of many types
            message = " ".join(str(error).split())
            raise UserError(
                f"{self._folder / str(self._saving_number)}: the checkpoint can't be saved: "
                f"{type(error).__name__}: {message:.300}; earlier checkpoints are kept"
            ) from error

    def _write_digests(self) -> None:
        """Write the digests of the checkpoint that is being saved, while its name is temporary.

        Arrays that can't be opened raise an error.
        """
        name = str(self._saving_number)
        paths = [*self._folder.glob(f"{name}{ocp.utils.TMP_DIR_SUFFIX}*"), self._folder / name]
        checkpoint = next(filter(Path.is_dir, paths))
        _open_arrays(checkpoint)
        write_digests(checkpoint, excluded=_EXCLUDED_FILES)


def _trainable_state(state: LearnerState) -> LearnerState:
    return replace(state, params=get_trainable(state.params))


def _remove_damaged(folder: Path) -> None:
    """Remove the checkpoints after the newest intact one, and print their damage."""
    names = (child.name for child in folder.glob("*"))
    numbers = sorted((int(name) for name in names if name.isdecimal()), reverse=True)
    problems: dict[int, str] = {}
    for number in numbers:
        problem = _find_checkpoint_damage(folder / str(number))
        if problem is None:
            break
        problems[number] = problem
    if problems and len(problems) == len(numbers):
        raise UserError(
            f"{folder}: no checkpoint is intact: {'; '.join(problems.values())}. Restore the "
            "files, or remove this folder to start again from the first step"
        )
    for damaged_number, problem in problems.items():
        console.print(
            f"Checkpoint {damaged_number} is damaged: {problem}. Resuming from checkpoint "
            f"{number}.",
            style="yellow",
            soft_wrap=True,
        )
        shutil.rmtree(folder / str(damaged_number))


def _find_checkpoint_damage(checkpoint: Path) -> str | None:
    """Return a description of a checkpoint's damage, or None if it is intact."""
    try:
        problem = find_damage(checkpoint, excluded=_EXCLUDED_FILES)
    except OSError as error:
        raise UserError(
            f"{error.filename}: can't be read: {error.strerror}. No checkpoint was removed; make "
            "the file readable and run the same command again"
        ) from error
    if problem is not None:
        return problem
    try:
        _open_arrays(checkpoint)
        progress = RunProgress(**json.loads((checkpoint / _PROGRESS).read_bytes()))
    except Exception as error:  # Orbax raises errors of many types
        return f"{checkpoint}: its arrays can't be opened: {' '.join(str(error).split()):.200}"
    if str(progress.number) != checkpoint.name:
        return f"{checkpoint} contains checkpoint {progress.number}"
    return None


def _open_arrays(checkpoint: Path) -> None:
    """Open every array of a checkpoint without reading its values."""
    ocp.StandardCheckpointHandler().metadata(checkpoint / "state")
