"""Checks of an endpoint's address, API key and request fields before the first request."""

import json
import os
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from training.errors import UserError, shorten

if TYPE_CHECKING:
    from training.schema.engineer_section import EngineerConfig

_SECRET = re.compile(
    r"key|token|secret|passw|auth|credential|signature|^(code|sig)$", re.IGNORECASE
)
"""Matches the names of query parameters that hold secrets."""

RESERVED_FIELDS = frozenset(
    {"model", "messages", "prompt", "max_tokens", "temperature", "stream", "n", "response_format"}
)
"""Request fields that are set by other configuration keys or by the command."""


def check_url(base_url: str) -> str:
    """Return the URL; raise a `ValueError` unless it is http(s) without user, password and key."""
    try:
        parts = urlsplit(base_url)
        is_valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ValueError("base_url must be an http or https URL")
    if "@" in parts.netloc:
        raise ValueError("base_url must not contain a user or password; use api_key_env")
    for name, _ in parse_qsl(parts.query, keep_blank_values=True):
        if _SECRET.search(name):
            raise ValueError(
                f"base_url must not contain {name!r} in its query; use api_key_env for keys"
            )
    return base_url


def check_variable(name: str) -> str:
    """Return the name of an environment variable; raise a `ValueError` if it is invalid."""
    if not (name.isascii() and name.isidentifier()):
        raise ValueError(
            "api_key_env must be the name of an environment variable (letters, digits and _), not "
            "the key itself"
        )
    return name


def check_request(fields: dict[str, Any]) -> dict[str, Any]:
    """Return extra request fields; raise a `ValueError` for reserved ones and invalid JSON."""
    if clashes := sorted(RESERVED_FIELDS & set(fields)):
        raise ValueError(
            f"must not contain {', '.join(clashes)}: other configuration keys set these fields"
        )
    try:
        json.dumps(fields, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"must be a JSON value, got {shorten(fields)}") from error
    return fields


def check_key(settings: "EngineerConfig") -> None:
    """Raise a `UserError` if the environment variable of an endpoint's key is not set."""
    name = settings.api_key_env
    if settings.base_kind == "endpoint" and name and not os.environ.get(name, "").strip():
        raise UserError(
            f"engineer.api_key_env: the environment variable {name} must hold the endpoint's key, "
            "but it is not set or empty; if the endpoint needs no key, use null"
        )
