"""The compilation cache of the command line."""

import os
import subprocess
import sys

import pytest


def _cli_environment(cache):
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    return {**inherited, "XDG_CACHE_HOME": str(cache)}


def _write_board(folder):
    path = folder / "boards.jsonl"
    path.write_text('{"id": 1, "grid": ["S F G", "s H F", "g F F"]}')
    return path


def _solve(environment, lines):
    command = [sys.executable, "-m", "jaxlake", "solve", str(lines)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert process.stderr == ""
    return process.stdout


@pytest.mark.slow
def test_second_process_reuses_the_compilation_cache(tmp_path):
    lines = _write_board(tmp_path)
    environment = _cli_environment(tmp_path / "cache")
    first = _solve(environment, lines)
    cached = sorted((tmp_path / "cache").rglob("*-cache"))
    assert cached
    assert _solve(environment, lines) == first
    assert sorted((tmp_path / "cache").rglob("*-cache")) == cached
