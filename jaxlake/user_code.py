"""Import of user-defined classes and functions by names of the form `package.module:NAME`.

Importing a module executes it. Commands that only read a run import code within
`restrict_imports_to`, so that a downloaded run cannot execute arbitrary code.
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

_CODE_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)

_trusted_names: frozenset[str] | None = None  # None trusts all names

imported_files: dict[str, str] = {}
"""The source file of each imported object, by its name in the configuration."""


class UntrustedCodeError(UserError, ValueError):
    """A configuration names code that the user does not trust."""


@contextmanager
def restrict_imports_to(names: frozenset[str] | None) -> Iterator[None]:
    """Within the block, import only these names; None trusts all."""
    global _trusted_names
    previous_names, _trusted_names = _trusted_names, names
    try:
        yield
    finally:
        _trusted_names = previous_names


def is_code_name(value: object) -> TypeGuard[str]:
    """Return whether a value has the form `package.module:NAME`."""
    return isinstance(value, str) and _CODE_NAME.fullmatch(value) is not None


def import_code(name: str, allowed: str) -> Any:
    """Import an object by name, from an installed package or a module in the current folder.

    Args:
        name: `package.module:NAME`.
        allowed: The allowed values of the configuration key, for error messages.

    Raises:
        ValueError: The module can't be imported or lacks the name.
        UntrustedCodeError: The name is not trusted, so nothing was imported.
    """
    if not _is_trusted(name):
        raise UntrustedCodeError(
            f"{name} was not imported, because importing a module runs its code; if you trust it, "
            "commands that read runs take --trust-code"
        )
    module_name, attribute = name.split(":")
    if (folder := str(Path.cwd())) not in sys.path:  # console scripts don't add it
        sys.path.append(folder)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(
            f"the module of {name} can't be imported ({reason:.300}); must be one of {allowed}"
        ) from error
    value = getattr(module, attribute, None)
    if value is None:
        suggestion = did_you_mean(attribute, dir(module))
        raise ValueError(f"module {module_name} has no attribute {attribute}{suggestion}")
    imported_files[name] = str(getattr(module, "__file__", None) or "built into Python")
    return value


def import_function(name: str, allowed: str) -> Callable[..., Any]:
    """Import a callable; see `import_code`. Raise `ValueError` if the object is not callable."""
    function: Callable[..., Any] = import_code(name, allowed)
    if not callable(function):
        raise ValueError(f"{name} must be callable; the value must be one of {allowed}")
    return function


def check_importable(name: str, allowed: str) -> None:
    """Raise `ValueError` if a trusted name is not an importable function; skip other names."""
    if _is_trusted(name):
        import_function(name, allowed)


def _is_trusted(name: str) -> bool:
    return _trusted_names is None or name in _trusted_names
