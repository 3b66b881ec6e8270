"""Import user-defined classes and functions, which configurations name as `package.module:NAME`.

Importing a module executes it. Commands that only read a run import code within
`restrict_imports_to`, so that a run from elsewhere cannot execute arbitrary code.
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
"""The source file of each imported user module, by its name in the configuration."""


class UntrustedCodeError(UserError, ValueError):
    """A configuration names code that the user has not trusted."""


@contextmanager
def restrict_imports_to(names: frozenset[str] | None) -> Iterator[None]:
    """Restrict imports within the block to these names; None allows all."""
    global _trusted
    before, _trusted = _trusted, names
    try:
        yield
    finally:
        _trusted = before


def is_code_name(value: object) -> TypeGuard[str]:
    """Return whether a value has the form `package.module:NAME`."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def import_code(name: str, allowed: str) -> Any:
    """Import an object by name; modules in the current folder are importable too.

    Args:
        name: `package.module:NAME`.
        allowed: The allowed values of the key, for error messages.

    Returns:
        The imported object.

    Raises:
        ValueError: The module can't be imported, lacks the name, or is not trusted.
    """
    if not _is_trusted(name):
        raise UntrustedCodeError(
            f"got {name}, code that this command imports with --trust-code only: importing it runs "
            "whatever its author wrote"
        )
    module_name, attribute = name.split(":")
    if (folder := str(Path.cwd())) not in sys.path:  # console scripts do not search it
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
        suggestion = did_you_mean(attribute, dir(module))
        raise ValueError(f"got {name}, but {module_name} has no {attribute}{suggestion}")
    imported[name] = str(getattr(module, "__file__", None) or "built into Python")
    return code


def import_function(name: str, allowed: str) -> Callable[..., Any]:
    """Import a callable; raise as `import_code` does, or if the object is not callable."""
    function: Callable[..., Any] = import_code(name, allowed)
    if not callable(function):
        raise ValueError(f"got {name}, which is not callable; allowed are {allowed}")
    return function


def check_importable(name: str, allowed: str) -> None:
    """Check that a function can be imported; untrusted names are not checked."""
    if _is_trusted(name):
        import_function(name, allowed)


def _is_trusted(name: str) -> bool:
    return _trusted is None or name in _trusted
