"""Selection of a run's training environment."""

from engineer import Domain
from training.environments.lake import Lake
from training.environments.protocol import TrainingEnvironment
from training.environments.user_adapter import get_user_environment
from training.schema import RunConfig
from training.schema.environment_sections import UserEnvironmentConfig


def get_environment(config: RunConfig) -> TrainingEnvironment:
    """Return the training environment of a run's configuration."""
    if isinstance(config.environment, UserEnvironmentConfig):
        return get_user_environment(config)
    return Lake(config)


def get_domain(config: RunConfig) -> Domain:
    """Return the engineer's description of the environment, within the run's bounds."""
    return get_environment(config).domain
