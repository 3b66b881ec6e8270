"""`jaxlake sweep`: sweeps from the command line."""

import signal
import subprocess
import sys

import pytest

from jaxlake.sweeps import read
from tests.jaxlake.sweeps import small_sweep

SPEC = """\
grid:
  size: [3, 4]
  hole_ratio: {from: 0, to: 0.2, count: 3}
policies: [random, shortest_path]
boards: 4
chunk: 4
"""


@pytest.fixture
def spec_file(tmp_path):
    path = tmp_path / "sweep.yaml"
    path.write_text(SPEC)
    return path


@pytest.fixture(autouse=True)
def _use_counting_program(monkeypatch):
    monkeypatch.setattr("jaxlake.use_all_cores", lambda: 1)
    monkeypatch.setattr("jaxlake.sweeps.driver.chunk_program", small_sweep.make_counting_program)


def test_sweep_runs_and_resumes(spec_file, cli, tmp_path):
    sweep_folder = tmp_path / "out"
    result = cli("sweep", spec_file, "--out", sweep_folder, "--part", "1/2")
    assert (result.status, result.out) == (0, f"{sweep_folder}: part 1/2 is done\n")
    result = cli("sweep", "run", "--out", sweep_folder, spec_file)
    assert (result.status, result.out) == (0, f"{sweep_folder}: 12 rows\n")
    assert result.err.splitlines()[0] == "jaxlake: 1 of 2 chunks"
    assert result.err.splitlines()[-1].startswith("jaxlake: 2 of 2 chunks")
    assert len(read(sweep_folder)["policy"]) == 12


def test_dry_run_prints_the_size_and_writes_nothing(spec_file, cli, tmp_path):
    changes = ["--set", "grid.hole_ratio.count=1000", "boards=256"]
    result = cli("sweep", spec_file, "--dry-run", *changes, "--part", "0/2")
    assert result.status == 0
    entries = dict(line.split("  ", 1) for line in result.out.splitlines())
    values = {name: value.strip() for name, value in entries.items()}
    assert values["configurations"] == "2,000"
    assert values["rows"] == "4,000"
    assert values["boards"] == "512,000"
    assert values["chunks (part 0/2)"] == "250 of 4 configurations"
    assert {"on disk (part 0/2)", "memory", "expected time (part 0/2)"} <= set(values)
    assert list(tmp_path.iterdir()) == [spec_file]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--out must be a folder"),
        (["--out", "{spec}"], "--out must be a new or existing folder, got {spec}, a file"),
        (["--out", "x", "--set", "boards=0"], "{spec}: boards must be a whole number"),
        (["--out", "x", "--set", "polices=[a]"], "did you mean policies?"),
        (["--out", "x", "--part", "2/2"], "--part: must be I/N with I from 0 to N - 1, got 2/2"),
        (["--out", "gs:/x"], "must be a string with two slashes"),
    ],
)
def test_sweep_names_invalid_input(words, message, spec_file, cli):
    result = cli("sweep", spec_file, *(word.format(spec=spec_file) for word in words))
    assert result.status == 2
    assert message.format(spec=spec_file) in result.err


def test_missing_pyarrow_is_named_with_the_extra(spec_file, cli, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = cli("sweep", spec_file, "--out", tmp_path / "out")
    assert result.status == 2
    assert "jaxlake[sweeps]" in result.err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_terminated_sweep_ends_with_143_and_resumes(spec_file, tmp_path):
    command = [sys.executable, "-m", "jaxlake", "sweep", spec_file, "--out", tmp_path / "out"]
    command += ["--set", "max_candidates=2048", "horizon=16", "max_steps=16"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline() == "jaxlake: 0 of 2 chunks\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 143
    result = subprocess.run(command, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, f"{tmp_path / 'out'}: 12 rows\n")
    assert not list((tmp_path / "out").rglob("*.tmp"))
