"""Weights to vLLM servers through a folder that they and the trainer share."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from training.sampling.sampler import SyncError
from training.weight_transfer.transport import Tensors, in_buckets

_FILE_BYTES = 2 * 2**30


class FolderTransport:
    """All tensors go through a new folder of safetensors files, which is removed afterwards.

    Each server loads them with vLLM's `reload_weights`. A new name each time: what a network's file
    system remembers of an older file can't be taken for it.
    """

    def __init__(self, engine: Any, folder: Path, *, file_bytes: int = _FILE_BYTES) -> None:
        """Send to an engine with `collective_rpc`; see `WeightTransport`."""
        self._engine, self._folder, self._file_bytes = engine, folder.absolute(), file_bytes

    def send(self, tensors: Tensors) -> None:
        """See `WeightTransport.send`; a `SyncError` says that the folder can't be written."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix="weights-", dir=self._folder))
            folder.chmod(0o755)  # servers may belong to another user
        except OSError as error:
            raise self._failed(error) from error
        try:
            for number, bucket in enumerate(in_buckets(tensors, self._file_bytes)):
                arrays = {name: np.ascontiguousarray(array) for name, array in bucket}
                try:
                    save_file(arrays, folder / f"{number:05d}.safetensors")
                except Exception as error:  # safetensors' own, such as for a full disk
                    raise self._failed(error) from error
            self._engine.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)})
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """See `WeightTransport.close`; there is nothing to let go of."""

    def _failed(self, error: Exception) -> SyncError:
        return SyncError(
            f"sampling.servers.folder: the weights can't be written to {self._folder}: {error}"
        )
