"""Checksums are equal for equal weights and differ otherwise."""

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from training.weight_transfer.checksums import weight_checksum

torch = pytest.importorskip("torch")
receiver = pytest.importorskip("training.weight_transfer.receiver")

DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16}


def _random_values(dtype: str, shape: tuple[int, ...] = (70, 1000)) -> np.ndarray:
    return np.random.default_rng(3).normal(size=shape).astype(DTYPES[dtype])


def _reference_checksum(values: np.ndarray) -> int:
    """Return the checksum, computed value by value."""
    total = 0
    for bits in values.reshape(-1).view(f"u{values.itemsize}").tolist():
        if bits & (0x7F800000 if values.itemsize == 4 else 0x7F80) == 0:
            continue
        value_hash = bits * 0x9E3779B1 % 2**32
        value_hash ^= value_hash >> 15
        value_hash = value_hash * 0x85EBCA77 % 2**32
        total += value_hash ^ value_hash >> 13
    return total % 2**32


def _make_engine_tensor(values: np.ndarray) -> Any:
    dtype = {2: torch.bfloat16, 4: torch.float32}[values.itemsize]
    return torch.from_numpy(values.view(f"i{values.itemsize}").copy()).view(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_checksums_match_their_definition(dtype: str):
    values = _random_values(dtype)
    values[0, :4] = [0.0, -0.0, 1e-39, np.inf]
    expected, tensor = _reference_checksum(values), _make_engine_tensor(values)
    assert int(weight_checksum(jnp.asarray(values))) == expected
    assert receiver.bit_checksum(tensor) == expected
    bits, exponent = receiver._BITS[tensor.dtype]
    device_sum = receiver.mixed_sum_on_device(tensor.view(bits).reshape(-1), exponent)
    assert device_sum % 2**32 == expected


@pytest.mark.parametrize("dtype", DTYPES)
def test_checksum_detects_opposite_ulp_changes(dtype: str):
    values = np.abs(_random_values(dtype))
    checksum, changed_values = int(weight_checksum(jnp.asarray(values))), values.copy()
    bits = changed_values.view(f"u{changed_values.itemsize}")
    bits[0, 0] += 1
    assert int(weight_checksum(jnp.asarray(changed_values))) != checksum
    bits[0, 1] -= 1
    assert int(weight_checksum(jnp.asarray(changed_values))) != checksum


class Worker(receiver.WeightReceiver):
    device = torch.device("cpu")

    def reload_weights(self, weights_iterator: Any) -> None:
        self.weights = dict(weights_iterator)


@pytest.mark.parametrize(
    ("checksums", "expected", "message"),
    [
        ({}, {"norm": 0}, r"checksums of 1 of 1 weight tensors .*: norm$"),
        ({"norm": 1.0, "head": 1.0}, {"norm": 0}, r"2 of 1 weight tensors .*: norm, head$"),
    ],
)
def test_receive_weights_names_differing_tensors(
    checksums: dict[str, float], expected: dict[str, int], message: str
):
    tensors = {name: torch.tensor([value]) for name, value in checksums.items()}
    with pytest.raises(ValueError, match=message):
        Worker().receive_weights(tensors.items(), expected)
