"""Select the environment of a run."""

from engineer import Domain
from training.environments.lake import Lake
from training.environments.one_by_one import one_by_one
from training.environments.protocol import TrainingEnvironment
from training.schema import RunConfig
from training.schema.environment_sections import OtherEnvironment


def environment_of(config: RunConfig) -> TrainingEnvironment:
    """Return the training environment of a run's configuration."""
    if isinstance(config.environment, OtherEnvironment):
        return one_by_one(config)
    return Lake(config)


def domain_of(config: RunConfig) -> Domain:
    """Return the description of the environment for the engineer, within the run's bounds."""
    return environment_of(config).domain
