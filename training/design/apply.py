"""Any text through the engineer's review, line by line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from engineer import Guard, LakeConfiguration, review
from engineer.attempt import writable
from training.config import RunConfig, read_yaml, shown
from training.errors import UserError

MAX_CHARACTERS = 1_000_000
"""Longest answer that is reviewed; a line beyond it is an error."""


def read_configuration(path: Path, config: RunConfig) -> LakeConfiguration:
    """A configuration in the layout of `configuration.yaml` or `.json`, within the run's bounds.

    Raises:
        UserError: the file can't be read, is no configuration, or leaves the bounds.
    """
    try:
        configuration = LakeConfiguration.model_validate(read_yaml(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(
            f"{path}: {where + ': ' if where else ''}{first['msg']}, got {shown(first['input'])}"
        ) from error
    if violation := config.environment.bounds.violation(configuration):
        raise UserError(f"{path}: {violation}")
    return configuration


def apply_lines(
    lines: Iterable[str], config: RunConfig, current: LakeConfiguration
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Review answers: `{"id", "answer"}` in, `{"id", "decision", ...}` out.

    Args:
        lines: JSON, one record each; blank lines are passed over. Bytes that are no UTF-8 stand in
            them as `surrogateescape` decodes them.
        config: gives the bounds, the number of agents and the largest step.
        current: the configuration in force, which is kept where an answer is not used.

    Returns:
        (line number, record) pairs in order. A record that can't be read has `id` and `error`.
    """
    guard = Guard(max_step=config.engineer.max_step)
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        known: dict[str, Any] = {"id": None}
        try:
            record = _load(line)
            known["id"] = _id(record)
            answer = _answer(record)
        except ValueError as error:
            yield number, {**known, "error": str(error)}
            continue
        decision = review(answer, current, config.domain, guard)
        configuration = decision.configuration or current
        yield (
            number,
            {
                **known,
                "decision": "kept" if decision.configuration is None else decision.kind,
                "repairs": [repair.model_dump(mode="json") for repair in decision.repairs],
                "reason": writable(decision.reason),
                "configuration": configuration.model_dump(mode="json"),
            },
        )


def _load(line: str) -> dict[str, Any]:
    try:
        line.encode()
    except UnicodeEncodeError as error:
        byte = ord(line[error.start]) & 0xFF
        raise ValueError(f"not UTF-8: byte 0x{byte:02x}") from None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from None
    if not isinstance(record, dict):
        raise ValueError(f"got {type(record).__name__}, an object with id and answer is needed")
    return record


def _id(record: dict[str, Any]) -> Any:
    """The id, if what is answered can be JSON with it."""
    try:
        json.dumps(record.get("id"), allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"id: can't be written as JSON: {error}") from None
    return record.get("id")


def _answer(record: dict[str, Any]) -> str:
    if "answer" not in record:
        raise ValueError("answer: missing, a text is needed")
    answer = record["answer"]
    if not isinstance(answer, str):
        raise ValueError(f"answer: got {type(answer).__name__}, a text is needed")
    if len(answer) > MAX_CHARACTERS:
        raise ValueError(f"answer: got {len(answer)} characters, {MAX_CHARACTERS} are allowed")
    return answer
