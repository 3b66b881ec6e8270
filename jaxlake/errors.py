"""Errors that the user can correct."""

import reprlib
from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """Input from outside is invalid: a file, an option, a configuration or a request.

    The message names the field, the value that came and what is allowed. The command line prints
    it without a traceback, after `jaxlake: error: `, and exits with status 2.
    """


def printable(text: str) -> str:
    """Escape what would steer a terminal, all but line breaks and tabs."""
    return "".join(
        one if one.isprintable() or one in "\n\t" else one.encode("unicode_escape").decode("ascii")
        for one in text
    )


def did_you_mean(given: object, allowed: Iterable[str]) -> str:
    """Say which allowed name was probably meant, as the end of a message; "" if none is alike."""
    close = get_close_matches(str(given), list(allowed), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def shortened(value: object) -> str:
    """Write a value for a message in at most 100 characters.

    A few lines of YAML with aliases can stand for a value of any size.
    """
    return f"{reprlib.repr(value):.100}"
