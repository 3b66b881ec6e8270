"""Extract error messages from the bodies of HTTP responses."""

import json
from typing import Any


def stated_message(body: bytes) -> str:
    """Return the message in a JSON error body, or "".

    Unparsable bodies are ignored, because they may repeat the API key in another encoding.
    """
    try:
        value: Any = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        return ""
    for name in ("error", "message", "detail"):
        if isinstance(value, dict) and name in value:
            value = value[name]
    return value if isinstance(value, str) else ""
