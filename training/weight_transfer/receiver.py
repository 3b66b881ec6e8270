"""What vLLM's workers do for the trainer: take weights, and compare their checksums.

vLLM's workers import this module, so it imports nothing of JAX.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open

_WORD = 0xFFFFFFFF
# By dtype: its bits, and where among them the exponent is.
_BITS = {torch.float32: (torch.int32, 0x7F800000), torch.bfloat16: (torch.int16, 0x7F80)}


class WeightReceiver:
    """The method that the trainer calls on every worker by `collective_rpc`."""

    device: torch.device  # of vLLM's worker, as is the next
    reload_weights: Any

    def receive_weights(
        self, weights: str | Iterable[tuple[str, torch.Tensor]], expected: Mapping[str, Any]
    ) -> None:
        """Load all weights, and compare their checksums with the trainer's.

        Args:
            weights: Hugging Face's names and tensors, or a folder with safetensors files.
            expected: The trainer's checksums, which may be filled in while the tensors come.

        Raises:
            ValueError: A checksum differs, or a tensor is missing or unexpected.
        """
        tensors = _tensors_in(Path(weights)) if isinstance(weights, str) else weights
        sums: dict[str, int] = {}

        def arriving() -> Iterator[tuple[str, torch.Tensor]]:
            for name, tensor in tensors:
                here = tensor.to(self.device)
                sums[name] = bit_checksum(here)
                yield name, here

        self.reload_weights(weights_iterator=arriving())
        wrong = [name for name in expected if sums.get(name) != int(expected[name])]
        wrong += [name for name in sums if name not in expected]
        if wrong:
            rest = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
            raise ValueError(
                f"{len(wrong)} of {len(expected)} weight tensors did not arrive as the trainer "
                f"sent them, by their checksums: {', '.join(wrong[:5])}{rest}"
            )


def _tensors_in(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118
                yield name, opened.get_tensor(name)


def bit_checksum(values: torch.Tensor) -> int:
    """Sum the mixed bit patterns of float32 or bfloat16 numbers, modulo 2**32.

    Each pattern is mixed before it is added (two multiplications and shifts), or one number an ulp
    up and another one down would cancel. Zeros and subnormal numbers count nothing: hardware may
    take these for 0. `training.weight_transfer.checksums.weight_checksum` computes the same.
    """
    if values.dtype not in _BITS:
        raise TypeError(f"dtype: got {values.dtype}, allowed are {', '.join(map(str, _BITS))}")
    on_host = values.device.type == "cpu"
    word, exponent = _BITS[values.dtype]
    chunks = values.reshape(-1).view(word).split(1 << (16 if on_host else 22))
    mixed_sum = mixed_sum_on_host if on_host else mixed_sum_on_device
    return sum(mixed_sum(chunk, exponent) for chunk in chunks) & _WORD


def mixed_sum_on_host(chunk: torch.Tensor, exponent: int) -> int:
    """Sum the mixed bits of int16 or int32; NumPy starts no threads for so little work."""
    numbers = chunk.numpy()
    bits = numbers.view(f"u{numbers.itemsize}").astype(np.uint32)
    bits[bits & np.uint32(exponent) == 0] = 0
    bits *= np.uint32(0x9E3779B1)
    bits ^= bits >> np.uint32(15)
    bits *= np.uint32(0x85EBCA77)
    bits ^= bits >> np.uint32(13)
    return int(bits.sum(dtype=np.uint64))


def mixed_sum_on_device(chunk: torch.Tensor, exponent: int) -> int:
    """Sum the mixed bits of int16 or int32 where they are, in int64 for want of uint32."""
    bits = chunk.long() & ((1 << 8 * chunk.element_size()) - 1)
    bits = torch.where(bits & exponent == 0, 0, bits)
    bits = (bits * 0x9E3779B1) & _WORD
    bits = bits ^ (bits >> 15)
    bits = (bits * 0x85EBCA77) & _WORD
    return int((bits ^ (bits >> 13)).sum())
