"""What every phase works with."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax

from training.config import RunConfig
from training.instances import InstanceSet
from training.policy import Policy
from training.run.checkpoints import Checkpoints
from training.run.directory import RunDirectory

# Where random numbers are used. A stream and a place in the run name each draw, so that a resumed
# run draws what an uninterrupted one does, and no draw depends on an earlier one.
STREAMS = {"warm_start": 1, "train": 2, "sample": 3, "design": 4, "summary": 5, "probe": 6}


def key_for(seed: int, stream: str, *place: int) -> jax.Array:
    """A typed JAX key for a stream of a run at a place such as (stage, update)."""
    key = jax.random.fold_in(jax.random.key(seed), STREAMS[stream])
    for number in place:
        key = jax.random.fold_in(key, number)
    return key


def entropy_for(seed: int, stream: str, *place: int) -> int:
    """A seed below 2**63 for NumPy and vLLM at the same kind of place."""
    high, low = jax.random.key_data(key_for(seed, stream, *place)).tolist()[-2:]
    return ((high << 32) | low) >> 1


@dataclass(frozen=True)
class Run:
    """A run in progress: what does not change from phase to phase."""

    config: RunConfig
    directory: RunDirectory
    checkpoints: Checkpoints
    policy: Policy
    validation: InstanceSet

    def key(self, stream: str, *place: int) -> jax.Array:
        """This run's `key_for`."""
        return key_for(self.config.seed, stream, *place)

    def entropy(self, stream: str, *place: int) -> int:
        """This run's `entropy_for`."""
        return entropy_for(self.config.seed, stream, *place)

    def step(self, stage: int, update: int) -> int:
        """All steps of the warm start and updates up to one, as metrics and checkpoints count."""
        if stage == 0:
            return self.step(1, 0)
        warm = self.config.warm_start.steps if self.config.warm_start else 0
        return warm + (stage - 1) * self.config.updates_per_round + update

    @contextmanager
    def clock(self, seconds: dict[str, float], name: str) -> Iterator[None]:
        """Add what the block takes to `seconds[name]`."""
        began = time.perf_counter()
        yield
        seconds[name] = round(seconds.get(name, 0.0) + time.perf_counter() - began, 4)


def as_floats(metrics: dict[str, Any]) -> dict[str, float]:
    """Device scalars as numbers for a JSON line, six significant digits."""
    return {name: float(f"{float(value):.6g}") for name, value in jax.device_get(metrics).items()}
