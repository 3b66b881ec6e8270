"""How tensors get from the trainer to vLLM: in memory, through shared memory, or through a folder.

All hand over one tensor or bucket after another, already in the engine's dtype, and return when no
worker needs the trainer's memory any more. So the next update may overwrite it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from training.weight_transfer.checksums import SyncError

Tensors: TypeAlias = Iterable[tuple[str, jax.Array]]
"""Weights by their Hugging Face names, in the engine's dtype; each may be spread over devices."""

Bucket: TypeAlias = list[tuple[str, jax.Array]]

SHARED_MEMORY_BACKEND = "jaxlake_shared_memory"
"""The `backend` of vLLM's `weight_transfer_config` that `SharedMemoryTransport` needs."""

_BUCKET_BYTES = 64 * 2**20
_FILE_BYTES = 2 * 2**30
_SHARED_MEMORY = "/dev/shm"


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


class SharedMemoryTransport:
    """For workers in other processes of this machine, by the protocol of vLLM's weight transfer.

    Buckets of tensors go through one file in memory after another. Workers map the file, and copy
    from it before `update_weights` returns (`shared_memory_engine.py`). Where /dev/shm is missing
    or too small the file is in the folder for temporary files.
    """

    def __init__(self, engine: Any, *, bucket_bytes: int = _BUCKET_BYTES) -> None:
        """Let the workers of a `vllm.LLM` prepare that has the backend `SHARED_MEMORY_BACKEND`."""
        self._engine, self._bucket_bytes = engine, bucket_bytes
        engine.init_weight_transfer_engine({"init_info": {}})

    def send(self, tensors: Tensors) -> None:
        """See `WeightTransport.send`; a `SyncError` says that a bucket can't be written."""
        self._engine.start_weight_update()
        for bucket in in_buckets(tensors, self._bucket_bytes):
            file = _written([np.ascontiguousarray(array) for _, array in bucket])
            info = {
                "path": str(file),
                "names": [name for name, _ in bucket],
                "dtype_names": [str(array.dtype) for _, array in bucket],
                "shapes": [list(array.shape) for _, array in bucket],
            }
            try:
                self._engine.update_weights({"update_info": info})
            finally:
                file.unlink(missing_ok=True)
        self._engine.finish_weight_update()

    def close(self) -> None:
        """See `WeightTransport.close`."""
        self._engine.shutdown_weight_transfer_engine()


class FolderTransport:
    """For a server elsewhere: safetensors files in a folder that it shares with the trainer.

    The server loads them with vLLM's `reload_weights`. The files are in a new folder each time,
    since a network's file system may remember what was under an old name, and are removed
    afterwards.
    """

    def __init__(self, engine: Any, folder: Path, *, file_bytes: int = _FILE_BYTES) -> None:
        """Send to an engine with `collective_rpc`."""
        self._engine, self._folder, self._file_bytes = engine, folder.absolute(), file_bytes

    def send(self, tensors: Tensors) -> None:
        """See `WeightTransport.send`; a `SyncError` says that the folder can't be written."""
        with self._errors_of_writing():
            self._folder.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix="weights-", dir=self._folder))
            folder.chmod(0o755)  # the server may belong to another user
        try:
            for number, bucket in enumerate(in_buckets(tensors, self._file_bytes)):
                arrays = {name: np.ascontiguousarray(array) for name, array in bucket}
                with self._errors_of_writing():
                    save_file(arrays, folder / f"{number:05d}.safetensors")
            self._engine.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)})
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """See `WeightTransport.close`; there is nothing to let go of."""

    @contextmanager
    def _errors_of_writing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, SafetensorError) as error:
            raise SyncError(f"the weights can't be written to {self._folder}: {error}") from error


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


def _written(arrays: Sequence[np.ndarray]) -> Path:
    """Write arrays one after another to a new file, in memory where there is room."""
    problems = []
    for folder in (_SHARED_MEMORY, tempfile.gettempdir()):
        name = None
        try:
            handle, name = tempfile.mkstemp(prefix="jaxlake-weights-", dir=folder)
            with os.fdopen(handle, "wb") as file:
                for array in arrays:
                    file.write(array.reshape(-1).view(np.uint8).data)
            return Path(name)
        except OSError as error:
            if name is not None:
                os.unlink(name)
            problems.append(f"{folder}: {error.strerror}")
    size = sum(array.nbytes for array in arrays)
    raise SyncError(
        f"the weights can't be handed to vLLM: {size:,} bytes are to be written to a file, which "
        f"fails in {', and in '.join(problems)}; make room in one of these folders"
    )
