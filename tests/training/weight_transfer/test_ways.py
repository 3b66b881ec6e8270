"""Which way weights take to vLLM, and what is said where one can't be had. No engine is started."""

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from pydantic import ValidationError

from tests.paths import ROOT
from training.errors import UserError
from training.sampling import engines
from training.sampling.sampler import SyncError
from training.sampling.vllm_sampler import _errors_of
from training.schema import Sampling
from training.weight_transfer import shared_memory, ways
from training.weight_transfer.ways import choose_way


@pytest.fixture(autouse=True)
def no_setting_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_ENABLE_V1_MULTIPROCESSING", raising=False)


@pytest.mark.parametrize(
    ("platform", "settings", "way"),
    [
        ("cpu", {}, "in_process"),
        ("cpu", {"tensor_parallel_size": 2}, "shared_memory"),
        ("cpu", {"weight_transfer": "shared_memory"}, "shared_memory"),
        ("gpu", {}, "in_process"),
        ("gpu", {"tensor_parallel_size": 2}, "cuda_ipc"),
        ("gpu", {"weight_transfer": "cuda_ipc"}, "cuda_ipc"),
        ("gpu", {"tensor_parallel_size": 2, "devices": (0, 5)}, "cuda_ipc"),
        ("gpu", {"tensor_parallel_size": 2, "devices": (4, 5)}, "nccl"),
        ("gpu", {"tensor_parallel_size": 1, "devices": (4,), "weight_transfer": "nccl"}, "nccl"),
    ],
)
def test_the_way_follows_from_where_trainer_and_workers_are(
    platform: str, settings: Any, way: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    trainer = jax.devices()[:1]
    assert trainer[0].local_hardware_id == 0
    assert choose_way(Sampling(**settings), trainer) == way


@pytest.mark.parametrize(
    ("platform", "settings", "error"),
    [
        ("cpu", {"weight_transfer": "cuda_ipc"}, "got cuda_ipc, but where JAX runs on cpu allowed"),
        ("cpu", {"weight_transfer": "nccl", "devices": (1,)}, "got nccl, but where JAX runs on cp"),
        ("gpu", {"weight_transfer": "nccl", "devices": (0,)}, "NCCL takes each once: name others"),
    ],
)
def test_a_way_that_is_not_there_is_refused(
    platform: str, settings: Any, error: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    with pytest.raises(UserError, match=rf"^sampling\.weight_transfer: .*{error}"):
        choose_way(Sampling(**settings), jax.devices()[:1])


@pytest.mark.parametrize(
    ("settings", "taken"),
    [
        ({"tensor_parallel_size": 2}, [0, 1]),
        ({"engine": "servers", "servers": {"count": 3}}, [0, 1, 2]),
        ({}, None),  # the GPU that the process trains on
        ({"tensor_parallel_size": 2, "devices": (4, 5)}, None),
        ({"engine": "servers", "servers": {"addresses": ["http://elsewhere:8000"]}}, None),
        ({"engine": "jax"}, None),
    ],
)
def test_of_several_processes_none_starts_vllm_on_gpus_that_another_may_train_on(
    settings: Any, taken: list[int] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    policy: Any = None  # it is not asked for anything
    params = {"kernel": jnp.zeros(1)}
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    engines._require_own_accelerators(Sampling(**settings), params)  # a process that is alone
    monkeypatch.setattr(engines, "alone", lambda: False)
    if taken is None:
        engines._require_own_accelerators(Sampling(**settings), params)
        return
    with pytest.raises(UserError, match=r"^sampling\.devices: got null") as refused:
        engines.start_sampler(policy, params, Sampling(**settings), tmp_path)
    expected = f"vLLM takes GPUs {taken}, but process 0 trains on [0]; allowed are"
    assert expected in str(refused.value)


def test_a_worker_that_the_user_put_into_another_process_is_reached_there(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    assert choose_way(Sampling(), jax.devices()[:1]) == "shared_memory"
    with pytest.raises(UserError, match="VLLM_ENABLE_V1_MULTIPROCESSING=1 puts"):
        choose_way(Sampling(weight_transfer="in_process"), jax.devices()[:1])


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"tensor_parallel_size": 2, "weight_transfer": "in_process"}, "got in_process, but tens"),
        ({"tensor_parallel_size": 2, "devices": (3,)}, r"devices: got \[3\], allowed are as many"),
        ({"tensor_parallel_size": 2, "devices": (3, 3)}, r"devices: got \[3, 3\]"),
        ({"weight_transfer": "nccl"}, "needs GPUs that the trainer has not"),
        ({"engine": "jax", "weight_transfer": "shared_memory"}, "allowed are auto and null"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: Any, error: str):
    with pytest.raises(ValidationError, match=error):
        Sampling(**settings)


def test_what_an_installed_vllm_lacks_is_named(monkeypatch: pytest.MonkeyPatch):
    needed = {
        "in_process": [("json", "JSONDecoder.decode", ("s",))],
        "shared_memory": [("json", "dumps", ("obj", "weight_version")), ("json", "transfer", ())],
        "nccl": [("json.nccl_engine", "Info", ())],
    }
    monkeypatch.setattr(ways, "_NEEDED", needed)
    ways.require_weight_transfer("in_process")
    with pytest.raises(
        UserError,
        match=r"^sampling\.weight_transfer: nccl needs vLLM as of 0\.32, .* has no parameter "
        r"weight_version of json\.dumps, no json\.transfer, no json\.nccl_engine\.Info$",
    ):
        ways.require_weight_transfer("nccl")


def test_what_happens_in_a_worker_of_vllms_ends_a_run_with_a_clear_line():
    """A worker that died, or refused, reaches this process as an exception of any kind."""
    for error in (Exception("Call to update_weights method failed: no\nroom"), RuntimeError()):
        told = r"could not take the weights \(\w+: (Call|no message)"
        with pytest.raises(SyncError, match=told), _errors_of("take the weights", SyncError):
            raise error
    with pytest.raises(UserError, match="its own"), _errors_of("answer"):
        raise UserError("its own")


def test_a_bucket_goes_to_the_folder_for_temporary_files_where_memory_has_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shared_memory, "_SHARED_MEMORY", str(tmp_path / "missing"))
    monkeypatch.setattr(shared_memory.tempfile, "gettempdir", lambda: str(tmp_path))
    file = shared_memory._written([jnp.arange(3.0).__array__()])
    assert file.parent == tmp_path
    assert file.stat().st_size == 12


def test_a_bucket_that_fits_nowhere_is_a_clear_error_and_leaves_no_file(tmp_path: Path):
    code = """
import resource, sys, numpy as np
from training.weight_transfer import shared_memory
shared_memory._SHARED_MEMORY = sys.argv[1]
shared_memory.tempfile.tempdir = sys.argv[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    shared_memory._written([np.zeros(1000)])
except shared_memory.SyncError as error:
    print(error)
"""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        check=True,
        timeout=120,
    )
    assert "8,000 bytes are to be written to a file, which fails in" in ended.stdout
    assert list(tmp_path.iterdir()) == []
