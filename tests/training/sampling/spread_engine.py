"""Weights that are spread over devices, or go to several workers; run in a process of its own.

The arguments are an empty folder, the devices that split the trainer's weights, and the workers
that split the engine's.
"""

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests.paths import TINY as TINY_FILE
from training.policy.policy import load_policy, make_policy
from training.sampling.sampler import check_agreement
from training.sampling.vllm_sampler import VllmSampler
from training.schema import Sampling, load
from training.weight_transfer.checksums import SyncError
from training.weight_transfer.transport import InProcessTransport, SharedMemoryTransport

SEQUENCES = [[5, 30, 31, 90, 120, 7, 8] * times for times in (1, 2, 3, 4)]


def make_last_worker_stale(worker: Any) -> None:
    """Move one number of one copy of the last norm by an ulp; called on every worker."""
    if worker.rank == worker.vllm_config.parallel_config.tensor_parallel_size - 1:
        values = worker.model_runner.get_model().model.norm.weight.data.numpy()
        values[0] = np.nextafter(values[0], np.inf)


def main(folder: Path, fsdp: int, workers: int) -> None:
    """Sync moved weights, compare both sides, and see that one stale worker is noticed."""
    config = load(TINY_FILE, [f"model.mesh.fsdp={fsdp}"])
    texts = ["Agent 0: UP DOWN LEFT RIGHT WAIT", '{"3":{"data_ratio":0.5,"hole_ratio":0.25}}'] * 4
    make_policy(folder / "initial", config.model, texts, max_len=512, seed=0)
    policy, params = load_policy(folder / "initial", config)
    policy.export(params, folder / "engine", untied=True)
    assert all(len(leaf.sharding.device_set) == fsdp for leaf in jax.tree.leaves(params))
    settings = Sampling(max_model_len=512, max_num_seqs=8, tensor_parallel_size=workers)
    sampler = VllmSampler(folder / "engine", settings)
    moved = jax.tree.map(lambda leaf: 1.5 * leaf, params)
    expected = policy.logprobs(moved, SEQUENCES)
    with pytest.raises(SyncError, match="the engine and the trainer disagree"):
        check_agreement(sampler, SEQUENCES, expected, 1e-3)
    sampler.sync(policy.tensors(moved))
    print(check_agreement(sampler, SEQUENCES, expected, 1e-3))
    first = sampler.weight_version
    sampler.sync(policy.tensors(params))
    assert sampler.weight_version != first
    sampler.sync(policy.tensors(moved))
    assert sampler.weight_version == first
    kind = InProcessTransport if workers == 1 else SharedMemoryTransport
    assert isinstance(sampler._transport, kind)

    transport = sampler._transport

    class OneStale:
        def send(self, tensors: Any) -> None:
            transport.send(tensors)
            sampler._engine.collective_rpc(make_last_worker_stale)

    sampler._transport = OneStale()
    with pytest.raises(SyncError, match=r"1 of \d+ weight tensors .* checksums: model\.norm\."):
        sampler.sync(policy.tensors(moved))
    sampler.close()
    print("done")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
