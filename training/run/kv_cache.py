"""How much room vLLM will have for keys and values, and for how many sequences that is enough.

Counted as vLLM counts it (`vllm/v1/kv_cache_interface.py`, `kv_cache_utils.py`): a block holds the
keys and values of some tokens of one layer, a sequence takes whole blocks, and all workers have the
same number of blocks. What vLLM's activations and graphs take it measures when it starts, so on an
accelerator the size is known here as an upper bound alone.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass

from training.policy.architectures import DecoderConfig
from training.schema import Sampling

_GIB = 2**30
_BYTES = {"float32": 4, "bfloat16": 2}
_CPU_BLOCK, _ACCELERATOR_BLOCK = 32, 16
"""Tokens of a block: as `engine_arguments` sets them on CPUs, and vLLM's own default."""

_COMMON_GIB = 80
"""Memory of the accelerator that is spoken of where this machine has none, GiB."""


@dataclass(frozen=True)
class KvCache:
    """The key-value cache of one vLLM worker."""

    where: str  # such as "on CPUs"
    gib: float  # of each worker; 0 if the weights leave none
    at_most: bool  # whether vLLM's activations take a part of it
    tokens: int  # that fit, of sequences of the greatest length
    sequences: float  # of the greatest length that fit at once


def kv_caches(sampling: Sampling, shape: DecoderConfig, weights: int) -> list[KvCache]:
    """Return the cache on CPUs, and on this machine's accelerators or else a common one.

    Args:
        sampling: as each engine gets it (`RunConfig.engine_sampling`).
        shape: the policy's.
        weights: bytes of the engine's weights, on each worker.
    """
    said = os.environ.get("VLLM_CPU_KVCACHE_SPACE", "")
    cpu = float(said) if said.isascii() and said.isdecimal() else float(sampling.cpu_kv_cache_gib)
    found = accelerator_gib()
    total = _COMMON_GIB if found is None else found
    share = sampling.gpu_memory_utilization
    left = max(total * share - weights / _GIB, 0.0)
    which = "an accelerator" if found is None else "this machine's accelerators"
    where = f"on {which} of {total:.0f} GiB ({share:.0%} of it)"
    return [
        _counted("on CPUs", cpu, sampling, shape, _CPU_BLOCK, at_most=False),
        _counted(where, left, sampling, shape, _ACCELERATOR_BLOCK, at_most=True),
    ]


def bytes_per_token(sampling: Sampling, shape: DecoderConfig) -> int:
    """Return the bytes that keys and values of one token take on each worker, of all layers."""
    # Where there are more workers than heads, each head is on several of them.
    heads = max(1, shape.num_key_value_heads // sampling.tensor_parallel_size)
    return 2 * shape.num_hidden_layers * heads * shape.head_dim * _BYTES[sampling.dtype]


def _counted(
    where: str, gib: float, sampling: Sampling, shape: DecoderConfig, block: int, *, at_most: bool
) -> KvCache:
    blocks = int(gib * _GIB) // (block * bytes_per_token(sampling, shape))
    per_sequence = -(-sampling.max_model_len // block)
    sequences = blocks / per_sequence
    return KvCache(where, gib, at_most, int(sequences * sampling.max_model_len), sequences)


def accelerator_gib() -> float | None:
    """Return the memory of this machine's first NVIDIA accelerator, GiB; None: there is none."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return float(done.stdout.split()[0]) / 1024  # it writes MiB
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
