"""The README's code and commands run, and everything it mentions exists.

Commands that install packages or take minutes are not run; their targets, extras and folders are
checked.
"""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from jaxlake.command_line.entry import main
from tests.paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
CODE_BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)


def find_block(beginning: str) -> str:
    """Return the block of code that begins like this; there is exactly one."""
    (block,) = [code for _, code in CODE_BLOCKS if code.startswith(beginning)]
    return block


@pytest.mark.slow
def test_readme_python_blocks_run(tmp_path: Path):
    code = find_block("import jax")
    for count, smaller_count in (("1_000_000", "1_000"), ("256", "16")):
        assert code.count(count) == 1
        code = code.replace(count, smaller_count)
    checks = """
rows = sweeps.read("sweep")
assert len(rows["valid"]) == 128
assert rows["boards"].max() == 16
assert rows["valid"].sum() > 0
"""
    # A separate process is needed to create other devices.
    process = subprocess.run(
        [sys.executable, "-c", code + checks], cwd=tmp_path, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith("1000 boards")
    assert (tmp_path / "sweep.png").stat().st_size > 10_000


def test_readme_solve_example_prints_shown_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    ((board, expected),) = re.findall(r"echo '(\{.*?\})' \| \S+jaxlake solve -\n(\{.*\})", README)
    path = tmp_path / "board.jsonl"
    path.write_text(board + "\n")
    assert main(["solve", str(path)]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(expected)


def test_readme_first_commands_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(ROOT)
    targets = re.findall(r"^make (\w+) ", find_block("make "), flags=re.MULTILINE)
    assert targets == ["demo", "test"]
    dry_runs = {
        target: subprocess.run(
            ["make", "--dry-run", target], capture_output=True, text=True, check=True
        ).stdout
        for target in targets
    }
    assert "-m pytest" in dry_runs["test"]
    assert '-m "not slow and not nightly"' in dry_runs["test"]
    (run_arguments,) = re.findall(r"^\S+/jaxlake (run .*)$", dry_runs["demo"], flags=re.MULTILINE)
    assert main([*run_arguments.split(), "--run-dir", str(tmp_path / "run"), "--dry-run"]) == 0
    assert "stage 3: design" in capsys.readouterr().out


def test_readme_commands_exist():
    results_section = README.partition("## Results")[2].partition("\n## ")[0]
    commands = re.findall(r"`((?:python -m|make) [^\s`]+)", results_section)
    assert len(commands) == 4
    for command in commands:
        program, name = command.split()[0], command.split()[-1]
        if program == "python":
            assert importlib.util.find_spec(name), command
    for path in re.findall(r"configs/\w+\.yaml", README):
        assert (ROOT / path).exists()


def test_readme_citation_matches_the_citation_file():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    bibtex = find_block("@software").replace("{", "").replace("}", "")
    assert citation["title"] in bibtex
    assert f"Version {citation['version']}" in bibtex
    assert citation["authors"] == [{"name": "The jaxlake developers"}]
    (paper,) = citation["references"]
    assert paper["title"] in " ".join(README.split())
    version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version[1] == citation["version"]
