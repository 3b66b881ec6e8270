"""Transfer of tensors to vLLM's workers, in memory and through files."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from training.weight_transfer import transport
from training.weight_transfer.checksums import SyncError
from training.weight_transfer.transport import (
    send_in_memory,
    send_through_folder,
    split_into_buckets,
    transfer_folder,
)

torch = pytest.importorskip("torch")
receiver = pytest.importorskip("training.weight_transfer.receiver")


class FakeEngine(receiver.WeightReceiver):
    """An engine that is its own worker."""

    device = torch.device("cpu")

    def collective_rpc(self, method: str, kwargs: dict[str, Any]) -> None:
        getattr(self, method)(**kwargs)

    def reload_weights(self, weights_iterator: Any) -> None:
        self.received_tensors = {name: tensor.float().numpy() for name, tensor in weights_iterator}


def make_tensors() -> dict[str, Any]:
    return {f"w{number}": jnp.arange(number + 3) / 3 for number in range(4)}


def test_buckets_respect_the_limit():
    sizes = [3, 3, 9, 1, 2, 4]
    named_tensors = [(str(index), jnp.full(size, index)) for index, size in enumerate(sizes)]
    buckets = list(split_into_buckets(named_tensors, 4 * 6))
    assert [[len(values) for _, values in bucket] for bucket in buckets] == [
        [3, 3],
        [9],
        [1, 2],
        [4],
    ]
    assert [name for bucket in buckets for name, _ in bucket] == [name for name, _ in named_tensors]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_both_transports_send_all_tensors(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(transport, "_FILE_BYTES", 20)
    engine, tensors, shared_folder = FakeEngine(), make_tensors(), tmp_path / "shared" / "weights"
    versions = []
    for send, arguments in ((send_in_memory, []), (send_through_folder, [shared_folder])):
        versions.append(send(engine, iter(tensors.items()), jnp.dtype(dtype), *arguments))
        assert list(engine.received_tensors) == list(tensors)
        for name, array in tensors.items():
            np.testing.assert_array_equal(engine.received_tensors[name], array.astype(dtype))
    assert versions[0] == versions[1]
    assert list(shared_folder.iterdir()) == []


def test_unwritable_folder_raises_a_sync_error(tmp_path: Path):
    (file := tmp_path / "file").touch()
    with pytest.raises(SyncError, match="can't be written"):
        send_through_folder(FakeEngine(), make_tensors().items(), jnp.float32, file)


def test_transfer_folder_prefers_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "model.safetensors").write_bytes(b"0" * 100)
    monkeypatch.setattr(transport, "_SHARED_MEMORY", tmp_path)
    for free_bytes, folder in ((101, tmp_path), (100, Path(transport.tempfile.gettempdir()))):
        usage = type("Usage", (), {"free": free_bytes})
        monkeypatch.setattr(transport.shutil, "disk_usage", lambda path, usage=usage: usage)
        assert transfer_folder(tmp_path) == folder
