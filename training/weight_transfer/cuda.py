"""Weights from JAX's memory on GPUs to vLLM's workers: CUDA IPC on one GPU, NCCL between GPUs.

Both end in engines of vLLM's weight transfer (`ipc` and `nccl`), and begin here: vLLM's own trainer
sides expect one trainer process per GPU, whereas a JAX process has many. JAX can't export CUDA IPC
handles, so a bucket is copied to a buffer of torch's on the same GPU, whose handle is exported.

None of what is CUDA's own here (`CudaBuffers.export`, `NcclGroup`) has run yet: the project had no
GPU. All else is tested on CPU.
"""

from __future__ import annotations

import base64
import pickle
import socket
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from training.threads import in_thread
from training.weight_transfer.transport import BUCKET_BYTES, Bucket, Tensors, VllmTransfer, told_of

_HOST = "127.0.0.1"
_POLL_SECONDS = 1e-3


class CudaIpcTransport(VllmTransfer):
    """For worker processes that have GPUs of this process: they read its memory by CUDA IPC.

    Beside its share of the trainer each worker's GPU holds a bucket in torch's buffer, and the
    tensor of it that is just being copied, whole: weights that are split over devices are gathered
    one tensor at a time. vLLM's worker clones the tensors of a bucket, which takes another one.
    """

    def __init__(
        self,
        engine: Any,
        devices: Sequence[jax.Device],
        *,
        bucket_bytes: int = BUCKET_BYTES,
        buffers: CudaBuffers | None = None,
    ) -> None:
        """Send to a `vllm.LLM` with backend `ipc`, whose workers have these devices."""
        self._buffers = CudaBuffers(devices) if buffers is None else buffers
        super().__init__(engine, {"packed": True}, bucket_bytes=bucket_bytes)

    def send(self, tensors: Tensors) -> None:
        """See `WeightTransport.send`."""
        try:
            super().send(tensors)
        finally:
            self._buffers.release()

    def _update(self, bucket: Bucket) -> None:
        handles = self._buffers.fill(bucket, at_least=self._bucket_bytes)
        # vLLM's requests hold plain values; it takes handles in this form, too.
        pickled = base64.b64encode(pickle.dumps(handles)).decode()
        sizes = [array.nbytes for _, array in bucket]
        told = {**told_of(bucket), "tensor_sizes": sizes, "ipc_handles_pickled": pickled}
        self._engine.update_weights({"update_info": told})


class CudaBuffers:
    """A buffer of torch's on each of some GPUs, into which one bucket after another is copied.

    The handle of a buffer is exported once in each sync, as vLLM's workers close it once.
    """

    def __init__(self, devices: Sequence[jax.Device]) -> None:
        """Name the devices; nothing is reserved yet."""
        self._everywhere = NamedSharding(Mesh(np.array(devices), ("worker",)), PartitionSpec())
        self._buffers: dict[jax.Device, Any] = {}
        self._handles: dict[str, Any] = {}

    def fill(self, bucket: Bucket, *, at_least: int) -> dict[str, Any]:
        """Copy tensors one after another into every buffer, and return the buffers' handles.

        The workers must have read what was there before. A buffer is made with `at_least` bytes,
        and a larger one where the bucket needs it.
        """
        self._reserve(sum(array.nbytes for _, array in bucket), at_least)
        first = 0
        for _, array in bucket:  # one at a time, so that no more than one is there whole
            self._copy(array, first)
            first += array.nbytes
        return self._handles

    def _copy(self, array: jax.Array, first: int) -> None:
        """Copy a whole array to every buffer, from the byte number `first` on."""
        from torch import from_dlpack, uint8

        whole = jax.device_put(array, self._everywhere)
        jax.block_until_ready(whole)  # torch's streams don't wait for JAX's
        for shard in whole.addressable_shards:
            values = from_dlpack(shard.data).reshape(-1).view(uint8)
            self._buffers[shard.device][first : first + array.nbytes].copy_(values)
        self.wait()  # the workers' streams don't wait for ours, nor does JAX before it frees

    def _reserve(self, size: int, at_least: int) -> None:
        if self._buffers and size <= next(iter(self._buffers.values())).numel():
            return
        self.release()
        for device in self._everywhere.mesh.devices.flat:
            self._buffers[device] = self.allocate(device, max(size, at_least))
        self._handles = dict(self.export(buffer) for buffer in self._buffers.values())

    def release(self) -> None:
        """Free the buffers; a worker that still reads one keeps it."""
        if self._buffers:
            self.wait()
            self._buffers, self._handles = {}, {}
            self.collect()

    # From here on CUDA's own.

    def allocate(self, device: jax.Device, size: int) -> Any:
        """Return uint8 (size,) of torch's on a device."""
        import torch

        return torch.empty(size, dtype=torch.uint8, device=f"cuda:{device.local_hardware_id}")

    def export(self, buffer: Any) -> tuple[str, Any]:
        """Return what vLLM's worker finds a buffer by: the GPU's UUID, and torch's handle."""
        import torch
        from torch.multiprocessing.reductions import reduce_tensor

        with torch.cuda.device(buffer.device):
            return str(torch.cuda.get_device_properties(buffer.device).uuid), reduce_tensor(buffer)[
                1
            ]

    def wait(self) -> None:
        """Wait until all copies to the buffers have happened."""
        import torch

        for buffer in self._buffers.values():
            torch.cuda.synchronize(buffer.device)

    def collect(self) -> None:
        """Give memory back that workers have closed."""
        import torch

        torch.cuda.ipc_collect()


class Group(Protocol):
    """Processes that receive what this one broadcasts."""

    def broadcast(self, tensor: Any) -> None:
        """Begin to send a tensor to all others; it has to stay until all are received."""
        ...

    def all_received(self) -> bool:
        """Whether all that was sent is received."""
        ...

    def leave(self) -> None:
        """Leave the group, also in the middle of a broadcast."""
        ...


class NcclTransport(VllmTransfer):
    """For workers on GPUs other than the trainer's: one GPU of the trainer broadcasts by NCCL.

    Weights that are split over devices are gathered there, one bucket at a time.
    """

    def __init__(
        self,
        engine: Any,
        workers: int,
        device: jax.Device,
        *,
        bucket_bytes: int = BUCKET_BYTES,
        join: Any = None,
    ) -> None:
        """Send to a `vllm.LLM` with backend `nccl` from one device to so many workers."""
        from vllm.distributed.weight_transfer.nccl_common import (
            NCCLWeightTransferInitInfo,
            worker_init_payload,
        )

        self._device = device
        with socket.socket() as free:
            free.bind((_HOST, 0))
            port: int = free.getsockname()[1]
        place = NCCLWeightTransferInitInfo(
            master_address=_HOST, master_port=port, rank_offset=1, world_size=workers + 1
        )
        # Workers and trainer wait for each other.
        start = partial(
            super().__init__, engine, worker_init_payload(place), bucket_bytes=bucket_bytes
        )
        joining = in_thread(start, "JoinWorkers")
        try:
            self._group: Group = (join or NcclGroup)(_HOST, port, workers + 1, device)
        except Exception:
            if joining.done():
                joining.result()  # the workers' error is the first one
            raise
        joining.result()

    def close(self) -> None:
        """See `WeightTransport.close`."""
        self._group.leave()
        super().close()

    def _update(self, bucket: Bucket) -> None:
        from torch import from_dlpack

        wholes = [jax.device_put(array, self._device) for _, array in bucket]
        # What JAX gathers for these is over then; its other programs exchange nothing with workers.
        jax.block_until_ready(wholes)
        told = {"update_info": told_of(bucket)}
        receiving = in_thread(partial(self._engine.update_weights, told), "TellWorkers")
        tensors = [from_dlpack(whole) for whole in wholes]
        for tensor in tensors:
            self._group.broadcast(tensor)
        while not self._group.all_received():  # workers that refuse will never receive
            if receiving.done() and receiving.exception() is not None:
                self._group.leave()
                break
            time.sleep(_POLL_SECONDS)
        receiving.result()


class NcclGroup:
    """The trainer as rank 0 of the group that vLLM's workers join. CUDA's own."""

    def __init__(self, host: str, port: int, size: int, device: jax.Device) -> None:
        """Wait until all have joined."""
        import torch
        from vllm.distributed.weight_transfer import nccl_common

        self._last: Any = None  # an event behind the last broadcast
        self._device = torch.device("cuda", device.local_hardware_id)
        with torch.cuda.device(self._device):
            place = {"master_address": host, "master_port": port, "world_size": size}
            self._communicator = nccl_common.trainer_init(place)

    def broadcast(self, tensor: Any) -> None:
        """See `Group.broadcast`."""
        import torch

        with torch.cuda.device(self._device):
            stream = torch.cuda.current_stream()
            self._communicator.broadcast(tensor, src=0, stream=stream)
            self._last = torch.cuda.Event()
            self._last.record(stream)

    def all_received(self) -> bool:
        """See `Group.all_received`."""
        done: bool = self._last is None or self._last.query()
        return done

    def leave(self) -> None:
        """See `Group.leave`."""
        self._communicator.destroy()
