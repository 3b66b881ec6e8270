"""A run directory, finished or not, as frozen values, with a list of what is missing from it.

This is the one place of the report that opens files and the one that doubts them: whatever has the
wrong shape is left out and named, so that everything after it may rely on the types.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from training.errors import UserError
from training.yaml_text import parse_yaml

Record = Mapping[str, Any]
Configuration = Mapping[int, Mapping[str, float]]
"""Map size -> knob -> value."""
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Tally:
    """How the answers to some validation instances turned out; `size` is None for all sizes."""

    size: int | None
    count: int
    valid: int
    optimal_sum_of_costs: int
    optimal_makespan: int
    failures: Mapping[str, int]


@dataclass(frozen=True)
class Validation:
    """A validation table: one row a map size, and the total."""

    rows: tuple[Tally, ...]
    total: Tally


@dataclass(frozen=True)
class Decision:
    """What a Design phase decided: the configuration of the next round."""

    kind: str
    reason: str
    engineer: str
    configuration: Configuration
    repairs: tuple[Record, ...]
    spent: Record


@dataclass(frozen=True)
class Stage:
    """The folder of a round (0: before the first); what is not there is None or empty."""

    number: int
    validation: Validation | None
    configuration: Configuration | None
    episodes: tuple[Record, ...]
    context: str | None
    answers: tuple[Record, ...]
    decision: Decision | None
    notice: str = ""  # what was taken back before the engineer was asked


@dataclass(frozen=True)
class RunFiles:
    """Everything the report reads of a run."""

    path: Path
    config: Record
    config_text: str
    metrics: tuple[Record, ...]
    timings: tuple[Record, ...]
    stages: tuple[Stage, ...]
    finished: bool
    last_written: float
    """Seconds since the epoch, the newest of the files read."""
    missing: tuple[str, ...]
    """One sentence for each thing that is not there or can't be read."""


def read_run(path: Path) -> RunFiles:
    """Read a run directory as far as it goes.

    Raises:
        UserError: `path` is not a folder, or holds neither configuration, metrics nor stages.
    """
    if not path.is_dir():
        what = "is not a folder" if path.exists() else "does not exist"
        raise UserError(f"{path}: {what}; the folder of a run is needed")
    marks = ("config.yaml", "metrics.jsonl", "stages")
    if not any((path / mark).exists() for mark in marks):
        raise UserError(f"{path}: is no run directory, it has none of {', '.join(marks)}")
    reader = _Reader(path)
    config_text = reader.text("config.yaml") or ""
    config = _config(config_text, reader)
    metrics = reader.json_lines("metrics.jsonl")
    timings = reader.json_lines("timings.jsonl")
    stages = tuple(_stage(number, reader) for number in _stage_numbers(path, config))
    summary = reader.json("summary.json", optional=True)
    finished = isinstance(summary, dict) and summary.get("finished") is True
    if not finished:
        reader.missing.append("The run has not finished: there is no summary.json.")
    return RunFiles(
        path=path,
        config=config,
        config_text=config_text,
        metrics=metrics,
        timings=timings,
        stages=stages,
        finished=finished,
        last_written=reader.newest,
        missing=tuple(reader.missing),
    )


def finite(value: object) -> float | None:
    """A number that can be drawn, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def lookup(record: Record, *keys: str) -> Any:
    """The value at a path of keys, None where the path breaks off."""
    value: Any = record
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


class _Reader:
    """Opens the files of one run, and remembers which were missing and how new they are."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.missing: list[str] = []
        self.newest = 0.0

    def text(self, name: str, *, optional: bool = False) -> str | None:
        path = self.root / name
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
            self.newest = max(self.newest, path.stat().st_mtime)
        except FileNotFoundError:
            if not optional:
                self.missing.append(f"{name} is not there.")
            return None
        except OSError as error:
            self.missing.append(f"{name} can't be read: {error.strerror}.")
            return None
        return text

    def json(self, name: str, *, optional: bool = False) -> Any:
        text = self.text(name, optional=optional)
        if text is None:
            return None
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            self.missing.append(f"{name} is not JSON: {error}.")
            return None

    def json_lines(self, name: str) -> tuple[Record, ...]:
        lines = (self.text(name) or "").split("\n")
        records, broken = [], []
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            if isinstance(record, dict):
                records.append(record)
            else:
                broken.append(number)
        if broken:
            shown = ", ".join(map(str, broken[:5])) + (", …" if len(broken) > 5 else "")
            self.missing.append(f"{name}: left out line {shown}, no JSON object.")
        return tuple(records)


def _config(text: str, reader: _Reader) -> Record:
    if not text:
        return {}
    try:
        tree = parse_yaml(text)
    except ValueError:
        tree = None
    if not isinstance(tree, dict):
        reader.missing.append("config.yaml is not a YAML mapping.")
        return {}
    return tree


def _stage_numbers(path: Path, config: Record) -> list[int]:
    """The rounds that were planned, and those that have a folder."""
    rounds = lookup(config, "stages", "rounds")
    planned = range(rounds + 1) if isinstance(rounds, int) and 0 < rounds < 1000 else range(1)
    folder = path / "stages"
    there = {int(child.name) for child in folder.glob("*") if child.name.isdecimal()}
    return sorted(there | set(planned))


def _stage(number: int, reader: _Reader) -> Stage:
    folder = f"stages/{number}"
    if not (reader.root / folder).is_dir():
        reader.missing.append(f"{folder} is not there yet.")
        return Stage(number, None, None, (), None, (), None)
    validation = _checked(f"{folder}/validation.json", _validation, reader)
    if number == 0:
        episodes = reader.json_lines(f"{folder}/episodes.jsonl") if validation else ()
        return Stage(number, validation, None, episodes, None, (), None)
    decision = _checked(f"{folder}/decision.json", _decision, reader)
    return Stage(
        number=number,
        validation=validation,
        configuration=_checked(f"{folder}/configuration.json", _configuration, reader),
        episodes=reader.json_lines(f"{folder}/episodes.jsonl"),
        context=reader.text(f"{folder}/context.txt"),
        answers=reader.json_lines(f"{folder}/answers.jsonl"),
        decision=decision,
        notice=_checked(f"{folder}/gate.json", _notice, reader) or "",
    )


def _checked(name: str, parse: Callable[[Any], _Value], reader: _Reader) -> _Value | None:
    value = reader.json(name)
    if value is None:
        return None
    try:
        return parse(value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reader.missing.append(f"{name} is left out: {type(error).__name__}, {error}.")
        return None


def _validation(value: Any) -> Validation:
    rows = tuple(_tally(row, int(row["size"])) for row in value["rows"])
    if not rows:
        raise ValueError("rows is empty")
    return Validation(rows, _tally(value["total"], None))


def _tally(row: Any, size: int | None) -> Tally:
    tally = Tally(
        size=size,
        count=_count(row["count"], "count"),
        valid=_count(row["valid"], "valid"),
        optimal_sum_of_costs=_count(row["optimal_sum_of_costs"], "optimal_sum_of_costs"),
        optimal_makespan=_count(row["optimal_makespan"], "optimal_makespan"),
        failures={str(kind): _count(n, str(kind)) for kind, n in row["failures"].items()},
    )
    if tally.count < max(tally.valid, tally.optimal_sum_of_costs, tally.optimal_makespan):
        raise ValueError(f"count is {tally.count}, smaller than one of its parts")
    return tally


def _count(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} is {value!r}, a count is needed")
    return value


def _configuration(value: Any) -> Configuration:
    return {
        size: {str(knob): float(number) for knob, number in knobs.items()}
        for size, knobs in sorted((int(size), knobs) for size, knobs in value["sizes"].items())
    }


def _notice(value: Any) -> str:
    return str(value.get("notice") or "")


def _decision(value: Any) -> Decision:
    return Decision(
        kind=str(value["kind"]),
        reason=str(value.get("reason") or ""),
        engineer=str(value.get("engineer") or ""),
        configuration=_configuration(value["configuration"]),
        repairs=tuple(one for one in value.get("repairs") or () if isinstance(one, dict)),
        spent=value["spent"] if isinstance(value.get("spent"), dict) else {},
    )
