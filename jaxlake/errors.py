"""Errors that the user can correct."""

import reprlib
from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """Error in user input: a file, an option, a configuration or a request.

    The message names the field, the given value and the allowed values. The command line prints
    it without a traceback, after `jaxlake: error: `, and exits with status 2.
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
    close = get_close_matches(str(value), list(allowed), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def shorten(value: object) -> str:
    """Return the representation of a value, cut to 100 characters.

    YAML aliases let a short document describe an arbitrarily large value.
    """
    return f"{reprlib.repr(value):.100}"
