"""Logging of a run's metrics to TensorBoard and Weights & Biases."""

import importlib
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import jax

from training.errors import UserError
from training.processes import is_first
from training.run.answer_records import ValidationRecord
from training.run.directory import RunDirectory
from training.run.records import TimingRecord, UpdateMetrics, WarmStartMetrics
from training.schema import RunConfig

_POSITION_KEYS = frozenset({"phase", "stage", "update", "step"})

Writer = Callable[[int, Mapping[str, float]], None]
"""A function that logs a step's numbers by name."""


@dataclass(frozen=True)
class Trackers:
    """The trackers that a run's configuration enables."""

    writers: Sequence[Writer] = ()

    def log_update(self, metrics: UpdateMetrics, timing: TimingRecord) -> None:
        """Log one update, such as `train/by_group/3/valid` and `timing/seconds/rollout`."""
        self._log(metrics.step, {"train": metrics.model_dump(), "timing": timing.model_dump()})

    def log_warm_start(self, metrics: WarmStartMetrics) -> None:
        """Log the mean of several warm-start steps, such as `warm_start/loss`."""
        self._log(metrics.step, {"warm_start": metrics.model_dump()})

    def log_validation(self, step: int, rates: ValidationRecord) -> None:
        """Log a validation's rates by group and in total, such as `validation/3/valid`."""
        values = {}
        for group, tally in {**rates.groups, "all": rates.total}.items():
            counts = {"valid": tally.valid, **tally.scores}
            values[group] = {name: count / tally.count for name, count in counts.items()}
        self._log(step, {"validation": values})

    def _log(self, step: int, values: Mapping[str, Any]) -> None:
        numbers = dict(_flatten_numbers(values)) if self.writers else {}
        for write in self.writers:
            write(step, numbers)


NO_TRACKERS = Trackers()


def _flatten_numbers(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of nested mappings with their paths, except `_POSITION_KEYS`."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten_numbers(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and key not in _POSITION_KEYS:
            yield f"{prefix}{key}", float(value)


@contextmanager
def open_trackers(config: RunConfig, directory: RunDirectory, step: int) -> Iterator[Trackers]:
    """Open the trackers that a configuration enables.

    Args:
        config: The run's configuration.
        directory: The run's directory, which receives the trackers' files.
        step: The last logged step of a resumed run.

    Raises:
        UserError: A tracker's library is not installed, or its account can't be used.
    """
    with ExitStack() as stack:
        writers = []
        if is_first() and config.tracking.tensorboard:
            writers.append(stack.enter_context(_open_tensorboard(directory, step)))
        if is_first() and config.tracking.wandb:
            writers.append(stack.enter_context(_open_wandb(config, directory)))
        yield Trackers(writers)


@contextmanager
def profile_update(config: RunConfig, directory: RunDirectory, update: int) -> Iterator[None]:
    """Trace the block to `profile/UPDATE` if `tracking.profile_updates` lists the update."""
    is_enabled = update in config.tracking.profile_updates and is_first()
    folder = directory.profile / str(update)
    with jax.profiler.trace(str(folder)) if is_enabled else nullcontext():
        yield


@contextmanager
def _open_tensorboard(directory: RunDirectory, step: int) -> Iterator[Writer]:
    """Write events through tensorboardX, which needs neither TensorFlow nor TensorBoard."""
    library = _import_library("tensorboardX", "tensorboard")
    # The suffix distinguishes files that were opened within the same second.
    options = {"purge_step": step + 1, "filename_suffix": f".{step}"}
    with library.SummaryWriter(str(directory.tensorboard), **options) as writer:

        def write(step: int, values: Mapping[str, float]) -> None:
            for name, value in values.items():
                writer.add_scalar(name, value, step)
            writer.flush()

        yield write


@contextmanager
def _open_wandb(config: RunConfig, directory: RunDirectory) -> Iterator[Writer]:
    """Log to Weights & Biases; a resumed run keeps its id."""
    wandb = _import_library("wandb", "wandb")
    if not directory.wandb_id.exists():
        directory.wandb_id.write(secrets.token_hex(8))
    try:
        run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "jaxlake"),
            name=config.name,
            id=directory.wandb_id.read(),
            resume="allow",
            dir=str(directory.path),
            config=config.model_dump(mode="json"),
            settings=wandb.Settings(console="off"),  # don't capture the terminal's output
        )
    except wandb.Error as error:
        raise UserError(
            f"tracking.wandb: Weights & Biases can't be used: {error}. Log in with `wandb login`,"
            " or set WANDB_MODE=offline"
        ) from error
    run.define_metric("*", step_metric="step")
    try:
        yield lambda step, values: run.log({"step": step, **values})
    except BaseException:
        run.finish(exit_code=1)
        raise
    run.finish()


def _import_library(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(
            f"tracking.{extra}: {name} can't be imported ({error}); pip install 'jaxlake[{extra}]'"
        ) from error
