"""Whether the key of an engineer's endpoint is there; a module of its own, which costs no time."""

from __future__ import annotations

import os

from training.errors import UserError
from training.schema import EngineerChoice


def check_key(choice: EngineerChoice) -> None:
    """Raise a `UserError`, before anything is trained, if an endpoint's key is not there."""
    name = choice.api_key_env
    if "endpoint" in choice.asked and name and not os.environ.get(name, "").strip():
        raise UserError(
            f"engineer.api_key_env: the environment variable {name} is not set, or empty; it must "
            "hold the endpoint's key (null: the endpoint takes none)"
        )
