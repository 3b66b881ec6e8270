"""Write JSON files of results."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxlake.files import write_text_atomic


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result as JSON, with floats of six significant digits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomic(path, json.dumps(_six_digits(result), indent=1) + "\n")


def put_record(path: Path, section: str, record: dict[str, Any]) -> None:
    """Add a record to a section of a file, replacing the record of the same name."""
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    other_records = [entry for entry in content.get(section, []) if entry["name"] != record["name"]]
    content[section] = sorted([*other_records, record], key=lambda entry: str(entry["name"]))
    write_result(path, content)


def _six_digits(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {key: _six_digits(item) for key, item in value.items()}
    return [_six_digits(item) for item in value] if isinstance(value, list | tuple) else value
