"""Transport of tensors from the trainer to vLLM's workers, in memory or through files.

Both functions return after the workers have copied the tensors, so the next update may overwrite
the trainer's memory.
"""

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from training.weight_transfer.checksums import SyncError, add_checksums, compute_version

Tensors: TypeAlias = Iterable[tuple[str, Any]]
"""Pairs of a Hugging Face name and an array, which may be sharded over devices."""

_FILE_BYTES = 2 * 2**30
_SHARED_MEMORY = Path("/dev/shm")


def send_in_memory(engine: Any, tensors: Tensors, dtype: Any) -> str:
    """Replace the weights of a `vllm.LLM` in this process, and return their version.

    The worker extends `WeightReceiver`. Tensors are converted to `dtype` one by one.
    """
    sums: dict[str, jax.Array] = {}
    # Copies prevent the engine from holding views of memory that the next update overwrites.
    converted_tensors = add_checksums(tensors, dtype, sums)
    copies = ((name, _copy_for_torch(array)) for name, array in converted_tensors)
    engine.collective_rpc("receive_weights", kwargs={"weights": copies, "expected": sums})
    return compute_version(sums)


def send_through_folder(engine: Any, tensors: Tensors, dtype: Any, folder: Path) -> str:
    """Replace the weights of workers that can read `folder`, and return their version.

    Each call writes to a new subfolder, because network file systems may cache the contents of an
    old name, and removes it afterwards. The workers extend `WeightReceiver`. Tensors are converted
    to `dtype` one by one.

    Raises:
        SyncError: The folder can't be written.
    """
    sums: dict[str, jax.Array] = {}
    subfolder = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        subfolder = Path(tempfile.mkdtemp(prefix="jaxlake-weights-", dir=folder.absolute()))
        subfolder.chmod(0o755)  # the workers may belong to another user
        converted_tensors = add_checksums(tensors, dtype, sums)
        for index, bucket in enumerate(split_into_buckets(converted_tensors, _FILE_BYTES)):
            arrays = {name: np.ascontiguousarray(array) for name, array in bucket}
            save_file(arrays, subfolder / f"{index:05d}.safetensors")
        checksums = {name: int(total) for name, total in sums.items()}
        arguments = {"weights": str(subfolder), "expected": checksums}
        engine.collective_rpc("receive_weights", kwargs=arguments)
    except (OSError, SafetensorError) as error:
        raise SyncError(f"the weights can't be written to {folder}: {error}") from error
    finally:
        if subfolder is not None:
            shutil.rmtree(subfolder, ignore_errors=True)
    return compute_version(checksums)


def transfer_folder(model: Path) -> Path:
    """Return a folder for weights of the model's size: in shared memory if they fit there."""
    size = sum(file.stat().st_size for file in model.glob("*.safetensors"))
    is_writable = os.access(_SHARED_MEMORY, os.W_OK)
    has_room = is_writable and shutil.disk_usage(_SHARED_MEMORY).free > size
    return _SHARED_MEMORY if has_room else Path(tempfile.gettempdir())


def split_into_buckets(
    tensors: Iterable[tuple[str, jax.Array]], max_bytes: int
) -> Iterator[list[tuple[str, jax.Array]]]:
    """Yield lists of tensors of at most `max_bytes` each, or a single larger tensor."""
    bucket: list[tuple[str, jax.Array]] = []
    for name, array in tensors:
        if bucket and sum(tensor.nbytes for _, tensor in bucket) + array.nbytes > max_bytes:
            yield bucket
            bucket = []
        bucket.append((name, array))
    if bucket:
        yield bucket


def _copy_for_torch(array: jax.Array) -> Any:
    """Copy an array to a torch tensor on the device of the array's first shard."""
    from torch import accelerator, bfloat16, from_dlpack, from_numpy

    device = array.addressable_shards[0].device
    if device.platform == "cpu":  # NumPy copies without dispatching a computation
        values = np.array(array)
        if array.dtype == jnp.bfloat16:  # torch doesn't support NumPy's bfloat16
            return from_numpy(values.view(np.int16)).view(bfloat16)
        return from_numpy(values)
    local_array = jax.device_put(array, device).block_until_ready()
    copy = from_dlpack(local_array).clone()
    if copy.device.type != "cpu":  # keep `local_array` alive until the copy is complete
        accelerator.synchronize(copy.device)
    return copy
