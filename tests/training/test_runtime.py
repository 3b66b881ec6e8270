"""What libraries read from the environment."""

import os

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
