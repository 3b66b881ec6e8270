"""What the README shows runs as it stands there."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from training.cli import main

README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_notebook_lines_run_with_fewer_boards(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MPLBACKEND", "agg")
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    small = code.replace("1_000_000", "1_000").replace("256", "16")
    assert small.count("1_000") == 1
    assert small.count(" 16,") == 1
    names: dict[str, Any] = {}
    exec(compile(small, "README.md", "exec"), names)
    assert capsys.readouterr().out.startswith("1000 boards")
    assert names["counts"].shape == (64, 7)
    assert names["counts"].sum() == names["made"].filled.sum() > 500
    assert (names["counts"][:, 0] > 0).any()
    (axes, bar) = names["plt"].gcf().axes
    assert axes.images[0].get_array().shape == (8, 8)
    assert "shortest path" in bar.get_ylabel()
    names["plt"].close()


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
