"""Reference pages generated from `--help` and from the schema of configurations."""

import contextlib
import io
import json
import os
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

from tools.docs_site.links import slug

_COMMANDS = """\
# All commands in full

What `jaxlake COMMAND --help` prints. In short, and what else there is to know:
[The command line](../command_line.md).
"""
_WIDTH = "100"
_COMMAND_NAME = re.compile(r"^ {4}([a-z][\w-]*)(?:\s{2,}\S.*)?$", re.MULTILINE)


def make_commands_page() -> str:
    """Return the page; it imports `training` and so needs its dependencies."""
    return _COMMANDS + "".join(_command_sections())


def _command_sections(*command: str) -> Iterator[str]:
    """Yield the help of a command and of its subcommands."""
    text = _read_help(*command)
    if command:
        yield f"\n{'#' * (len(command) + 1)} jaxlake {' '.join(command)}\n\n```text\n{text}```\n"
    subcommands = re.search(r"^ {2}(?:COMMAND|ACTION)\n((?: {4}.*\n)+)", text, re.MULTILINE)
    for name in _COMMAND_NAME.findall(subcommands[1]) if subcommands else ():
        yield from _command_sections(*command, name)


def _read_help(*command: str) -> str:
    from jaxlake.command_line.entry import main

    output = io.StringIO()
    with (
        mock.patch.dict(os.environ, {"COLUMNS": _WIDTH}),
        contextlib.redirect_stdout(output),
        contextlib.suppress(SystemExit),
    ):
        main([*command, "--help"])
    return output.getvalue()


_CONFIGURATION = """\
# All keys of a run's configuration

Every key of `configs/*.yaml` for `jaxlake run`, with what it takes and its default, from the schema
that validates the file. `--set section.key=value` replaces a single value. Keys that stand in no
file have their default; the `config.yaml` of a run has them all. Files of studies:
[Studies](../how_to/studies.md#write-a-study).

"""


def make_configuration_page() -> str:
    """Return the page; it imports `training` and so needs its dependencies."""
    from training.schema import RunConfig

    schema = RunConfig.model_json_schema()
    return _CONFIGURATION + "\n".join(_section_tables(schema, schema["$defs"], ""))


def _section_tables(section: dict[str, Any], schemas: dict[str, Any], name: str) -> Iterator[str]:
    """Yield a configuration section as a table, followed by its nested sections."""
    required_keys, subsections = section.get("required", ()), []
    yield from ("| key | takes | default | |", "|---|---|---|---|")
    for key, field in section.get("properties", {}).items():
        path = f"{name}.{key}" if name else key
        sections = [
            schemas[schema] for schema in _find_references(field) if "properties" in schemas[schema]
        ]
        subsections += [(path, schema) for schema in sections]
        default = "required" if key in required_keys else _default_text(field.get("default"))
        type_text = " or ".join(dict.fromkeys(_accepted_types(field, schemas)))
        type_text = (
            type_text.replace("a section", f"[a section](#{slug(path)})") if sections else type_text
        )
        yield f"| `{key}` | {type_text} | {default} | {_table_text(field.get('description', ''))} |"
    for path, schema in subsections:
        suffix = " (of an environment of your own)" if schema["title"].startswith("Other") else ""
        yield from ("", f"{'#' * min(path.count('.') + 2, 4)} {path}{suffix}", "")
        if description := _table_text(schema.get("description", "").split("\n\n")[0]):
            yield from (description, "")
        yield from _section_tables(schema, schemas, path)


def _find_references(field: dict[str, Any]) -> list[str]:
    """Return the names of the schemas that a field accepts."""
    options = [field, *field.get("anyOf", ()), *field.get("allOf", ()), *field.get("oneOf", ())]
    return [option["$ref"].rpartition("/")[2] for option in options if "$ref" in option]


def _accepted_types(field: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    """Yield descriptions of the types that a field accepts."""
    for option in (*field.get("anyOf", ()), *field.get("allOf", ()), *field.get("oneOf", ())):
        yield from _accepted_types(option, schemas)
    if "$ref" in field:
        schema = schemas[field["$ref"].rpartition("/")[2]]
        yield (
            "a section" if "properties" in schema else " or ".join(_accepted_types(schema, schemas))
        )
    elif "enum" in field:
        yield from (f"`{value}`" for value in field["enum"])
    elif "const" in field:
        yield f"`{field['const']}`"
    elif field.get("type") == "array":
        item = " or ".join(_accepted_types(field.get("items", {}), schemas))
        yield f"list of {item or 'values'}"
    elif "type" in field:
        yield _TYPES.get(field["type"], field["type"]) + _range_text(field)


_TYPES = {"boolean": "`true`, `false`", "integer": "integer", "object": "mapping", "string": "text"}


def _range_text(field: dict[str, Any]) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {field[key]:.12g}" for key, sign in signs.items() if key in field]
    return f" {', '.join(bounds)}" if bounds else ""


def _default_text(default: Any) -> str:
    if isinstance(default, dict):
        return "as below"
    return f"`{json.dumps(default, ensure_ascii=False)}`"


def _table_text(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
