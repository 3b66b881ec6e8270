"""Options of the form KEY=VALUE."""

import json
from collections.abc import Sequence
from typing import Any

from training.errors import UserError


def read_pairs(option: str, texts: Sequence[str]) -> dict[str, Any]:
    """Return the values of KEY=VALUE arguments by key; values are YAML that JSON can represent."""
    from training.schema import parse_yaml

    pairs: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if key in pairs:
            raise UserError(f"{option} sets {key} twice; it must be set once")
        try:
            pairs[key] = parse_yaml(value)
            json.dumps(pairs[key], allow_nan=False)
        except (ValueError, TypeError):
            equals = ""
        if not equals or not key.isidentifier():
            raise UserError(
                f"{option} is {text!r}; it must be KEY=VALUE, with a YAML value that JSON can "
                "represent"
            )
    return pairs
