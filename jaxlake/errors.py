"""Errors that the user can correct, and text for their messages."""

import reprlib
from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """Error in user input: a file, an option, a configuration or a request.

    The message names the field, the allowed values and the given value. The command line prints
    `jaxlake: error: ` and the message without a traceback, and exits with status 2.
    """


def escape_controls(text: str) -> str:
    """Escape terminal control characters, except line breaks and tabs."""
    return "".join(
        character
        if character.isprintable() or character in "\n\t"
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def did_you_mean(value: object, allowed: Iterable[str]) -> str:
    """Return a "did you mean" suffix for an error message, or "" without a close match."""
    matches = get_close_matches(str(value), list(allowed), n=1)
    return f"; did you mean {matches[0]}?" if matches else ""


def shorten(value: object) -> str:
    """Return the representation of a value, cut to 100 characters.

    YAML aliases let a short document describe an arbitrarily large value.
    """
    return f"{reprlib.repr(value):.100}"
