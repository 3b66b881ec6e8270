"""What libraries read from the environment, and where runs of several processes keep programs."""

import os
import subprocess
import sys

import pytest

from training.rollout import server_process
from training.rollout.vllm_sampler import prepare_environment
from training.schema import Sampling


def test_vllm_spawns_its_workers_whichever_command_starts_it(monkeypatch):
    """A fork after JAX has initialised CUDA can't use it; `evaluate` and servers come by here."""
    monkeypatch.delenv("VLLM_WORKER_MULTIPROC_METHOD", raising=False)
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "3")
    prepare_environment(Sampling())
    assert os.environ["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"
    assert os.environ["VLLM_CPU_KVCACHE_SPACE"] == "3"
    assert prepare_environment.__module__ == server_process.prepare_environment.__module__


_COMPILE = """
import sys
from pathlib import Path
from jaxlake.command_line.compilation_cache import keep_compiled_programs
from training import runtime
keep_compiled_programs()
import jax
jax.jit(lambda x: x + 1)(1.0)
runtime.share_compiled_programs(Path(sys.argv[1]))
jax.jit(lambda x: x * 2 + 3)(1.0)
"""


@pytest.mark.parametrize("named", [False, True])
def test_processes_of_a_run_keep_programs_in_its_directory_unless_the_user_named_one(
    named, tmp_path
):
    user, run = tmp_path / "user", tmp_path / "run"
    setting = {"JAX_COMPILATION_CACHE_DIR": str(user)} if named else {"XDG_CACHE_HOME": str(user)}
    removed = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE")
    environment = {name: value for name, value in os.environ.items() if name not in removed}
    environment |= setting | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    command = [sys.executable, "-c", _COMPILE, str(run)]
    subprocess.run(command, check=True, env=environment)
    before = {path.name for path in user.rglob("*-cache")}
    after = {path.name for path in run.rglob("*-cache")}
    assert before  # what was compiled before
    assert bool(after) is not named
    assert not before & after
