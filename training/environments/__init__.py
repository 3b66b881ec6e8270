"""The environments that the loop trains on: the lake, and any that a user writes."""

from training.user_environment import Score, UserEnvironment

__all__ = ["Score", "UserEnvironment"]
