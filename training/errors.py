"""Errors that users can correct, and messages for invalid values."""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from jaxlake.errors import UserError as UserError
from jaxlake.errors import did_you_mean as did_you_mean
from jaxlake.errors import shorten as shorten

if TYPE_CHECKING:
    from pydantic import ValidationError

Location = tuple[int | str, ...]
"""Path of a value in a tree of mappings and lists, from the root."""


def format_validation_errors(
    error: "ValidationError", allowed: Callable[[Location], str] | None = None
) -> Iterator[str]:
    """Yield one message per problem, with the key, the value and the allowed values.

    Args:
        error: The validation error.
        allowed: Returns the valid keys at the location of an unknown key. None omits them.
    """
    for problem in error.errors():
        location, kind = problem["loc"], problem["type"]
        if kind == "extra_forbidden":
            names = allowed(location) if allowed else ""
            message = f"unknown key; the keys are {names}" if allowed else "unknown key"
            message += did_you_mean(location[-1], names.split(", "))
        elif kind == "missing":
            message = "required, but missing"
        elif kind == "value_error":
            message = f"{problem['msg'].removeprefix('Value error, '):.1000}"
        else:
            message = f"got {shorten(problem['input'])}: {problem['msg']}"
            if kind == "literal_error":
                names = str(problem.get("ctx", {}).get("expected", ""))
                message += did_you_mean(problem["input"], re.findall(r"'([^']*)'", names))
        key = ".".join(f"{part!s:.100}" for part in location)
        yield f"{key}: {message}" if key else message
