"""Where a run keeps compiled programs, and who finds them again."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from training.run import compiled_programs

_RUN = """
import sys
from pathlib import Path
from jaxlake.command_line.compilation_cache import keep_compiled_programs
keep_compiled_programs()
import jax
from training.run.compiled_programs import programs_kept
missed = []
jax.monitoring.register_event_listener(
    lambda name, **_: missed.append(name) if name.endswith("/cache_misses") else None
)
before = jax.config.jax_compilation_cache_dir
with programs_kept(Path(sys.argv[1])):
    jax.jit(lambda x: x * 2 + 3)(1.0)
assert jax.config.jax_compilation_cache_dir == before
print(len(missed))
"""


def misses(folder: Path, **setting: str) -> int:
    """How many programs a process compiled that kept them in a run's folder."""
    removed = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE")
    environment = {name: value for name, value in os.environ.items() if name not in removed}
    environment |= setting | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    command = [sys.executable, "-c", _RUN, str(folder)]
    done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    return int(done.stdout)


def programs(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*-cache")}


def test_a_run_keeps_its_programs_and_other_runs_and_a_moved_one_find_them(tmp_path):
    user, cache = tmp_path / "user", {"XDG_CACHE_HOME": str(tmp_path / "user")}
    assert misses(tmp_path / "first", **cache) > 0
    assert programs(tmp_path / "first") == programs(user) != set()
    assert misses(tmp_path / "second", **cache) == 0
    assert programs(tmp_path / "second") == programs(user)
    (tmp_path / "first").rename(tmp_path / "moved")
    shutil.rmtree(user)
    assert misses(tmp_path / "moved", **cache) == 0
    assert programs(user)  # for the next run


def test_a_cut_file_is_compiled_anew_and_replaced_in_both_places(tmp_path):
    user, cache = tmp_path / "user", {"XDG_CACHE_HOME": str(tmp_path / "user")}
    compiled = misses(tmp_path / "run", **cache)
    whole = {path.name: path.read_bytes() for path in user.rglob("*-cache")}
    for folder in (user, tmp_path / "run"):
        for path in folder.rglob("*-cache"):
            path.write_bytes(path.read_bytes()[:10])  # both, where they are one file
            os.utime(path, (1e9, 1e9))
    assert misses(tmp_path / "run", **cache) == compiled
    for folder in (user, tmp_path / "run"):
        found = {path.name: len(path.read_bytes()) > 10 for path in folder.rglob("*-cache")}
        assert found == dict.fromkeys(whole, True)
    assert misses(tmp_path / "run", **cache) == misses(tmp_path / "other", **cache) == 0


def test_programs_stay_in_a_folder_that_the_user_named(tmp_path):
    named = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "named")}
    assert misses(tmp_path / "run", **named) > 0
    assert programs(tmp_path / "named")
    assert not (tmp_path / "run").exists()


def test_a_run_goes_on_where_its_folder_cant_be_written(tmp_path):
    (tmp_path / "run").touch()
    assert misses(tmp_path / "run", XDG_CACHE_HOME=str(tmp_path / "user")) > 0


@pytest.mark.parametrize("links", [True, False])
def test_what_is_newest_is_brought_within_the_limit(links, tmp_path, monkeypatch):
    source, target = tmp_path / "source", tmp_path / "target"
    for folder in (source, target):
        folder.mkdir()
    for age, name in enumerate(("new", "old", "older")):
        (source / name).write_bytes(name.encode() * 10)
        os.utime(source / name, (1e9 - age, 1e9 - age))

    def no_links(*_: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    if not links:
        monkeypatch.setattr(os, "link", no_links)
    compiled_programs._bring(source, target, most_bytes=60, before=1e9 - 1)
    found = {path.name: path.read_bytes() for path in target.iterdir()}
    expected = {"new": b"new" * 10, "old": b"old" * 10}
    if not links:  # the newest may not be whole
        del expected["new"]
    assert found == expected
    assert {path.stat().st_nlink for path in target.iterdir()} == ({2} if links else {1})
