"""A run's directory: plain files anyone can read, each written whole.

```
config.yaml              the resolved configuration
metrics.jsonl            a line for each logged warm-start step and each GRPO update
timings.jsonl            seconds spent, apart, so that metrics of equal runs are equal files
checkpoints/             Orbax: weights, optimizer state, progress
stages/0/                after the warm start: validation.json, evidence.json (the same by holes and
                         waits), episodes.jsonl, failures.jsonl
stages/S/                stage S: configuration.json and .yaml (trained on), validation as above,
                         environment.json and shortfalls.json (the boards), gate.json, context.txt,
                         answers.jsonl, decision.json, policy/ (Hugging Face folder); summary.txt
                         and summary_prompt.txt (the engineer's notes, and what was asked for
                         them), probes.jsonl (what it tried out) if it has any
chain.jsonl              a link a stage: hashes of all of this
summary.json             the end result
report.html
```
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from training.errors import UserError
from training.schema import RunConfig, dump, read_yaml
from training.schema.yaml_text import parse_yaml


def write_text(path: Path, text: str) -> None:
    """Write a file whole: a reader, and a restart after a kill, sees all of it or the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UserError(f"{path}: can't be written: {error.strerror}") from error


def make_room(file: Path) -> bool:
    """Whether `file` can be the first in its directory, which holds nothing else then.

    What kills left of writing `file` itself is removed, if there is nothing but that.
    """
    if not file.parent.exists():
        return True
    left = re.compile(rf"\.{re.escape(file.name)}\.[0-9]+\.tmp")
    there = list(file.parent.iterdir())
    if not all(one.is_file() and left.fullmatch(one.name) for one in there):
        return False
    for one in there:
        one.unlink(missing_ok=True)
    return True


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, whole."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_json_lines(path: Path, values: Iterable[Any]) -> None:
    """Write one JSON value a line, whole."""
    write_text(path, "".join(json.dumps(value, allow_nan=False) + "\n" for value in values))


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
      UserError: it is missing, can't be read or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path}: is missing") from error
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: can't be read as JSON: {error}") from error


def read_json_lines(path: Path) -> list[Any]:
    """Read a file of JSON lines; lines that are none, as a kill cuts them short, are passed over.

    Raises:
      UserError: it can't be read.
    """
    if not path.exists():
        return []
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror}") from error
    records = []
    for line in lines:
        try:
            records.append(json.loads(line))
        except (ValueError, RecursionError):
            continue
    return records


class JsonLog:
    """A file of JSON lines that grows; a line cut by a kill costs nothing but itself."""

    def __init__(self, path: Path) -> None:
        """Open `path`, which need not exist."""
        self._path = path

    def append(self, record: dict[str, Any]) -> None:
        """Add one line, which begins anew where the last one was cut."""
        line = json.dumps(record).encode() + b"\n"
        with self._path.open("a+b") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read() != b"\n":
                    line = b"\n" + line
            file.write(line)

    def read(self) -> list[Any]:
        """All whole records."""
        return read_json_lines(self._path)

    def rewind(self, step: int) -> None:
        """Forget records whose `step` is beyond `step`: a resumed run writes them again."""
        if self._path.exists():
            kept = [record for record in self.read() if record["step"] <= step]
            write_json_lines(self._path, kept)


class RunDirectory:
    """The paths of one run, and the claim that it belongs to one configuration."""

    def __init__(self, path: Path) -> None:
        """Name the directory at `path`; nothing is read or written yet."""
        self.path = path
        self.config_file = path / "config.yaml"
        self.checkpoints = path / "checkpoints"
        self.metrics = JsonLog(path / "metrics.jsonl")
        self.timings = JsonLog(path / "timings.jsonl")
        self.summary = path / "summary.json"
        self.report = path / "report.html"

    def stage(self, number: int) -> Path:
        """The folder of a stage; 0 is what stood before the first."""
        return self.path / "stages" / str(number)

    def rewind(self, step: int) -> None:
        """Forget what is logged beyond `step`."""
        self.metrics.rewind(step)
        self.timings.rewind(step)

    def claim(self, config: RunConfig) -> bool:
        """Make the directory this configuration's, and say whether it already was.

        Raises:
          UserError: it belongs to another configuration (the message names the keys that differ),
            holds files that are no run's, or its config.yaml can't be read.
        """
        if self.config_file.exists():
            theirs = read_yaml(self.config_file)
            ours = parse_yaml(dump(config))
            if theirs != ours:
                raise UserError(
                    f"{self.path}: holds a run of another configuration, which differs in "
                    f"{', '.join(_differences(theirs, ours))}; choose another --run-dir, "
                    "or remove it"
                )
            return True
        if not make_room(self.config_file):
            raise UserError(f"{self.path}: is not empty and holds no run; choose another --run-dir")
        write_text(self.config_file, dump(config))
        return False


def _differences(theirs: Any, ours: Any, key: str = "") -> list[str]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return [
            difference
            for name in dict.fromkeys([*theirs, *ours])
            for difference in _differences(
                theirs.get(name), ours.get(name), f"{key}.{name}" if key else str(name)
            )
        ]
    return [] if theirs == ours else [f"{key} ({theirs!r} there, {ours!r} here)"]
