"""The environments that the loop trains on: the lake, and any that a user writes.

A user's environment derives from `UserEnvironment` and scores answers with `Score`;
`training.environments.conformance` checks it. `protocol.py` says what the loop asks of either.
"""

from training.user_environment import Score, UserEnvironment

__all__ = ["Score", "UserEnvironment"]
