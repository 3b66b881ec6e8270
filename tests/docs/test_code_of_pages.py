"""The Python code of documentation pages runs unchanged."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jaxlake.command_line.entry import main
from tests.commands import cli as cli
from tests.paths import ROOT


def run_code(page_name: str, extra_code: str = "", folder: Path = ROOT) -> str:
    """Run all Python code of a page in one process; return its output."""
    page = (ROOT / "docs" / page_name).read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE))
    process = subprocess.run(
        [sys.executable, "-c", code + extra_code],
        cwd=folder,
        env={**os.environ, "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_tutorial_engineer_raises_the_valid_rate():
    output = run_code("tutorials/your_engineer.md")
    rates = re.findall(r"\{'1': ([\d.]+), '2': [\d.]+, '3': [\d.]+\}", output)
    assert len(rates) == 7
    assert float(rates[-1]) > float(rates[0])


def test_tutorial_engineer_can_be_configured(tmp_path, monkeypatch, capsys):
    page = (ROOT / "docs/tutorials/your_engineer.md").read_text(encoding="utf-8")
    (code, *_) = re.findall(r"^```python\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    (tmp_path / "most_failed.py").write_text(code, encoding="utf-8")
    (command,) = re.findall(r"^jaxlake (run .*)$", page, flags=re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    assert main(command.replace("configs", f"{ROOT}/configs").split()) == 0
    assert "most_failed:MostFailed" in capsys.readouterr().out


def test_plug_in_page_runs_and_quotes_its_examples():
    page = (ROOT / "docs/how_to/plug_in.md").read_text(encoding="utf-8")
    code, *blocks = re.findall(r"^```python\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert process.stdout.count("accepted used as written") == 4, process.stderr
    assert "  sums.digits: 0.0 -> 0.1" in process.stdout
    examples = [
        path.read_text(encoding="utf-8")
        for path in (ROOT / "examples/plug_in").iterdir()
        if path.suffix == ".py"
    ]
    for block in blocks:
        assert any(block in example for example in examples), block


@pytest.mark.slow
def test_first_sweep_ends_with_a_heat_map(tmp_path, monkeypatch, cli):
    page = (ROOT / "docs/tutorials/first_sweep.md").read_text(encoding="utf-8")
    (spec,) = re.findall(r"^```yaml\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    (tmp_path / "sweep.yaml").write_text(spec, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^jaxlake (sweep .*)$", page, flags=re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        assert cli(*command.split()).status == 0
    assert (tmp_path / "sweep.png").stat().st_size > 10_000
    output = run_code("tutorials/first_sweep.md", folder=tmp_path)
    assert re.search(r"^policy +random +shortest_path$", output, flags=re.MULTILINE)
    *_, valid, steps = output.splitlines()
    assert valid == "True"
    assert 1 <= float(steps) < 16
    assert (tmp_path / "small_sweep.png").stat().st_size > 10_000


@pytest.mark.slow
def test_train_ppo_page_code_runs():
    check_code = "\nassert states.positions.shape == (1024, 2, 2)\n"
    output = run_code("tutorials/train_ppo.md", check_code)
    assert output.endswith("False False\n")  # one wait ends no episode


@pytest.mark.slow
def test_environment_page_code_runs():
    run_code("environment.md", "\nassert lake.num_actions == 25\n")
