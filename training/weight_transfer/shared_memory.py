"""Weights to vLLM's workers through files in memory: the trainer's side.

The workers' side is `shared_memory_engine.py`, an engine of vLLM's weight transfer. It serves
workers in other processes of this machine, with or without accelerators, and also one in this
process.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from training.sampling.sampler import SyncError
from training.weight_transfer.transport import BUCKET_BYTES, Bucket, VllmTransfer, told_of

_SHARED_MEMORY = "/dev/shm"


class SharedMemoryTransport(VllmTransfer):
    """Buckets of tensors go through one file in memory after another.

    Workers map the file, and copy from it before `update_weights` returns. Where /dev/shm is
    missing or too small the file is in the folder for temporary files.
    """

    def __init__(self, engine: Any, *, bucket_bytes: int = BUCKET_BYTES) -> None:
        """Send to a `vllm.LLM` that was started with the backend `jaxlake_shared_memory`."""
        super().__init__(engine, {}, bucket_bytes=bucket_bytes)

    def _update(self, bucket: Bucket) -> None:
        file = _written([np.ascontiguousarray(array) for _, array in bucket])
        try:
            self._engine.update_weights({"update_info": {"path": str(file), **told_of(bucket)}})
        finally:
            file.unlink(missing_ok=True)


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
