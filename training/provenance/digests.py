"""What is hashed, and in which form: SHA-256 over bytes, or over canonical JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from training.errors import UserError
from training.instances import InstanceSet

ANSWERS = "answers.jsonl"
_CHUNK = 1 << 20  # bytes read at a time


def canonical(value: Any) -> str:
    """JSON of one form only: sorted keys, no blanks, ASCII, shortest decimals."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest_of(value: Any) -> str:
    """Of a JSON value in canonical form."""
    return hashlib.sha256(canonical(value).encode("ascii")).hexdigest()


def lines_digest(values: Iterable[Any]) -> str:
    """Of JSON values in canonical form, one a line."""
    digest = hashlib.sha256()
    for value in values:
        digest.update(canonical(value).encode("ascii") + b"\n")
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """Of a file's bytes.

    Raises:
        UserError: it is missing or can't be read.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror}") from error
    return digest.hexdigest()


def stage_file_digest(path: Path) -> str:
    """Of one file of a stage: its bytes, or for `answers.jsonl` its records without `seconds`.

    How long an engineer thought differs between equal runs, what it said does not.

    Raises:
        UserError: it is missing, can't be read, or is no JSON lines where it must be.
    """
    return lines_digest(untimed(path)) if path.name == ANSWERS else file_digest(path)


def untimed(path: Path) -> list[dict[str, Any]]:
    """The records of `answers.jsonl` without the seconds that each took.

    Raises:
        UserError: as `json_lines`, or a line holds no object.
    """
    records = json_lines(path)
    if not all(isinstance(record, dict) for record in records):
        raise UserError(f"{path}: every line must hold an object")
    return [without_seconds(record) for record in records]


def without_seconds(attempt: Mapping[str, Any]) -> dict[str, Any]:
    """An attempt of `answers.jsonl`, and those within it, but for the time that each took."""
    kept = {name: value for name, value in attempt.items() if name != "seconds"}
    inner = kept.get("candidates")
    if isinstance(inner, list) and all(isinstance(one, dict) for one in inner):
        kept["candidates"] = [without_seconds(one) for one in inner]
    return kept


def json_lines(path: Path) -> list[Any]:
    """Every line of a file as JSON. Nothing is passed over, unlike where a run is read to go on.

    Raises:
        UserError: it can't be read, or a line is no JSON or has no end.
    """
    try:
        text = path.read_bytes().decode("utf-8")
        if text and not text.endswith("\n"):
            raise UserError(f"{path}: the last line is cut")
        return [json.loads(line) for line in text.split("\n")[:-1]]
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: holds no JSON lines: {error}") from error


def boards_digest(boards: InstanceSet) -> str:
    """Of boards in their order: the published symbols of each, its optima, whether it needs a wait.

    Neither padding nor the choice among optimal plans is part of it.
    """
    solutions = boards.solutions
    return lines_digest(
        [
            list(grid),
            int(solutions.sum_of_costs[row]),
            int(solutions.makespan[row]),
            bool(solutions.needs_wait[row]),
        ]
        for row, grid in enumerate(boards.grids)
    )


def metrics_records(path: Path) -> list[Any]:
    """The records of `metrics.jsonl`; none if there is no file yet.

    A line that is no JSON is passed over: the last one is cut where a run was killed, and any other
    is missed in the digest of its stage.

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


def metrics_of_stage(records: Sequence[Mapping[str, Any]], stage: int) -> list[Mapping[str, Any]]:
    """Those records of `metrics.jsonl` that belong to a stage; the warm start's are of stage 0."""
    return [
        record
        for record in records
        if isinstance(record, Mapping)
        and (
            record.get("phase") == "warm_start"
            if stage == 0
            else record.get("phase") == "train" and record.get("stage") == stage
        )
    ]


def weights_digest(folder: Path) -> str:
    """Of a policy folder's weights: the names and the bytes of its `*.safetensors`.

    Raises:
        UserError: there are none, or one can't be read.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UserError(f"{folder}: holds no *.safetensors")
    return digest_of({file.name: file_digest(file) for file in files})
