"""The configuration and resources that all phases of a run share."""

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import jax

from training.environments.catalogue import get_environment
from training.environments.protocol import TrainingEnvironment
from training.policy.policy import Policy
from training.run.checkpoints import Checkpoints
from training.run.directory import RunDirectory
from training.run.records import TimingRecord
from training.run.seeds import derive_key, derive_seed
from training.run.trackers import NO_TRACKERS, Trackers, profile_update
from training.schema import RunConfig


@dataclass(frozen=True)
class ActiveRun:
    """The configuration and resources of a run, which stay the same in all phases."""

    config: RunConfig
    directory: RunDirectory
    checkpoints: Checkpoints
    policy: Policy  # without weights, which belong to the learner
    validation: Any  # `Instances` of the validation set
    trackers: Trackers = NO_TRACKERS
    # Token ids of the validation prompts; None encodes them in each stage.
    validation_prompts: Sequence[Sequence[int]] | None = None
    # Reference weights in `model.dtype` if the loss has a KL divergence, else None. With
    # `model.lora`, only the adapters.
    reference: Any = None

    @property
    def environment(self) -> TrainingEnvironment:
        """The environment that the run trains on."""
        return get_environment(self.config)

    def key(self, stream: str, *indices: int) -> jax.Array:
        """Return the run's typed JAX key for a stream and indices (see `derive_key`)."""
        return derive_key(self.config.seed, stream, *indices)

    def seed(self, stream: str, *indices: int) -> int:
        """Return the run's integer seed for a stream and indices (see `derive_seed`)."""
        return derive_seed(self.config.seed, stream, *indices)

    def step(self, stage: int, update: int) -> int:
        """Return the number of warm-start steps and updates up to an update of a stage.

        Stage 0 is the end of the warm start; its `update` is ignored.
        """
        warm_start_steps = self.config.warm_start.steps if self.config.warm_start else 0
        if stage == 0:
            return warm_start_steps
        return warm_start_steps + (stage - 1) * self.config.updates_per_stage + update

    def optimizer_step(self, stage: int, update: int) -> int:
        """Return the number of GRPO optimizer steps before an update, including skipped ones."""
        num_updates = (stage - 1) * self.config.updates_per_stage + update - 1
        return num_updates * self.config.grpo.minibatches

    def profile_update(self, stage: int, update: int) -> AbstractContextManager[None]:
        """Trace the block if `tracking.profile_updates` lists this update of a stage."""
        number = (stage - 1) * self.config.updates_per_stage + update
        return profile_update(self.config, self.directory, number)

    @contextmanager
    def add_seconds(self, seconds: dict[str, float], name: str) -> Iterator[None]:
        """Add the block's wall-clock time to `seconds[name]`."""
        start = time.perf_counter()
        yield
        seconds[name] = round(seconds.get(name, 0.0) + time.perf_counter() - start, 4)

    @contextmanager
    def log_duration(
        self,
        phase: Literal["pool", "validate", "learn_to_design", "design", "reading"],
        stage: int,
        *,
        update: int | None = None,
    ) -> Iterator[None]:
        """Log the block's wall-clock time as the duration of a phase.

        `update` is the last update before the phase: 0 before the first, None after the last.
        """
        seconds: dict[str, float] = {}
        with self.add_seconds(seconds, phase):
            yield
        step = self.step(stage, self.config.updates_per_stage if update is None else update)
        self.directory.timings.append(
            TimingRecord(phase=phase, stage=stage, step=step, seconds=seconds)
        )
