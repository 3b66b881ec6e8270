"""Fixtures that run the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from jaxlake.command_line.entry import main


class CommandResult(NamedTuple):
    """Exit status and output of one call of `jaxlake`."""

    status: int
    out: str
    err: str

    @property
    def records(self) -> list[dict[str, Any]]:
        """The JSON lines on standard output."""
        return [json.loads(line, parse_constant=pytest.fail) for line in self.out.splitlines()]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., CommandResult]:
    """Return a function that calls `jaxlake` and returns its status and output."""

    def run_command(*arguments: object) -> CommandResult:
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as error:
            status = int(error.code or 0)
        return CommandResult(status, *capsys.readouterr())

    return run_command


@pytest.fixture
def write_lines(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes records or raw bytes as a file of JSON lines."""

    def write_lines(*lines: dict[str, Any] | bytes) -> Path:
        path = tmp_path / "lines.jsonl"
        rows = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
        path.write_bytes(b"".join(line + b"\n" for line in rows))
        return path

    return write_lines
