"""Digests of what a run leaves: SHA-256 in hexadecimal, over bytes or over canonical JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from training.errors import UserError
from training.rollout.instances import InstanceSet
from training.run.records import AttemptRecord, Metrics


def canonical(value: Any) -> str:
    """Write JSON in its canonical form: sorted keys, no blanks, ASCII, shortest decimals."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def json_digest(value: Any) -> str:
    """Hash the canonical form of a JSON value."""
    return hashlib.sha256(canonical(value).encode("ascii")).hexdigest()


def lines_digest(values: Iterable[Any]) -> str:
    """Hash JSON values in canonical form, one per line."""
    text = "".join(f"{canonical(value)}\n" for value in values)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def file_digest(path: Path) -> str:
    """Hash the bytes of a file.

    Raises:
        UserError: It is missing or can't be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror}") from error


def without_seconds(attempt: AttemptRecord) -> dict[str, Any]:
    """Return an attempt as JSON, but for how long it and its candidates took.

    The time differs between runs that are otherwise equal.
    """
    inner = {"__all__": {"seconds"}}
    return attempt.model_dump(mode="json", exclude={"seconds": True, "candidates": inner})


def metrics_digest(metrics: Iterable[Metrics], stage: int) -> str:
    """Hash those records of `metrics.jsonl` that belong to a stage."""
    return lines_digest(one.model_dump(mode="json") for one in metrics if one.stage == stage)


def boards_digest(boards: InstanceSet) -> str:
    """Hash boards in their order: symbols, optimal costs, whether each needs a wait.

    Neither the padding nor the choice among several optimal plans is part of the digest.
    """
    costs, makespans = boards.solutions.sum_of_costs, boards.solutions.makespan
    waits = boards.solutions.needs_wait
    return lines_digest(
        [boards.grid(row), int(costs[row]), int(makespans[row]), bool(waits[row])]
        for row in range(len(boards))
    )


def weights_digest(folder: Path) -> str:
    """Hash the names and the bytes of the `*.safetensors` in the folder of a policy.

    Raises:
        UserError: There are none, or one can't be read.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UserError(f"{folder}: holds no *.safetensors")
    return json_digest({file.name: file_digest(file) for file in files})
