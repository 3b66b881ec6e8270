"""How tensors get from the trainer to vLLM: a `WeightTransport` for each place of its workers.

Both hand over one tensor after another, already in the engine's dtype, and return when no worker
needs the trainer's memory any more. So the next update may overwrite it.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import jax
import numpy as np

Tensors: TypeAlias = Iterable[tuple[str, jax.Array]]
"""Weights by their Hugging Face names, in the engine's dtype; each may be spread over devices."""

BUCKET_BYTES = 64 * 2**20
"""Tensors go through shared memory in buckets of at most this size, or one that is larger."""

_SHARED_MEMORY = "/dev/shm"


class WeightTransport(Protocol):
    """Replaces all weights of an engine."""

    def send(self, tensors: Tensors) -> None:
        """Let every worker of the engine load these tensors, which are all that there are."""
        ...


class InProcessTransport:
    """For an engine in the trainer's process: tensors are handed over by dlpack.

    The engine's side copies each at once. So it never holds views of the trainer's memory, which
    the next update overwrites, and at most one layer is there twice.
    """

    def __init__(self, engine: Any) -> None:
        """Send to a `vllm.LLM` whose worker runs in this process."""
        self._engine = engine

    def send(self, tensors: Tensors) -> None:
        """See `WeightTransport.send`."""
        copies = ((name, _copy_for_torch(array)) for name, array in tensors)
        self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": copies})


class SharedMemoryTransport:
    """For worker processes on this machine: buckets of tensors go through one file in memory.

    Workers map the file, and copy from it before the next bucket is written. Where /dev/shm is
    missing or too small the file is in the folder for temporary files.
    """

    def __init__(self, engine: Any, *, bucket_bytes: int = BUCKET_BYTES) -> None:
        """Send to a `vllm.LLM` whose workers have `weight_receiver.WeightReceiver` as a base."""
        self._engine, self._bucket_bytes = engine, bucket_bytes

    def send(self, tensors: Tensors) -> None:
        """See `WeightTransport.send`."""
        self._engine.collective_rpc("begin_weights")
        for bucket in in_buckets(tensors, self._bucket_bytes):
            file = _written(bucket)
            entries = [(name, list(array.shape)) for name, array in bucket]
            told = {"path": str(file), "dtype": str(bucket[0][1].dtype), "entries": entries}
            try:
                self._engine.collective_rpc("receive_weights", kwargs=told)
            finally:
                file.unlink()
        self._engine.collective_rpc("finish_weights")


def in_buckets(tensors: Tensors, limit: int) -> Iterator[list[tuple[str, np.ndarray]]]:
    """Copy tensors to the host, in lists of at most `limit` bytes or of one tensor."""
    bucket: list[tuple[str, np.ndarray]] = []
    for name, array in tensors:
        values = np.ascontiguousarray(array)
        if bucket and sum(one.nbytes for _, one in bucket) + values.nbytes > limit:
            yield bucket
            bucket = []
        bucket.append((name, values))
    if bucket:
        yield bucket


def _copy_for_torch(array: jax.Array) -> Any:
    """Copy an array to a torch tensor on one device, which is that of the first of its parts."""
    from torch import accelerator, from_dlpack

    whole = jax.device_put(array, array.addressable_shards[0].device).block_until_ready()
    copied = from_dlpack(whole).clone()
    if copied.device.type != "cpu":  # `whole` may not be freed while it is still being read
        accelerator.synchronize()
    return copied


def _written(bucket: Sequence[tuple[str, np.ndarray]]) -> Path:
    """Write tensors one after another to a new file, in memory where there is room."""
    in_memory = os.path.isdir(_SHARED_MEMORY) and os.access(_SHARED_MEMORY, os.W_OK)
    for folder in (*[_SHARED_MEMORY] * in_memory, tempfile.gettempdir()):
        handle, name = tempfile.mkstemp(prefix="jaxlake-weights-", dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                for _, array in bucket:
                    file.write(array.reshape(-1).view(np.uint8).data)
            return Path(name)
        except OSError as error:
            os.unlink(name)
            if error.errno != errno.ENOSPC or folder != _SHARED_MEMORY:
                raise
    raise AssertionError("the last folder either takes the file or raises")
