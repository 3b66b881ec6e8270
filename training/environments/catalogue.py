"""The environment of a run, by its configuration."""

from __future__ import annotations

from engineer import Domain
from training.environments.lake import Lake
from training.environments.one_by_one import one_by_one
from training.environments.protocol import TrainingEnvironment
from training.schema import RunConfig
from training.schema.environment_sections import OtherEnvironment


def environment_of(config: RunConfig) -> TrainingEnvironment:
    """Return the environment that a run trains on, within the run's configuration."""
    if isinstance(config.environment, OtherEnvironment):
        return one_by_one(config)
    return Lake(config)


def domain_of(config: RunConfig) -> Domain:
    """Return the environment within the run's bounds, as the engineer sees it."""
    return environment_of(config).domain
