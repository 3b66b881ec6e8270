"""The compilation cache of the command line."""

import os
import subprocess
import sys

import pytest


def _cli_environment(cache_folder):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    return {**environment, "XDG_CACHE_HOME": str(cache_folder)}


def _write_board(folder):
    boards_file = folder / "boards.jsonl"
    boards_file.write_text('{"id": 1, "grid": ["S F G", "s H F", "g F F"]}')
    return boards_file


def _solve(environment, boards_file):
    command = [sys.executable, "-m", "jaxlake", "solve", str(boards_file)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert process.stderr == ""
    return process.stdout


@pytest.mark.slow
def test_second_process_reuses_the_compilation_cache(tmp_path):
    boards_file = _write_board(tmp_path)
    environment = _cli_environment(tmp_path / "cache")
    output = _solve(environment, boards_file)
    cache_files = sorted((tmp_path / "cache").rglob("*-cache"))
    assert cache_files
    assert _solve(environment, boards_file) == output
    assert sorted((tmp_path / "cache").rglob("*-cache")) == cache_files
