"""`ActiveRun`: what every phase of a run in progress works with."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import jax

from training.environments.catalogue import environment_of
from training.environments.protocol import TrainingEnvironment
from training.policy.policy import Policy
from training.run.checkpoints import Checkpoints
from training.run.directory import RunDirectory
from training.run.records import TimingRecord
from training.run.seeds import key_for, seed_for
from training.run.trackers import NO_TRACKERS, Trackers, profiled
from training.schema import RunConfig


@dataclass(frozen=True)
class ActiveRun:
    """What does not change from phase to phase."""

    config: RunConfig
    directory: RunDirectory
    checkpoints: Checkpoints
    policy: Policy  # without weights, which belong to the learner
    validation: Any  # `Instances`
    trackers: Trackers = NO_TRACKERS
    # Token ids of the validation set's prompts, which all stages share; None: each encodes them.
    validation_prompts: Sequence[Sequence[int]] | None = None
    # Weights in model.dtype that KL is measured from, if it is in the loss; with `model.lora` the
    # adapters among them.
    reference: Any = None

    @property
    def environment(self) -> TrainingEnvironment:
        """What the run trains on."""
        return environment_of(self.config)

    def key(self, stream: str, *place: int) -> jax.Array:
        """Return the typed JAX key of this run for a stream and a place (see `key_for`)."""
        return key_for(self.config.seed, stream, *place)

    def seed(self, stream: str, *place: int) -> int:
        """Return the integer seed of this run for a stream and a place (see `seed_for`)."""
        return seed_for(self.config.seed, stream, *place)

    def step(self, stage: int, update: int) -> int:
        """Count all steps of the warm start and all updates up to one of a stage.

        Stage 0 stands for the end of the warm start, whatever the update.
        """
        warm_start = self.config.warm_start.steps if self.config.warm_start else 0
        if stage == 0:
            return warm_start
        return warm_start + (stage - 1) * self.config.updates_per_stage + update

    def optimizer_step(self, stage: int, update: int) -> int:
        """Count GRPO's optimizer steps before an update, from 1, if every one before took its."""
        updates = (stage - 1) * self.config.updates_per_stage + update - 1
        return updates * self.config.grpo.minibatches

    def profiled(self, stage: int, update: int) -> AbstractContextManager[None]:
        """Write a profiler trace of the block, an update of a stage, if it was asked for."""
        number = (stage - 1) * self.config.updates_per_stage + update
        return profiled(self.config, self.directory, number)

    @contextmanager
    def clock(self, seconds: dict[str, float], name: str) -> Iterator[None]:
        """Add the wall-clock time that the block takes to `seconds[name]`."""
        began = time.perf_counter()
        yield
        seconds[name] = round(seconds.get(name, 0.0) + time.perf_counter() - began, 4)

    @contextmanager
    def timed(
        self,
        phase: Literal["pool", "validate", "learn_to_design", "design", "reading"],
        stage: int,
        *,
        update: int | None = None,
    ) -> Iterator[None]:
        """Log the wall-clock time that the block takes, as that of a phase of a stage.

        The phase stands after an `update` of the stage, 0 before the first; None: after the last.
        """
        seconds: dict[str, float] = {}
        with self.clock(seconds, phase):
            yield
        step = self.step(stage, self.config.updates_per_stage if update is None else update)
        self.directory.timings.append(
            TimingRecord(phase=phase, stage=stage, step=step, seconds=seconds)
        )
