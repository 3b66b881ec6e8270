"""How tensors get from the trainer to vLLM: `WeightTransport`, and the one within a process.

`ways.py` says which transport an engine gets. All hand over one tensor or bucket after
another, already in the engine's dtype, and return when no worker needs the trainer's memory any
more. So the next update may overwrite it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

Tensors: TypeAlias = Iterable[tuple[str, jax.Array]]
"""Weights by their Hugging Face names, in the engine's dtype; each may be spread over devices."""

Bucket: TypeAlias = list[tuple[str, jax.Array]]

BUCKET_BYTES = 64 * 2**20
"""Tensors go to other processes in buckets of at most this size, or one that is larger."""


class WeightTransport(Protocol):
    """Replaces all weights of an engine."""

    def send(self, tensors: Tensors) -> None:
        """Let every worker of the engine load these tensors, which are all that there are."""
        ...

    def close(self) -> None:
        """Let go of what connects the engine's workers to the trainer."""
        ...


class InProcessTransport:
    """For an engine in the trainer's process: tensors are handed over in memory.

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

    def close(self) -> None:
        """See `WeightTransport.close`."""
        del self._engine


class VllmTransfer(ABC):
    """Hands weights over by the protocol of vLLM's weight transfer, bucket by bucket.

    Once `init_weight_transfer_engine`, and for each sync `start_weight_update`, `update_weights`
    for each bucket, `finish_weight_update`. The engine that answers in the workers is named by
    `weight_transfer_config` when vLLM starts.
    """

    def __init__(
        self, engine: Any, init_info: dict[str, Any], *, bucket_bytes: int = BUCKET_BYTES
    ) -> None:
        """Let the workers of a `vllm.LLM` prepare, which is told `init_info`."""
        self._engine, self._bucket_bytes = engine, bucket_bytes
        engine.init_weight_transfer_engine({"init_info": init_info})

    def send(self, tensors: Tensors) -> None:
        """See `WeightTransport.send`."""
        self._engine.start_weight_update()
        for bucket in in_buckets(tensors, self._bucket_bytes):
            self._update(bucket)
        self._engine.finish_weight_update()

    def close(self) -> None:
        """See `WeightTransport.close`."""
        self._engine.shutdown_weight_transfer_engine()

    @abstractmethod
    def _update(self, bucket: Bucket) -> None:
        """Let all workers load these tensors, and wait until they have."""


def told_of(bucket: Bucket) -> dict[str, Any]:
    """Return what vLLM's engines are told of tensors: names, dtypes and shapes."""
    return {
        "names": [name for name, _ in bucket],
        "dtype_names": [str(array.dtype) for _, array in bucket],
        "shapes": [list(array.shape) for _, array in bucket],
    }


def in_buckets(tensors: Tensors, limit: int) -> Iterator[Bucket]:
    """Yield tensors in lists of at most `limit` bytes or of one tensor."""
    bucket: Bucket = []
    for name, array in tensors:
        if bucket and sum(one.nbytes for _, one in bucket) + array.nbytes > limit:
            yield bucket
            bucket = []
        bucket.append((name, array))
    if bucket:
        yield bucket


def _copy_for_torch(array: jax.Array) -> Any:
    """Copy an array to a torch tensor on one device, which is that of the first of its parts."""
    from torch import accelerator, bfloat16, from_dlpack, from_numpy

    device = array.addressable_shards[0].device
    if device.platform == "cpu":  # NumPy's copy starts no computation and waits for no other one
        values = np.array(array)
        if array.dtype == jnp.bfloat16:  # torch doesn't know NumPy's
            return from_numpy(values.view(np.int16)).view(bfloat16)
        return from_numpy(values)
    whole = jax.device_put(array, device).block_until_ready()
    copied = from_dlpack(whole).clone()
    if copied.device.type != "cpu":  # `whole` may not be freed while it is still being read
        accelerator.synchronize(copied.device)
    return copied
