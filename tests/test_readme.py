"""What the README shows runs as it stands there."""

import json
import re
from pathlib import Path

import pytest

from training.cli import main

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_notebook_lines_run_and_end_with_what_they_say(capsys: pytest.CaptureFixture[str]):
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].startswith("1000 boards")
    assert float(lines[-1]) == 1.0


def test_the_solve_example_answers_as_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    ((board, shown),) = re.findall(r"echo '(\{.*?\})' \| \S+jaxlake solve -\n(\{.*\})", README)
    path = tmp_path / "board.jsonl"
    path.write_text(board + "\n")
    assert main(["solve", str(path)]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(shown)


def test_every_command_of_the_table_exists(capsys: pytest.CaptureFixture[str]):
    commands = re.findall(r"^\| `jaxlake (\w+)", README, flags=re.MULTILINE)
    assert len(commands) == 9
    for command in commands:
        with pytest.raises(SystemExit, match="0"):
            main([command, "--help"])
        assert command in capsys.readouterr().out
