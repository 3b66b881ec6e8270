"""What vLLM's workers do for the trainer: say which weights they compute with.

vLLM makes `WeightReceiver` a base of its worker class (`worker_extension_cls`), in process as in
processes of their own (by way of `worker_extension.py`). This module is imported there, so it
imports nothing of JAX.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

_ROWS = 512
"""Rows of the identity that packed weights are multiplied with at once."""

_WORD = 0xFFFFFFFF
# By dtype: its bits, and where among them the exponent is.
_BITS = {torch.float32: (torch.int32, 0x7F800000), torch.bfloat16: (torch.int16, 0x7F80)}


class WeightReceiver:
    """Methods that the trainer calls on every worker by `collective_rpc`."""

    vllm_config: Any  # of vLLM's worker, as is the next
    model_runner: Any

    @torch.inference_mode()
    def weight_checksums(self) -> dict[str, tuple[int, int]]:
        """Return (checksum, copies) of each tensor, by its Hugging Face name.

        The checksum is that of `bit_checksum` over the part that this worker has; `copies` is how
        many workers have each number of the tensor.
        """
        from vllm.config import set_current_vllm_config

        world = self.vllm_config.parallel_config.tensor_parallel_size
        model = self.model_runner.get_model()
        fused, dtype = model.packed_modules_mapping, self.vllm_config.model_config.dtype
        sums: dict[str, tuple[int, int]] = {}
        with set_current_vllm_config(self.vllm_config):
            for name, layer in model.named_modules():
                if not isinstance(getattr(layer, "weight", None), torch.Tensor):
                    continue
                block, _, last = name.rpartition(".")
                parts = [f"{block}.{part}" for part in fused[last]] if last in fused else [name]
                replicas = [world // getattr(layer, "tp_size", 1)] * len(parts)
                if heads := getattr(layer, "num_kv_head_replicas", 0):  # query, key and value
                    replicas = [replicas[0], replicas[1] * heads, replicas[2] * heads]
                for kind, counted in _sums_by_kind(layer, len(parts), dtype).items():
                    for part, total, copies in zip(parts, counted, replicas, strict=True):
                        sums[f"{part}.{kind}"] = (total, copies)
        return sums


def bit_checksum(values: torch.Tensor) -> int:
    """Sum the mixed bit patterns of float32 or bfloat16 numbers, modulo 2**32.

    The order of the numbers doesn't matter, and the checksum of a whole is the sum of those of its
    parts: so it survives fusing, packing and sharding. Each pattern is mixed before it is added
    (two multiplications and shifts), or one number an ulp up and another one down would cancel.
    Zeros and subnormal numbers count nothing: hardware may take these for 0, and padding is 0.
    `training.weight_transfer.checksums.weight_checksum` computes the same.
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


def _sums_by_kind(layer: Any, parts: int, dtype: torch.dtype) -> dict[str, list[int]]:
    """Checksum the weights that a layer computes with, and its biases if it has some."""
    sums = {"weight": _sums_of_parts(layer, _pieces(layer), parts)}
    if isinstance(getattr(layer, "bias", None), torch.Tensor):
        # Some products on CPU take biases of bfloat16 as float32, which keeps their values.
        sums["bias"] = _sums_of_parts(layer, [(layer.bias.to(dtype), 0)], parts)
    return sums


def _sums_of_parts(layer: Any, pieces: Iterable[tuple[torch.Tensor, int]], parts: int) -> list[int]:
    """Add up the checksums of pieces, apart for each of a layer's fused parts."""
    sizes = layer.output_partition_sizes if parts > 1 else None
    totals = [0] * parts
    for piece, outputs in pieces:
        split = [piece] if sizes is None else piece.split(sizes, dim=outputs)
        totals = [total + bit_checksum(one) for total, one in zip(totals, split, strict=True)]
    return [total & _WORD for total in totals]


def _pieces(layer: Any) -> Iterator[tuple[torch.Tensor, int]]:
    """Yield the weights that a layer computes with, and which axis is that of its outputs.

    On CPU vLLM multiplies with a copy in a layout of its own, and keeps no other. It is read back
    by multiplying with the identity, which is exact: each sum is one weight and zeros.
    """
    from vllm.model_executor.layers.linear import LinearBase
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    if not (hasattr(layer, "cpu_linear") and isinstance(layer, (LinearBase, ParallelLMHead))):
        yield layer.weight, 0
        return
    weight: Any = layer.weight
    if isinstance(layer, ParallelLMHead):
        width = layer.embedding_dim
    else:
        width = getattr(layer, "input_size_per_partition", layer.input_size)
    for first in range(0, width, _ROWS):
        count = min(_ROWS, width - first)
        unit = torch.zeros(count, width, dtype=weight.dtype, device=weight.device)
        unit[:, first : first + count].fill_diagonal_(1)
        yield layer.quant_method.apply(layer, unit), 1
