"""Training environments: the lake and user-defined environments."""

from training.user_environment import Score, UserEnvironment

__all__ = ["Score", "UserEnvironment"]
