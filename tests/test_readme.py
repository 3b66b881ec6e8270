"""What the README shows runs as it stands there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT
from training.cli import main

README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_notebook_lines_run_with_fewer_boards():
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    small = code.replace("1_000_000", "1_000").replace("256", "16")
    assert small.count("1_000") == 1
    assert small.count(" 16,") == 1
    checks = """
assert counts.shape == (64, 7)
assert counts.sum() == made.filled.sum() > 500
assert (counts[:, 0] > 0).any()
(axes, bar) = plt.gcf().axes
assert axes.images[0].get_array().shape == (8, 8)
assert "shortest path" in bar.get_ylabel()
"""
    # In a process of its own, because its devices are made anew.
    done = subprocess.run(
        [sys.executable, "-c", small + checks],
        env={**os.environ, "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1000 boards")


def test_the_solve_example_answers_as_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    ((board, shown),) = re.findall(r"echo '(\{.*?\})' \| \S+jaxlake solve -\n(\{.*\})", README)
    path = tmp_path / "board.jsonl"
    path.write_text(board + "\n")
    assert main(["solve", str(path)]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(shown)


def test_every_command_of_the_table_exists(capsys: pytest.CaptureFixture[str]):
    commands = re.findall(r"^\| `jaxlake (\w+)", README, flags=re.MULTILINE)
    assert len(commands) == 12
    for command in commands:
        with pytest.raises(SystemExit, match="0"):
            main([command, "--help"])
        assert command in capsys.readouterr().out
