"""Addresses of servers and names of keys: what may stand in a configuration, and what may not."""

import re
from urllib.parse import parse_qsl, urlsplit

_SECRET = re.compile(
    r"key|token|secret|passw|auth|credential|signature|^(code|sig)$", re.IGNORECASE
)
"""Matches names of query parameters that hold what nobody else may read."""


def split_url(base_url: str) -> tuple[str, dict[str, str]]:
    """Split the address of an API into the address without its query, and the query.

    Raises:
        ValueError: it is no http or https URL. It may hold a password, so it is not quoted.
    """
    try:
        parts = urlsplit(base_url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ValueError("base_url is no http or https URL")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return parts._replace(query="", fragment="").geturl(), query


def check_url(base_url: str) -> None:
    """Check that an address can be asked and holds nothing secret.

    Raises:
        ValueError: it is no http or https URL, or it holds a user, a password, or a query parameter
            that is called like a key. Their values are not quoted.
    """
    url, query = split_url(base_url)
    if "@" in urlsplit(url).netloc:
        raise ValueError("base_url holds a user or a password; keys come from the environment")
    if secret := [name for name in query if _SECRET.search(name)]:
        raise ValueError(
            f"base_url holds {secret[0]!r} in its query; keys come from the environment"
        )


def check_variable(name: str) -> None:
    """Check that a name can be that of an environment variable.

    Raises:
        ValueError: it can't be. It may be the key itself, so it is not quoted.
    """
    if not (name.isascii() and name.isidentifier()):
        raise ValueError(
            "api_key_env must be the name of an environment variable, of letters, digits and _;"
            " the key itself stands only there"
        )
