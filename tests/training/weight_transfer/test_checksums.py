"""Checksums of weights: equal for equal weights however they are laid out, and for no others."""

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from training.weight_transfer.checksums import (
    SyncError,
    require_equal_checksums,
    weight_checksum,
)

torch = pytest.importorskip("torch")
receiver = pytest.importorskip("training.weight_transfer.receiver")

DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16}


def _numbers(dtype: str, shape: tuple[int, ...] = (70, 1000)) -> np.ndarray:
    return np.random.default_rng(3).normal(size=shape).astype(DTYPES[dtype])


def _plain(values: np.ndarray) -> int:
    """The definition, number by number."""
    total = 0
    for bits in values.reshape(-1).view(f"u{values.itemsize}").tolist():
        if bits & (0x7F800000 if values.itemsize == 4 else 0x7F80) == 0:
            continue
        mixed = bits * 0x9E3779B1 % 2**32
        mixed ^= mixed >> 15
        mixed = mixed * 0x85EBCA77 % 2**32
        total += mixed ^ mixed >> 13
    return total % 2**32


def _engine_side(values: np.ndarray) -> Any:
    width = {2: torch.bfloat16, 4: torch.float32}[values.itemsize]
    return torch.from_numpy(values.view(f"i{values.itemsize}").copy()).view(width)


@pytest.mark.parametrize("dtype", DTYPES)
def test_trainer_and_engine_compute_the_checksum_of_the_definition(dtype: str):
    values = _numbers(dtype)
    values[0, :4] = [0.0, -0.0, 1e-39, np.inf]
    expected, tensor = _plain(values), _engine_side(values)
    assert int(weight_checksum(jnp.asarray(values))) == expected
    assert receiver.bit_checksum(tensor) == expected
    bits, exponent = receiver._BITS[tensor.dtype]
    on_device = receiver.mixed_sum_on_device(tensor.view(bits).reshape(-1), exponent)
    assert on_device % 2**32 == expected


@pytest.mark.parametrize("dtype", DTYPES)
def test_order_padding_and_parts_make_no_difference(dtype: str):
    values = _numbers(dtype)
    tensor = _engine_side(values)
    whole = receiver.bit_checksum(tensor)
    assert receiver.bit_checksum(tensor.T) == whole
    padding = torch.zeros(3, 1000, dtype=tensor.dtype)
    assert receiver.bit_checksum(torch.cat([padding, tensor])) == whole
    parts = [receiver.bit_checksum(part) for part in tensor.split([20, 50])]
    assert sum(parts) % 2**32 == whole


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_step_of_an_ulp_shows_even_where_another_goes_the_other_way(dtype: str):
    values = np.abs(_numbers(dtype))
    moved = values.copy()
    bits = moved.view(f"u{moved.itemsize}")
    bits[0, 0] += 1
    assert int(weight_checksum(jnp.asarray(moved))) != int(weight_checksum(jnp.asarray(values)))
    bits[0, 1] -= 1
    assert int(weight_checksum(jnp.asarray(moved))) != int(weight_checksum(jnp.asarray(values)))


def test_sums_over_workers_count_shards_once_and_copies_as_often_as_they_are():
    trainer = {"norm": 2**32 - 5, "q_proj": 7}
    good = [{"norm": (2**32 - 5, 2), "q_proj": (3, 1)}, {"norm": (2**32 - 5, 2), "q_proj": (4, 1)}]
    require_equal_checksums(trainer, good)
    with pytest.raises(SyncError, match=r"1 of 2 weight tensors .* checksums: norm$"):
        require_equal_checksums(trainer, [good[0], good[1] | {"norm": (4, 2)}])
    with pytest.raises(SyncError, match=r": q_proj$"):
        require_equal_checksums(trainer, [good[0], good[0] | {"q_proj": (5, 1)}])


def test_a_tensor_that_only_one_side_has_is_named():
    with pytest.raises(SyncError, match=r"2 of 1 weight tensors .*: head, bias$"):
        require_equal_checksums({"head": 0}, [{"bias": (0, 1)}])
