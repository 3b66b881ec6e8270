"""YAML files to configurations and back; what is wrong with one is named by file, key and value."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from training.config.run import RunConfig
from training.errors import UserError
from training.yaml_text import parse_yaml


def load(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a YAML file, apply `key.sub=value` overrides and validate.

    Raises:
      UserError: the file can't be read, is not YAML, or a key or value is not allowed; the message
        names file, key and value.
    """
    tree = read_yaml(path)
    for override in overrides:
        _override(tree, override)
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        raise UserError("\n".join(_problems(str(path), error))) from error


def read_yaml(path: Path) -> dict[Any, Any]:
    """Read a YAML file that holds a mapping.

    Raises:
      UserError: it can't be read, is not YAML, or holds something else.
    """
    try:
        tree = parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path}: is not YAML: {error}") from error
    if not isinstance(tree, dict):
        raise UserError(f"{path}: must hold a mapping of keys, got {type(tree).__name__}")
    return tree


def shown(value: Any) -> str:
    """A value that came from a file, for a message: cut, since aliases can make it any length."""
    return f"{reprlib.repr(value):.100}"


def dump(config: RunConfig) -> str:
    """The resolved configuration as YAML that `load` reads back to an equal value."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, width=100)


def _override(tree: dict[Any, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise UserError(f"--set {override!r}: must be key.sub=value")
    try:
        value = parse_yaml(text)
    except ValueError as error:
        raise UserError(f"--set {override!r}: the value is not YAML") from error
    *parents, leaf = map(_key, key.split("."))
    for part in parents:
        below = tree.setdefault(part, {})
        if not isinstance(below, dict):
            raise UserError(f"--set {override!r}: {part!r} holds {below!r}, not a mapping")
        tree = below
    tree[leaf] = value


def _key(part: str) -> int | str:
    """A part of a dotted key as YAML has it; what is no number, or too long for one, stays text."""
    return int(part) if re.fullmatch("[0-9]{1,18}", part) else part


def _problems(source: str, error: ValidationError) -> Iterable[str]:
    """One line for each problem: file, dotted key, what is wrong, the value that came."""
    for problem in error.errors():
        key = ".".join(f"{part!s:.100}" for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            yield f"{source}: {key}: unknown key; allowed are {_allowed(problem['loc'])}"
        elif problem["type"] == "missing":
            yield f"{source}: {key}: required, but missing"
        elif problem["type"] == "value_error":
            message = problem["msg"].removeprefix("Value error, ")
            yield f"{source}: {key}: {message}" if key else f"{source}: {message}"
        else:
            yield f"{source}: {key}: got {shown(problem['input'])}: {problem['msg']}"


def _allowed(location: tuple[int | str, ...]) -> str:
    """The names that stand beside an unknown key, found by walking the schema."""
    model: Any = RunConfig
    for part in location[:-1]:
        field = getattr(model, "model_fields", {}).get(part)
        if field is None:
            return "the schema's own"
        model = next(
            (kind for kind in _types(field.annotation) if hasattr(kind, "model_fields")), None
        )
    return ", ".join(model.model_fields) if model is not None else "none"


def _types(annotation: Any) -> tuple[Any, ...]:
    return getattr(annotation, "__args__", (annotation,))
