"""Classes and functions of a user's own, which a configuration names as `package.module:NAME`."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeGuard

from jaxlake.errors import did_you_mean

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


def names_code(value: object) -> TypeGuard[str]:
    """Return whether a value has the form `package.module:NAME`."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def import_code(name: str, allowed: str) -> Any:
    """Import an object by its name, also from the current folder.

    Args:
        name: `package.module:NAME`.
        allowed: The values that the key may have, for messages.

    Raises:
        ValueError: The module can't be imported, or has nothing of this name.
    """
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
    return code


def import_function(name: str, allowed: str) -> Callable[..., Any]:
    """Import a function, or a class; raises as `import_code`, and if the object isn't callable."""
    function: Callable[..., Any] = import_code(name, allowed)
    if not callable(function):
        raise ValueError(f"got {name}, which is not callable; allowed are {allowed}")
    return function
