"""Tensors on their way to vLLM: buckets, files in memory, and files in a folder."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.paths import ROOT
from training.weight_transfer.checksums import SyncError
from training.weight_transfer.transport import (
    FolderTransport,
    SharedMemoryTransport,
    in_buckets,
)


def tensors(dtype: str) -> dict[str, Any]:
    return {f"w{number}": jnp.arange(number + 3, dtype=dtype) / 3 for number in range(4)}


def assert_equal(received: dict[str, Any], given: dict[str, Any]) -> None:
    assert list(received) == list(given)
    for name, array in given.items():
        np.testing.assert_array_equal(received[name], np.asarray(array))


class Engine:
    """Notes the calls of vLLM's protocol, and reads what they name."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.received: dict[str, Any] = {}
        self.paths: list[Path] = []

    def init_weight_transfer_engine(self, request: dict[str, Any]) -> None:
        self.calls.append("init")

    def start_weight_update(self) -> None:
        self.calls.append("start")

    def update_weights(self, request: dict[str, Any]) -> None:
        self.calls.append("update")
        told = request["update_info"]
        self.paths.append(Path(told["path"]))
        values = np.fromfile(told["path"], jnp.dtype(told["dtype_names"][0]))
        sizes = [int(np.prod(shape)) for shape in told["shapes"]]
        for name, part in zip(told["names"], np.split(values, np.cumsum(sizes)[:-1]), strict=True):
            self.received[name] = part

    def finish_weight_update(self) -> None:
        self.calls.append("finish")

    def shutdown_weight_transfer_engine(self) -> None:
        self.calls.append("shutdown")

    def collective_rpc(self, method: str, kwargs: dict[str, str]) -> None:
        assert method == "reload_weights"
        self.paths += sorted(Path(kwargs["weights_path"]).iterdir())
        for file in self.paths:
            self.received |= load_file(file)


def test_buckets_keep_to_the_limit_or_to_one_tensor():
    sizes = [3, 3, 9, 1, 2, 4]
    given = [(str(place), jnp.full(size, place)) for place, size in enumerate(sizes)]
    buckets = list(in_buckets(given, 4 * 6))
    assert [[len(values) for _, values in one] for one in buckets] == [[3, 3], [9], [1, 2], [4]]
    assert [name for bucket in buckets for name, _ in bucket] == [name for name, _ in given]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_shared_memory_hands_over_all_tensors_and_leaves_no_file(dtype: str):
    engine, given = Engine(), tensors(dtype)
    sender = SharedMemoryTransport(engine, bucket_bytes=20)
    sender.send(iter(given.items()))
    sender.close()
    assert_equal(engine.received, given)
    updates = len(engine.paths)
    assert updates > 1
    assert engine.calls == ["init", "start", *["update"] * updates, "finish", "shutdown"]
    assert not [path for path in engine.paths if path.exists()]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_folder_hands_over_all_tensors_and_leaves_no_file(dtype: str, tmp_path: Path):
    engine, given, shared = Engine(), tensors(dtype), tmp_path / "shared" / "weights"
    FolderTransport(engine, shared, file_bytes=20).send(iter(given.items()))
    assert len(engine.paths) > 1
    assert_equal(engine.received, given)
    assert list(shared.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_a_sync_error(tmp_path: Path):
    (blocked := tmp_path / "file").touch()
    with pytest.raises(SyncError, match="can't be written"):
        FolderTransport(Engine(), blocked).send(iter(tensors("float32").items()))


def test_a_bucket_that_fits_nowhere_is_a_sync_error_and_leaves_no_file(tmp_path: Path):
    code = """
import resource, sys, numpy as np
from training.weight_transfer import transport
transport._SHARED_MEMORY = sys.argv[1]
transport.tempfile.tempdir = sys.argv[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    transport._written([np.zeros(1000)])
except transport.SyncError as error:
    print(error)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        check=True,
        timeout=120,
    )
    assert "8,000 bytes are to be written to a file, which fails in" in ended.stdout
    assert list(tmp_path.iterdir()) == []
