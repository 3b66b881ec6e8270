"""Weights by vLLM's weight transfer: its protocol with a real engine, and CUDA's ways up to CUDA.

What only a GPU can do is replaced where it says so: buffers and groups of the host stand in for
CUDA's, and vLLM's own code reads what they were told.
"""

import queue
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.paths import TINY as TINY_FILE
from training.errors import UserError
from training.policy.policy import Policy, load_policy, make_policy
from training.sampling.sampler import SyncError, check_sync
from training.sampling.vllm_sampler import VllmSampler
from training.schema import Sampling, load
from training.weight_transfer import ways
from training.weight_transfer.cuda import CudaBuffers, CudaIpcTransport, NcclTransport
from training.weight_transfer.shared_memory import SharedMemoryTransport
from training.weight_transfer.transport import InProcessTransport

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

SEQUENCES = [[5, 30, 31, 90, 120, 7, 8] * times for times in (1, 4)]
SYNCS = 200


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Policy, Any]:
    folder = tmp_path_factory.mktemp("policy") / "initial"
    config = load(TINY_FILE)
    texts = ["Agent 0: UP DOWN LEFT RIGHT WAIT", '{"3":{"data_ratio":0.5,"hole_ratio":0.25}}'] * 4
    make_policy(folder, config.model, texts, max_len=512, seed=0)
    return load_policy(folder, config)


@pytest.fixture(scope="module")
def sampler(policy: tuple[Policy, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    folder = tmp_path_factory.mktemp("engine") / "engine"
    made, params = policy
    made.export(params, folder, untied=True)
    settings = Sampling(max_model_len=512, max_num_seqs=8, weight_transfer="shared_memory")
    engine = VllmSampler(folder, settings)
    yield engine
    engine.close()


def _transport(name: str, sampler: VllmSampler) -> Any:
    if name == "in_process":
        return InProcessTransport(sampler._engine)
    # So small that the parts of a fused weight come in buckets of their own.
    return SharedMemoryTransport(sampler._engine, bucket_bytes=1)


def test_the_configuration_chooses_the_transport(sampler: VllmSampler):
    assert isinstance(sampler._transport, SharedMemoryTransport)


def test_the_engine_says_which_weights_it_has(sampler: VllmSampler, policy: tuple[Policy, Any]):
    made, params = policy
    sampler.sync(made.tensors(params))
    first = sampler.weight_version
    moved = jax.tree.map(lambda leaf: leaf.at[..., 0].mul(1 + 2**-20), params)
    sampler.sync(made.tensors(moved))
    assert sampler.weight_version == sampler._engine.get_weight_version() != first
    sampler.sync(made.tensors(params))
    assert sampler.weight_version == first


def test_a_sync_that_fails_leaves_the_version_of_before(
    sampler: VllmSampler, policy: tuple[Policy, Any], monkeypatch: pytest.MonkeyPatch
):
    made, params = policy
    sampler.sync(made.tensors(params))
    first = sampler.weight_version

    class Lost:
        def send(self, tensors: Any) -> None:
            assert list(tensors)

    monkeypatch.setattr(sampler, "_transport", Lost())
    with pytest.raises(SyncError, match="by their checksums"):
        sampler.sync(made.tensors(jax.tree.map(lambda leaf: 2 * leaf, params)))
    assert sampler.weight_version == first


@pytest.mark.parametrize("name", ["in_process", "shared_memory"])
def test_two_hundred_updates_in_place_each_reach_the_engine_bit_by_bit(
    name: str,
    sampler: VllmSampler,
    policy: tuple[Policy, Any],
    monkeypatch: pytest.MonkeyPatch,
):
    """Each sync compares checksums; the memory of the weights is written over right afterwards."""
    made, params = policy
    monkeypatch.setattr(sampler, "_transport", _transport(name, sampler))
    update = jax.jit(
        lambda old, key: jax.tree.map(
            lambda leaf: leaf + 1e-3 * jax.random.normal(key, leaf.shape), old
        ),
        donate_argnums=0,
    )
    held = jax.tree.map(jnp.copy, params)
    versions = set()
    for number in range(SYNCS):
        sampler.sync(made.tensors(held))
        versions.add(sampler.weight_version)
        looked_at = number % 20 == 19
        expected = made.logprobs(held, SEQUENCES) if looked_at else None
        before = sampler._engine.collective_rpc("weight_checksums") if looked_at else None
        places = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(held)]
        held = jax.block_until_ready(update(held, jax.random.key(number)))
        now = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(held)]
        assert places == now  # in place: nothing holds on to the trainer's memory
        if expected is not None:
            assert sampler._engine.collective_rpc("weight_checksums") == before
            assert check_sync(sampler, SEQUENCES, expected, 1e-4).largest <= 1e-4
    assert len(versions) == SYNCS


def test_a_transfer_that_vllm_refuses_is_a_sync_error(
    sampler: VllmSampler, policy: tuple[Policy, Any], monkeypatch: pytest.MonkeyPatch
):
    made, params = policy

    class Twice:
        def send(self, tensors: Any) -> None:
            sampler._engine.start_weight_update()
            sampler._engine.start_weight_update()

    monkeypatch.setattr(sampler, "_transport", Twice())
    with pytest.raises(SyncError, match=r"could not take the weights .*already active"):
        sampler.sync(made.tensors(params))
    monkeypatch.undo()
    sampler._engine.finish_weight_update()
    sampler.sync(made.tensors(params))


@pytest.mark.parametrize("way", ["in_process", "shared_memory", "cuda_ipc", "nccl"])
def test_the_installed_vllm_has_what_a_way_needs(way: str, monkeypatch: pytest.MonkeyPatch):
    ways.require_weight_transfer(way)
    monkeypatch.delattr("vllm.entrypoints.rl.offline.RLOfflineMixin.get_weight_version")
    with pytest.raises(UserError, match=rf"{way} needs vLLM as of 0\.32, .*LLM\.get_weight_versio"):
        ways.require_weight_transfer(way)


# CUDA's ways. The tensors: an odd shape, a bfloat16 vector, one larger than a bucket.
GIVEN = [
    ("model.norm.weight", jnp.arange(7, dtype=jnp.bfloat16) / 3),
    ("model.embed_tokens.weight", jnp.arange(60, dtype=jnp.bfloat16).reshape(12, 5) / 7),
    ("model.layers.0.mlp.up_proj.weight", jnp.arange(30, dtype=jnp.bfloat16).reshape(5, 6) / 9),
    ("lm_head.weight", jnp.arange(60, dtype=jnp.bfloat16).reshape(12, 5) / 11),
]


class Engine:
    """Notes the calls of vLLM's protocol; its worker is given what an update says."""

    def __init__(self, receive: Any) -> None:
        self.calls: list[str] = []
        self.told: list[dict[str, Any]] = []
        self._receive = receive

    def init_weight_transfer_engine(self, request: dict[str, Any]) -> None:
        self.calls.append("init")
        self.told.append(request["init_info"])

    def start_weight_update(self) -> None:
        self.calls.append("start")

    def update_weights(self, request: dict[str, Any]) -> None:
        self.calls.append("update")
        self._receive(request["update_info"])

    def finish_weight_update(self) -> None:
        self.calls.append("finish")

    def shutdown_weight_transfer_engine(self) -> None:
        self.calls.append("shutdown")


class HostBuffers(CudaBuffers):
    """Buffers in the memory of the host."""

    made: list[Any]
    collected = 0

    def allocate(self, device: jax.Device, size: int) -> Any:
        import torch

        self.made = [*getattr(self, "made", []), torch.full((size,), 255, dtype=torch.uint8)]
        return self.made[-1]

    def export(self, buffer: Any) -> tuple[str, Any]:
        return "GPU-0", len(self.made) - 1

    def wait(self) -> None:
        pass

    def collect(self) -> None:
        self.collected += 1


def _equal_to_given(received: dict[str, Any]) -> None:
    assert list(received) == [name for name, _ in GIVEN]
    for name, array in GIVEN:
        assert received[name].shape == array.shape
        found = received[name].float().numpy()
        np.testing.assert_array_equal(found, np.asarray(array, np.float32))


def test_vllm_unpacks_from_the_exported_buffers_what_jax_held(monkeypatch: pytest.MonkeyPatch):
    import torch
    from vllm.distributed.weight_transfer import ipc_engine, packed_tensor

    monkeypatch.setattr("vllm.envs.VLLM_ALLOW_INSECURE_SERIALIZATION", True, raising=False)
    received: dict[str, Any] = {}

    def receive(told: dict[str, Any]) -> None:
        info = ipc_engine.IPCWeightTransferUpdateInfo(**told)  # vLLM's own, unpickles the handles
        assert isinstance(info.ipc_handles, dict)
        buffer = buffers.made[info.ipc_handles["GPU-0"]]
        assert info.tensor_sizes is not None
        dtypes = [getattr(torch, name) for name in info.dtype_names]
        filled = buffer[: sum(info.tensor_sizes)]
        for name, values in packed_tensor.unpack_tensor(
            filled, info.names, info.shapes, dtypes, info.tensor_sizes
        ):
            received[name] = values.clone()

    buffers = HostBuffers(jax.devices()[:1])
    engine = Engine(receive)
    transport = CudaIpcTransport(engine, jax.devices()[:1], bucket_bytes=80, buffers=buffers)
    assert ipc_engine.IPCWeightTransferInitInfo(**engine.told[0]).packed
    for round_ in (1, 2):
        transport.send(iter(GIVEN))
        _equal_to_given(received)
        assert buffers.collected == 2 * round_  # the first buffer was too small for the second
        received.clear()
    transport.close()
    one = ["start", *["update"] * 4, "finish"]
    assert engine.calls == ["init", *one, *one, "shutdown"]
    assert [len(buffer) for buffer in buffers.made] == [80, 120, 80, 120]


def test_of_a_bucket_one_tensor_at_a_time_is_there_whole(monkeypatch: pytest.MonkeyPatch):
    buffers, put = HostBuffers(jax.devices()[:1]), jax.device_put
    wholes: list[Any] = []

    def noted(*arguments: Any) -> Any:
        assert not [one for one in wholes if one() is not None]
        whole = put(*arguments)
        wholes.append(weakref.ref(whole))
        return whole

    monkeypatch.setattr(jax, "device_put", noted)
    buffers.fill(GIVEN, at_least=80)
    assert len(wholes) == len(GIVEN)


class QueueGroup:
    """One broadcaster and one receiver in two threads of a process."""

    def __init__(self, *place: Any) -> None:
        self.place = place
        self.sent: queue.Queue[Any] = queue.Queue()
        self.left = False

    def broadcast(self, tensor: Any) -> None:
        self.sent.put(tensor.clone())

    def all_received(self) -> bool:
        return self.sent.empty()

    def leave(self) -> None:
        self.left = True


def test_workers_receive_by_vllms_plan_what_the_trainer_broadcasts_meanwhile():
    import torch
    from vllm.distributed.weight_transfer import nccl_common, nccl_engine

    received: dict[str, Any] = {}
    groups: list[QueueGroup] = []

    def join(*place: Any) -> QueueGroup:
        groups.append(QueueGroup(*place))
        return groups[0]

    def receive(told: dict[str, Any]) -> None:
        assert threading.current_thread().daemon  # a call that is never answered ends with the run
        info = nccl_engine.NCCLWeightTransferUpdateInfo(**told)
        for name, dtype, shape in zip(info.names, info.dtype_names, info.shapes, strict=True):
            values = groups[0].sent.get(timeout=20)
            assert (values.dtype, list(values.shape)) == (getattr(torch, dtype), shape)
            received[name] = values

    engine = Engine(receive)
    transport = NcclTransport(engine, 2, jax.devices()[0], bucket_bytes=80, join=join)
    place = nccl_common.NCCLWeightTransferInitInfo(**engine.told[0])
    assert (place.rank_offset, place.world_size, place.packed) == (1, 3, False)
    assert groups[0].place == (place.master_address, place.master_port, 3, jax.devices()[0])
    transport.send(iter(GIVEN))
    _equal_to_given(received)
    transport.close()
    assert engine.calls == ["init", "start", *["update"] * 4, "finish", "shutdown"]


def test_an_update_that_a_worker_refuses_ends_the_broadcast():
    def refuse(told: dict[str, Any]) -> None:
        raise ValueError("no such tensor")

    engine = Engine(refuse)
    transport = NcclTransport(engine, 1, jax.devices()[0], bucket_bytes=10**6, join=QueueGroup)
    with pytest.raises(ValueError, match="no such tensor"):
        transport.send(iter(GIVEN))
    assert transport._group.left
