"""Errors that the user can correct."""

import os
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


class UserError(Exception):
    """Input from outside is invalid: a file, an option, a configuration or a request.

    The message names the field, the value that came and what is allowed. The command line prints
    it without a traceback, after `jaxlake: error: `, and exits with status 2.
    """


def did_you_mean(given: object, allowed: Iterable[str]) -> str:
    """Say which allowed name was probably meant, as the end of a message; "" if none is alike."""
    close = get_close_matches(str(given), list(allowed), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def why_unreadable(path: str | Path, error: OSError) -> str:
    """Say why a file can't be read, and where it isn't there which file was probably meant."""
    words = str(error.strerror or error)
    if not isinstance(error, FileNotFoundError):
        return words
    folder, name = os.path.split(path)
    try:
        beside = os.listdir(folder or os.curdir)
    except OSError:
        return words
    close = get_close_matches(name, beside, n=1, cutoff=0.8)  # most share an ending
    return f"{words}; did you mean {os.path.join(folder, close[0])}?" if close else words
