"""Select the environment of a run."""

from engineer import Domain
from training.environments.lake import Lake
from training.environments.protocol import TrainingEnvironment
from training.environments.user_adapter import user_environment_of
from training.schema import RunConfig
from training.schema.environment_sections import OtherEnvironment


def environment_of(config: RunConfig) -> TrainingEnvironment:
    """Return the training environment of a run's configuration."""
    if isinstance(config.environment, OtherEnvironment):
        return user_environment_of(config)
    return Lake(config)


def domain_of(config: RunConfig) -> Domain:
    """Return the description of the environment for the engineer, within the run's bounds."""
    return environment_of(config).domain
