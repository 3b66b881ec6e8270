"""Fixtures that run the command line, for tests of both kinds of commands."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from jaxlake.command_line.entry import main


class Result(NamedTuple):
    """What one call of `jaxlake` left."""

    status: int
    out: str
    err: str

    @property
    def records(self) -> list[dict[str, Any]]:
        """The JSON lines on standard output."""
        return [json.loads(line, parse_constant=pytest.fail) for line in self.out.splitlines()]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Call `jaxlake` with arguments of any type; the status of wrong arguments is returned too."""

    def call(*arguments: object) -> Result:
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as end:
            status = int(end.code or 0)
        return Result(status, *capsys.readouterr())

    return call


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write records, or raw bytes, as a file of JSON lines."""

    def write(*lines: dict[str, Any] | bytes) -> Path:
        path = tmp_path / "lines.jsonl"
        raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
        path.write_bytes(b"".join(line + b"\n" for line in raw))
        return path

    return write
