"""A resumed run finds the records of all updates up to its checkpoint."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.training.update_records import make_update
from training.errors import UserError
from training.phases.train import _read_logged_updates
from training.run.directory import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> Any:
    directory = RunDirectory(tmp_path)
    directory.metrics.write([make_update(1, number) for number in (1, 2, 3)])
    directory.metrics.append(make_update(2, 1))
    return SimpleNamespace(directory=directory)


def test_logged_updates_reads_the_stage(run: Any):
    assert [record.update for record in _read_logged_updates(run, 1, 3)] == [1, 2, 3]
    assert [record.update for record in _read_logged_updates(run, 2, 1)] == [1]
    assert _read_logged_updates(run, 2, 0) == []


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda lines: [lines[0], lines[1][:-9], *lines[2:]], r"lacks updates \[2\]"),
        (lambda lines: [lines[0], "\x00" * 20, *lines[2:]], r"lacks updates \[2\]"),
        (lambda lines: lines[3:], r"lacks updates \[1, 2, 3\]"),
        (lambda lines: [*lines[:3], *lines[2:]], r"has updates \[1, 2, 3, 3\]"),
    ],
)
def test_damaged_line_is_reported(damage: Any, problem: str, run: Any):
    metrics_file = run.directory.metrics.path
    metrics_file.write_text("\n".join(damage(metrics_file.read_text().splitlines())) + "\n")
    with pytest.raises(UserError, match=rf"metrics\.jsonl: {problem} of stage 1, but the check"):
        _read_logged_updates(run, 1, 3)
