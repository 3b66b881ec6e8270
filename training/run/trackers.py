"""TensorBoard and Weights & Biases are told what a run's logs hold, through their own libraries.

The run's own files are whole without them. A run that goes on tells the steps again that it takes
again: TensorBoard drops what it was told of them before, Weights & Biases keeps both, which differ
in seconds and speed.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import jax

from training.errors import UserError
from training.processes import is_first
from training.run.answer_records import ValidationRecord
from training.run.directory import RunDirectory
from training.run.record_model import Record
from training.run.records import TimingRecord, UpdateMetrics, WarmStartMetrics
from training.schema import RunConfig

STEP = "step"
"""What Weights & Biases is told to take as the horizontal axis."""

_PLACE = frozenset({"phase", "stage", "update", STEP})


class Tracker(Protocol):
    """Who is told numbers of a run."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Tell numbers by name, as they are at a step of the run."""
        ...

    def close(self, *, failed: bool) -> None:
        """Hand over whatever was held back, and say how the run ended."""
        ...


@dataclass(frozen=True)
class Trackers:
    """All trackers of a run; none of them unless the configuration asks for it."""

    trackers: Sequence[Tracker] = ()

    def update(self, metrics: UpdateMetrics, timing: TimingRecord) -> None:
        """Tell of one update: its metrics, its seconds, and how fast it was."""
        if self.trackers:
            self._log(metrics.step, numbers_of(metrics, "train") | timing_numbers(timing))

    def warm_start(self, metrics: WarmStartMetrics) -> None:
        """Tell of some steps of the warm start."""
        if self.trackers:
            self._log(metrics.step, numbers_of(metrics, "warm_start"))

    def validation(self, step: int, rates: ValidationRecord) -> None:
        """Tell what a validation came to."""
        if self.trackers:
            self._log(step, validation_numbers(rates))

    def _log(self, step: int, values: Mapping[str, float]) -> None:
        for tracker in self.trackers:
            tracker.log(step, values)


NO_TRACKERS = Trackers()


def numbers_of(record: Record, prefix: str) -> dict[str, float]:
    """Flatten a record's numbers but those that say where it stands: `train/by_group/3/valid`."""
    return dict(_numbers(_without_place(record), prefix))


def timing_numbers(timing: TimingRecord) -> dict[str, float]:
    """Name the seconds of an update, `seconds/rollout`, and how fast it was, `speed/mfu`."""
    speed = _without_place(timing)
    seconds = speed.pop("seconds")
    return dict(_numbers(seconds, "seconds")) | dict(_numbers(speed, "speed"))


def validation_numbers(rates: ValidationRecord) -> dict[str, float]:
    """Name the rates of a validation, in all and by group: `validation/3/valid`."""
    values = {}
    for group, row in {**rates.groups, "all": rates.total}.items():
        for metric, successes in {"valid": row.valid, **row.scores}.items():
            values[f"validation/{group}/{metric}"] = successes / row.count
    return values


def _without_place(record: Record) -> dict[str, Any]:
    return {name: value for name, value in record.model_dump().items() if name not in _PLACE}


def _numbers(value: Any, name: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _numbers(inner, f"{name}/{key}")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, float(value)


@contextmanager
def open_trackers(config: RunConfig, directory: RunDirectory, step: int) -> Iterator[Trackers]:
    """Open the trackers that a configuration asks for, for the steps after `step`.

    The first of several processes does; the others tell nobody.

    Raises:
        UserError: The library of one is not installed, or its account can't be used.
    """
    opened: list[Tracker] = []
    with ExitStack() as stack:

        def keep(tracker: Tracker) -> None:
            opened.append(tracker)
            stack.push(lambda kind, *_: tracker.close(failed=kind is not None))

        if is_first() and config.tracking.tensorboard:
            keep(_TensorBoard(directory, step))
        if is_first() and config.tracking.wandb is not None:
            keep(_WeightsAndBiases(config, directory))
        yield Trackers(opened)


@contextmanager
def profiled(config: RunConfig, directory: RunDirectory, update: int) -> Iterator[None]:
    """Write a profiler trace of the block to `profile/UPDATE`, if it was asked for.

    `update` is counted over all stages from 1.
    """
    asked = update in config.tracking.profile_updates and is_first()
    folder = directory.profile / str(update)
    with jax.profiler.trace(str(folder)) if asked else nullcontext():
        yield


class _TensorBoard:
    """Writes events through tensorboardX, which needs neither TensorFlow nor TensorBoard."""

    def __init__(self, directory: RunDirectory, step: int) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise UserError(
                f"tracking.tensorboard: true, but tensorboardX can't be imported ({error}); "
                "pip install 'jaxlake[tensorboard]'"
            ) from error
        # Two writers of one second would have a file of one name, but for the suffix.
        self._writer = SummaryWriter(
            str(directory.tensorboard),
            purge_step=step + 1,
            filename_suffix=f".{step}",
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self, *, failed: bool) -> None:
        self._writer.close()


class _WeightsAndBiases:
    """Tells a run on Weights & Biases, which a run that goes on takes up again."""

    def __init__(self, config: RunConfig, directory: RunDirectory) -> None:
        try:
            import wandb
        except ImportError as error:
            raise UserError(
                f"tracking.wandb: wandb can't be imported ({error}); pip install 'jaxlake[wandb]'"
            ) from error
        settings = config.tracking.wandb
        assert settings is not None
        if not directory.wandb_id.exists():
            directory.wandb_id.write(secrets.token_hex(8))
        try:
            self._run = wandb.init(
                project=settings.project,
                entity=settings.entity,
                mode=settings.mode,
                name=config.name,
                id=directory.wandb_id.read(),
                resume="allow",
                dir=str(directory.path),
                config=config.model_dump(mode="json"),
                settings=wandb.Settings(console="off"),  # the terminal is the run's own
            )
        except wandb.Error as error:
            raise UserError(
                f"tracking.wandb: Weights & Biases can't be used: {error}. Log in by `wandb login`,"
                " or set tracking.wandb.mode=offline"
            ) from error
        self._run.define_metric("*", step_metric=STEP)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({STEP: step, **values})

    def close(self, *, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))
