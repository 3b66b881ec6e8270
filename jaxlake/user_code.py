"""Classes and functions of a user's own, which a configuration names as `package.module:NAME`.

Importing runs the module. Commands that only read a run call this within `trust_code`, so that a
run from elsewhere does not decide what is executed.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeGuard

from jaxlake.errors import UserError, did_you_mean

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


_trusted: frozenset[str] | None = None  # names that may be imported; None: all

imported: dict[str, str] = {}
"""The file of each module of a user's that was imported, by the name in the configuration."""


class UntrustedCodeError(UserError, ValueError):
    """A configuration names code that this command does not import."""


@contextmanager
def trust_code(names: frozenset[str] | None) -> Iterator[None]:
    """Import no code but that of these names within the block (None: import all)."""
    global _trusted
    before, _trusted = _trusted, names
    try:
        yield
    finally:
        _trusted = before


def names_code(value: object) -> TypeGuard[str]:
    """Return whether a value has the form `package.module:NAME`."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def import_code(name: str, allowed: str) -> Any:
    """Import an object by its name, also from the current folder.

    Args:
        name: `package.module:NAME`.
        allowed: The values that the key may have, for messages.

    Raises:
        ValueError: The module can't be imported, has nothing of this name, or is not trusted.
    """
    if not _is_trusted(name):
        raise UntrustedCodeError(
            f"got {name}, code that this command imports with --trust-code only: importing it runs "
            "whatever its author wrote"
        )
    module_name, attribute = name.split(":")
    if (folder := str(Path.cwd())) not in sys.path:  # a command alone does not search it
        sys.path.append(folder)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(
            f"got {name}, whose module can't be imported ({why:.300}); allowed are {allowed}"
        ) from error
    code = getattr(module, attribute, None)
    if code is None:
        meant = did_you_mean(attribute, dir(module))
        raise ValueError(f"got {name}, but {module_name} has no {attribute}{meant}")
    imported[name] = str(getattr(module, "__file__", None) or "built into Python")
    return code


def import_function(name: str, allowed: str) -> Callable[..., Any]:
    """Import a function, or a class; raises as `import_code`, and if the object isn't callable."""
    function: Callable[..., Any] = import_code(name, allowed)
    if not callable(function):
        raise ValueError(f"got {name}, which is not callable; allowed are {allowed}")
    return function


def check_function(name: str, allowed: str) -> None:
    """Import a function to check its name; a function that is not trusted is not checked."""
    if _is_trusted(name):
        import_function(name, allowed)


def _is_trusted(name: str) -> bool:
    return _trusted is None or name in _trusted
