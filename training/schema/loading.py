"""YAML files to configurations and back; errors name the file, the key and the value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from training.errors import Location, UserError, problems_of
from training.schema.run_config import RunConfig
from training.schema.section import Section

Configuration = TypeVar("Configuration", bound=Section)


def load(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read the configuration of a run; see `load_as`."""
    return load_as(RunConfig, path, overrides)


def load_as(schema: type[Configuration], path: Path, overrides: Sequence[str]) -> Configuration:
    """Read a YAML file, apply `key.sub=value` overrides and validate the result.

    Raises:
        UserError: The file can't be read, is not YAML, or a key or value is not allowed.
    """
    tree = read_yaml(path)
    refuse_other_kinds(schema.__name__, path, tree)
    for override in overrides:
        _apply(override, tree)
    try:
        return schema.model_validate(tree)
    except ValidationError as error:
        problems = problems_of(error, partial(_allowed, schema))
        raise UserError("\n".join(_blamed(one, path, overrides) for one in problems)) from error


_MARKS = {
    "RunConfig": ("run", {"environment", "validation"}),
    "StudyConfig": ("study", {"base"}),
}
"""By schema, the command that reads such a file, and keys that no other file has together."""


def refuse_other_kinds(schema: str, path: Path, tree: Mapping[Any, Any]) -> None:
    """Raise a `UserError` that names the command for a file which another one than this reads."""
    wanted = _MARKS.get(schema)
    if wanted is None or wanted[1] <= set(tree):
        return
    for command, marks in _MARKS.values():
        if marks <= set(tree):
            raise UserError(
                f"{path}: has {' and '.join(sorted(marks))} as keys, so it is a file for "
                f"`jaxlake {command}`, and `jaxlake {wanted[0]}` was asked for"
            )


def _blamed(problem: str, path: Path, overrides: Sequence[str]) -> str:
    """Put before a problem the override that it speaks of, the last one that does, or the file."""
    place, _, rest = problem.partition(": ")
    places = (place, f"{place}.{rest.partition(': ')[0]}")  # such as environment: kind: got ...
    for override in reversed(overrides):
        key = override.partition("=")[0]
        within = any(one == key or one.startswith(f"{key}.") for one in places)
        # Keys of one word, such as model, are words of sentences, too.
        if within or ("." in key and re.search(rf"(?<![\w.]){re.escape(key)}(?!\w)", problem)):
            return f"--set {key}: {rest if place == key else problem}"
    return f"{path}: {problem}"


def read_yaml(path: Path) -> dict[Any, Any]:
    """Read a YAML file that holds a mapping; a `UserError` says why that can't be done."""
    try:
        tree = parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror or error}") from error
    except ValueError as error:
        raise UserError(f"{path}: is not YAML: {error}") from error
    if not isinstance(tree, dict):
        got = "nothing" if tree is None else type(tree).__name__
        raise UserError(f"{path}: must hold a mapping of keys, got {got}")
    return tree


def parse_yaml(text: str) -> Any:
    """What a YAML document holds; a `ValueError` of one line says that it is not YAML."""
    try:
        return yaml.load(text, _Reader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # Beside errors of its own, the reader lets those of dates and of long numbers through.
        raise ValueError(" ".join(str(error).split())) from error


def dump(config: Section) -> str:
    """Write the resolved configuration as YAML, which `load` reads back to an equal value."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, width=100)


class _Reader(yaml.SafeLoader):
    """The safe reader, which refuses a key that stands twice in a mapping."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        names = [(key.tag, key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(set(names)) < len(names):
            name = next(one for one in names if names.count(one) > 1)[1]
            raise ValueError(
                f"the key {name[:100]!r} stands twice in the mapping that begins in line "
                f"{node.start_mark.line + 1}, allowed is once"
            )
        return node


def _apply(override: str, tree: dict[Any, Any]) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise UserError(f"--set {override!r}: must be key.sub=value")
    try:
        value = parse_yaml(text)
    except ValueError as error:
        raise UserError(f"--set {override!r}: the value is not YAML") from error
    # As in YAML, digits are a number; too many of them for one (18) stay text.
    *parents, leaf = (
        int(part) if re.fullmatch("[0-9]{1,18}", part) else part for part in key.split(".")
    )
    for part in parents:
        below = tree.setdefault(part, {})
        if not isinstance(below, dict):
            raise UserError(f"--set {override!r}: {part!r} holds {below!r}, not a mapping")
        tree = below
    tree[leaf] = value


def _allowed(schema: type[Section], location: Location) -> str:
    """List the keys that may stand at the place of an unknown one, by walking the schema."""
    model: Any = schema
    for part in location[:-1]:
        field = getattr(model, "model_fields", {}).get(part)
        if field is None:
            return "the schema's own"
        types = getattr(field.annotation, "__args__", (field.annotation,))
        model = next((one for one in types if hasattr(one, "model_fields")), None)
    return ", ".join(model.model_fields) if model is not None else "none"
