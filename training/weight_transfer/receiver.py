"""An extension of vLLM's workers that loads weights and compares their checksums.

vLLM's workers import this module, so it must not import JAX.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open

_UINT32_MASK = 0xFFFFFFFF
# By dtype: the integer type of its bits, and the mask of the exponent.
_BITS = {torch.float32: (torch.int32, 0x7F800000), torch.bfloat16: (torch.int16, 0x7F80)}


class WeightReceiver:
    """A mixin of vLLM's workers; the trainer calls it through `collective_rpc`."""

    device: torch.device  # provided by vLLM's worker
    reload_weights: Any  # provided by vLLM's worker

    def receive_weights(
        self, weights: str | Iterable[tuple[str, torch.Tensor]], expected: Mapping[str, Any]
    ) -> None:
        """Load all weights and compare their checksums with the trainer's.

        Args:
            weights: Hugging Face names and tensors, or a folder with safetensors files.
            expected: The trainer's checksums by name; may be filled while the tensors arrive.

        Raises:
            ValueError: A checksum differs, or a tensor is missing or unexpected.
        """
        tensors = _read_tensors(Path(weights)) if isinstance(weights, str) else weights
        sums: dict[str, int] = {}

        def iterate_tensors() -> Iterator[tuple[str, torch.Tensor]]:
            for name, tensor in tensors:
                device_tensor = tensor.to(self.device)
                sums[name] = bit_checksum(device_tensor)
                yield name, device_tensor

        self.reload_weights(weights_iterator=iterate_tensors())
        different_names = [name for name in expected if sums.get(name) != int(expected[name])]
        different_names += [name for name in sums if name not in expected]
        if different_names:
            suffix = f" and {len(different_names) - 5} more" if len(different_names) > 5 else ""
            raise ValueError(
                f"the checksums of {len(different_names)} of {len(expected)} weight tensors differ "
                f"from the trainer's: {', '.join(different_names[:5])}{suffix}"
            )


def _read_tensors(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as handle:
            for name in handle.keys():  # noqa: SIM118
                yield name, handle.get_tensor(name)


def bit_checksum(values: torch.Tensor) -> int:
    """Return the sum of the mixed bit patterns of numbers, modulo 2**32.

    Each pattern is mixed by two multiplications and shifts before it is added. Otherwise, a change
    of one number by +1 ulp and of another by -1 ulp would cancel. Zeros and subnormal numbers count
    as 0, because hardware may flush subnormals to zero.
    `training.weight_transfer.checksums.weight_checksum` computes the same sum with JAX.

    Args:
        values: float32 or bfloat16 tensor of any shape.

    Raises:
        TypeError: The dtype is neither of these.
    """
    if values.dtype not in _BITS:
        raise TypeError(f"dtype must be one of {', '.join(map(str, _BITS))}, got {values.dtype}")
    is_on_host = values.device.type == "cpu"
    dtype, exponent = _BITS[values.dtype]
    chunks = values.reshape(-1).view(dtype).split(1 << (16 if is_on_host else 22))
    mixed_sum = mixed_sum_on_host if is_on_host else mixed_sum_on_device
    return sum(mixed_sum(chunk, exponent) for chunk in chunks) & _UINT32_MASK


def mixed_sum_on_host(chunk: torch.Tensor, exponent: int) -> int:
    """Sum the mixed bits of int16 or int32 with NumPy, which starts no threads."""
    array = chunk.numpy()
    bits = array.view(f"u{array.itemsize}").astype(np.uint32)
    bits[bits & np.uint32(exponent) == 0] = 0
    bits *= np.uint32(0x9E3779B1)
    bits ^= bits >> np.uint32(15)
    bits *= np.uint32(0x85EBCA77)
    bits ^= bits >> np.uint32(13)
    return int(bits.sum(dtype=np.uint64))


def mixed_sum_on_device(chunk: torch.Tensor, exponent: int) -> int:
    """Sum the mixed bits of int16 or int32 on their device, in int64 since torch lacks uint32."""
    bits = chunk.long() & ((1 << 8 * chunk.element_size()) - 1)
    bits = torch.where(bits & exponent == 0, 0, bits)
    bits = (bits * 0x9E3779B1) & _UINT32_MASK
    bits = bits ^ (bits >> 15)
    bits = (bits * 0x85EBCA77) & _UINT32_MASK
    return int((bits ^ (bits >> 13)).sum())
