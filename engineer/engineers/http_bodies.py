"""What a server's error says, read from the body of its response."""

import json
from typing import Any


def stated_message(body: bytes) -> str:
    """Return the message in a JSON error body, or "".

    Nothing of a body that fails to parse is returned: it may repeat the key of the request in
    another encoding.
    """
    try:
        value: Any = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        return ""
    for name in ("error", "message", "detail"):
        if isinstance(value, dict) and name in value:
            value = value[name]
    return value if isinstance(value, str) else ""
