"""From `environment.kind` to the environment of a user."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from training.errors import did_you_mean, problems_of, shortened
from training.user_environment import UserEnvironment

LAKE = "lake"
"""The kind of the environment that the library brings."""

ALLOWED = f"{LAKE}, and package.module:NAME of a UserEnvironment"
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


def environment_class(kind: object) -> type[UserEnvironment[Any]]:
    """Import the class that a kind names; it is looked for in the current folder, too.

    A `ValueError` says what is wrong with the kind. What the module itself raises is part of it.
    """
    if not isinstance(kind, str) or not _DOTTED.fullmatch(kind):
        meant = did_you_mean(kind, [LAKE])
        raise ValueError(f"kind: got {shortened(kind)}, allowed are {ALLOWED}{meant}")
    module_name, name = kind.split(":")
    try:
        with _current_folder_searched():
            module = importlib.import_module(module_name)
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(
            f"kind: got {kind}, whose module can't be imported ({why:.300}); allowed are {ALLOWED}"
        ) from error
    found = getattr(module, name, None)
    if found is None:
        meant = did_you_mean(name, dir(module))
        raise ValueError(f"kind: got {kind}, but {module_name} has no {name}{meant}")
    if not (inspect.isclass(found) and issubclass(found, UserEnvironment)):
        raise ValueError(f"kind: got {kind}, which is no subclass of UserEnvironment")
    if missing := sorted(getattr(found, "__abstractmethods__", ())):
        raise ValueError(f"kind: got {kind}, which lacks {', '.join(missing)}")
    return found


def make_environment(kind: object, settings: object) -> UserEnvironment[Any]:
    """Make the environment that a kind names; a `ValueError` says what is wrong with its settings.

    Settings are a mapping that the environment's class validates, or the environment itself.
    """
    wanted = environment_class(kind)
    if isinstance(settings, wanted):
        return settings
    try:
        return wanted.model_validate(settings)
    except ValidationError as error:
        allowed = ", ".join(wanted.model_fields) or "none"
        problems = problems_of(error, lambda place: allowed if len(place) == 1 else "others")
        raise ValueError("; ".join(f"settings.{one}" for one in problems)) from error


@contextmanager
def _current_folder_searched() -> Iterator[None]:
    """Let modules of the current folder be found, as `python -m` does; a command alone does not.

    It is searched first while the module is imported, and last afterwards, for what that imports
    later.
    """
    folder = str(Path.cwd())
    added = folder not in sys.path
    if added:
        sys.path.insert(0, folder)
    try:
        yield
    finally:
        if added:
            sys.path.remove(folder)
            sys.path.append(folder)
