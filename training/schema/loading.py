"""Conversion between YAML files and configurations; errors name the file, key and value."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml
from pydantic import ValidationError

from jaxlake.yaml_files import apply_override, read_yaml
from training.errors import Location, UserError, format_validation_errors
from training.schema.run_config import RunConfig
from training.schema.section import Section

ConfigT = TypeVar("ConfigT", bound=Section)


def load(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Return the configuration of a run; see `load_config`."""
    return load_config(RunConfig, path, overrides)


def load_config(schema: type[ConfigT], path: Path, overrides: Sequence[str]) -> ConfigT:
    """Read a YAML file, apply overrides and return the validated configuration.

    Args:
        schema: The model to validate with.
        path: The YAML file.
        overrides: Assignments of the form `key.sub=value`, applied in order.

    Raises:
        UserError: The file can't be read, is not YAML, or a key or value is not allowed.
    """
    tree = read_yaml(path)
    require_schema(schema.__name__, path, tree)
    for override in overrides:
        apply_override(override, tree)
    try:
        return schema.model_validate(tree)
    except ValidationError as error:
        problems = format_validation_errors(error, partial(_allowed_keys, schema))
        lines = [_add_source(problem, path, overrides) for problem in problems]
        raise UserError("\n".join(lines)) from error


class _FileKind(NamedTuple):
    command: str  # the command that reads such files
    keys: set[str]  # keys that only such files have


_FILE_KINDS = {
    "RunConfig": _FileKind("run", {"environment", "validation"}),
    "StudyConfig": _FileKind("study", {"base"}),
}


def require_schema(schema: str, path: Path, tree: Mapping[Any, Any]) -> None:
    """Raise a `UserError` that names the right command if the file belongs to another schema."""
    file_kind = _FILE_KINDS.get(schema)
    if file_kind is None or file_kind.keys <= set(tree):
        return
    for command, keys in _FILE_KINDS.values():
        if keys <= set(tree):
            raise UserError(
                f"{path}: has {' and '.join(sorted(keys))} as keys, so it is a file for "
                f"`jaxlake {command}`, not for `jaxlake {file_kind.command}`"
            )


def _add_source(problem: str, path: Path, overrides: Sequence[str]) -> str:
    """Prefix a problem with the last override that it mentions, or else with the file."""
    field, _, message = problem.partition(": ")
    fields = (field, f"{field}.{message.partition(': ')[0]}")  # environment: kind: must be ...
    for override in reversed(overrides):
        key = override.partition("=")[0]
        is_match = any(name == key or name.startswith(f"{key}.") for name in fields)
        # Keys of one word, such as model, also occur as ordinary words.
        if is_match or ("." in key and re.search(rf"(?<![\w.]){re.escape(key)}(?!\w)", problem)):
            return f"--set {key}: {message if field == key else problem}"
    return f"{path}: {problem}"


def dump(config: Section) -> str:
    """Return the resolved configuration as YAML; `load` reads it back to an equal value."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, width=100)


def _allowed_keys(schema: type[Section], location: Location) -> str:
    """Return the keys that the schema allows at the location of an unknown key."""
    model: Any = schema
    for part in location[:-1]:
        field = getattr(model, "model_fields", {}).get(part)
        if field is None:
            return 'those on the documentation page "All keys"'
        kinds = getattr(field.annotation, "__args__", (field.annotation,))
        model = next((kind for kind in kinds if hasattr(kind, "model_fields")), None)
    return ", ".join(model.model_fields) if model is not None else "none"
