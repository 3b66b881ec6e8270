"""Where the command line keeps compiled programs."""

import os
import subprocess
import sys

import pytest

from jaxlake.command_line.compilation_cache import compilation_cache_folder


def test_the_folder_stands_in_the_users_cache(tmp_path, monkeypatch):
    folder = compilation_cache_folder({"XDG_CACHE_HOME": str(tmp_path)})
    assert folder.parent == tmp_path / "jaxlake" / "xla"
    assert folder.is_dir()
    monkeypatch.setenv("HOME", str(tmp_path))
    for environment in ({}, {"XDG_CACHE_HOME": "relative"}):
        assert compilation_cache_folder(environment).is_relative_to(tmp_path / ".cache")


@pytest.mark.parametrize(
    "setting",
    [{"JAX_COMPILATION_CACHE_DIR": "/elsewhere"}, {"JAX_ENABLE_COMPILATION_CACHE": "False"}],
)
def test_the_variables_of_jax_win(setting, tmp_path):
    assert compilation_cache_folder({"XDG_CACHE_HOME": str(tmp_path), **setting}) is None
    assert list(tmp_path.iterdir()) == []


def _cli_environment(cache):
    others = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    return {**others, "XDG_CACHE_HOME": str(cache)}


def _one_board(folder):
    path = folder / "boards.jsonl"
    path.write_text('{"id": 1, "grid": ["S F G", "s H F", "g F F"]}')
    return path


def _solve(environment, lines):
    command = [sys.executable, "-m", "jaxlake", "solve", str(lines)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.slow
def test_a_second_process_keeps_nothing_new_and_answers_the_same(tmp_path):
    lines = _one_board(tmp_path)
    environment = _cli_environment(tmp_path / "cache")
    first = _solve(environment, lines)
    kept = sorted((tmp_path / "cache").rglob("*-cache"))
    assert kept
    assert _solve(environment, lines) == first
    assert sorted((tmp_path / "cache").rglob("*-cache")) == kept
