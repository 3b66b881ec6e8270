"""Placement of engines and their startup errors, without starting one."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from training.errors import UserError
from training.sampling import engines
from training.sampling.vllm_sampler import _convert_errors, is_in_process
from training.schema import SamplingConfig
from training.weight_transfer.checksums import SyncError


@pytest.mark.parametrize(
    ("num_workers", "environment", "in_process"), [(1, "0", True), (1, "1", False), (2, "0", False)]
)
def test_single_worker_runs_in_process_by_default(
    num_workers: int, environment: str, in_process: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", environment)
    assert is_in_process(SamplingConfig(tensor_parallel_size=num_workers)) == in_process


@pytest.mark.parametrize(
    ("settings", "used_gpus"),
    [
        ({"tensor_parallel_size": 2}, [0, 1]),
        ({}, None),  # the GPU that the process trains on
        ({"tensor_parallel_size": 2, "devices": (4, 5)}, None),
        ({"engine": "jax"}, None),
    ],
)
def test_vllm_rejects_gpus_of_other_trainers(
    settings: Any, used_gpus: list[int] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    policy: Any = None  # it is not asked for anything
    params = {"kernel": jnp.zeros(1)}
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    engines._require_own_accelerators(SamplingConfig(**settings), params)  # a process that is alone
    monkeypatch.setattr(engines, "is_single_process", lambda: False)
    if used_gpus is None:
        engines._require_own_accelerators(SamplingConfig(**settings), params)
        return
    with pytest.raises(UserError, match=r"^sampling\.devices: got null") as error_info:
        engines.start_sampler(policy, params, SamplingConfig(**settings), tmp_path)
    expected = f"vLLM would use GPUs {used_gpus}, but process 0 trains on [0]; give"
    assert expected in str(error_info.value)


def test_worker_exception_becomes_a_sync_error():
    for error in (Exception("Call to update_weights method failed: no\nroom"), RuntimeError()):
        message = r"could not take the weights: \w+: (Call|no message)"
        with (
            pytest.raises(SyncError, match=message),
            _convert_errors("take the weights", SyncError),
        ):
            raise error
    with pytest.raises(UserError, match="its own"), _convert_errors("answer"):
        raise UserError("its own")
