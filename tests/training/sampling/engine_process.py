"""A vLLM engine in a separate process: `TASK FOLDER ...`, with an empty folder.

`sync FOLDER FSDP WORKERS` hands over weights that are split over so many devices to an engine
that is split over so many workers. `kill FOLDER` kills the engine's process while it answers.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytest

from tests.training.sampling.untrained import open_untrained_policy
from training.errors import UserError
from training.policy.policy import Policy
from training.sampling.engine_watch import engine_processes
from training.sampling.sampler import SamplingRequest, check_agreement
from training.sampling.vllm_sampler import VllmSampler
from training.schema import SamplingConfig
from training.weight_transfer import transport
from training.weight_transfer.checksums import SyncError, add_checksums

SEQUENCES = [[5, 30, 31, 90, 120, 7, 8] * times for times in (1, 2, 3, 4)]


def start_engine(folder: Path, *, fsdp: int, num_workers: int) -> tuple[Policy, Any, VllmSampler]:
    """Start an engine on an untrained policy."""
    policy, params = open_untrained_policy(folder, f"model.mesh.fsdp={fsdp}")
    policy.export(params, folder / "engine", untied=True)
    assert all(len(leaf.sharding.device_set) == fsdp for leaf in jax.tree.leaves(params))
    settings = SamplingConfig(max_model_len=512, max_num_seqs=8, tensor_parallel_size=num_workers)
    return policy, params, VllmSampler(folder / "engine", settings)


def corrupt_norm(tensors: Any, dtype: Any, checksums: dict[str, Any]) -> Any:
    """Move one number of the last norm by an ulp after its checksum is taken."""
    for name, array in add_checksums(tensors, dtype, checksums):
        values = np.array(array)
        if name == "model.norm.weight":
            values[0] = np.nextafter(values[0], np.inf)
        yield name, jnp.asarray(values)


def sync_split_weights(folder: Path, fsdp: int, num_workers: int) -> None:
    """Sync weights that are overwritten in place, and see that an ulp on the way is noticed."""
    policy, params, sampler = start_engine(folder, fsdp=fsdp, num_workers=num_workers)
    assert (sampler._transfer_folder is None) == (num_workers == 1)
    scaled_params = jax.tree.map(lambda leaf: 1.5 * leaf, params)
    expected = policy.logprobs(scaled_params, SEQUENCES)
    with pytest.raises(SyncError, match="the engine and the trainer must differ"):
        check_agreement(sampler, SEQUENCES, expected, 1e-3)
    update = jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf * 1.001, tree), donate_argnums=0)
    versions = set()
    for number in range(20):
        expected = policy.logprobs(scaled_params, SEQUENCES)
        sampler.sync(policy.tensors(scaled_params))
        versions.add(sampler.weight_version)
        scaled_params = jax.block_until_ready(update(scaled_params))  # frees the old memory
        if number % 10 == 9:
            check_agreement(sampler, SEQUENCES, expected, 1e-3)
    assert len(versions) == 20

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transport, "add_checksums", corrupt_norm)
        with pytest.raises(SyncError, match="could not take the weights"):
            sampler.sync(policy.tensors(scaled_params))
    sampler.close()
    print("done")


def kill_engine(folder: Path) -> None:
    """Print the seconds until the error, its message, and the processes that are left."""
    _, _, sampler = start_engine(folder, fsdp=1, num_workers=2)
    # Not found by their title, which is cut where a process has little room for it.
    (process,) = engine_processes(sampler._engine)
    core = psutil.Process(process.pid)
    processes = [core, *core.children(recursive=True)]
    killed_at = 0.0

    def kill_core_process() -> None:
        nonlocal killed_at
        killed_at = time.monotonic()
        os.kill(core.pid, signal.SIGKILL)

    request = SamplingRequest([[5, 30, 31]] * 64, 4, 1.0, max_tokens=500, stop_token_ids=[], seed=1)
    threading.Timer(2.0, kill_core_process).start()
    message = ""
    try:
        while True:
            sampler.sample(request)
    except UserError as error:
        message = str(error)
    seconds = time.monotonic() - killed_at
    sampler.close()
    survivors = [process.pid for process in psutil.wait_procs(processes, timeout=20)[1]]
    print(json.dumps({"seconds": seconds, "message": message, "left": survivors, "core": core.pid}))


if __name__ == "__main__":
    task, folder, *numbers = sys.argv[1:]
    {"sync": sync_split_weights, "kill": kill_engine}[task](Path(folder), *map(int, numbers))
