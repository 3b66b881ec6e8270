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
            raise UserError(f"{option}: got {key} twice, allowed is once")
        try:
            pairs[key] = parse_yaml(value)
            json.dumps(pairs[key], allow_nan=False)
        except (ValueError, TypeError):
            equals = ""
        if not equals or not key.isidentifier():
            raise UserError(
                f"{option}: got {text!r}, allowed is KEY=VALUE, the value in YAML and such as "
                "JSON can hold"
            )
    return pairs
