"""Throughput and memory use of updates, for `timings.jsonl`."""

import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax

from training.run.records import six_digits
from training.schema import RunConfig

_GIB = 2**30

PEAK_TFLOPS = {
    "NVIDIA A100": 312.0,
    "NVIDIA H100 PCIe": 756.0,
    "NVIDIA H100 NVL": 835.0,
    "NVIDIA H100": 989.0,
    "NVIDIA H200 NVL": 835.0,
    "NVIDIA H200": 989.0,
    "TPU v4": 275.0,
    "TPU v5 lite": 197.0,
    "TPU v5e": 197.0,
    "TPU v5p": 459.0,
    "TPU v5": 459.0,
    "TPU v6 lite": 918.0,
    "TPU v6e": 918.0,
}
"""Dense bfloat16 TFLOP/s by prefix of JAX's device kind; the longest matching prefix applies."""


@dataclass
class UpdateWork:
    """The work of one update, accumulated over its rollouts."""

    generated_tokens: int = 0
    model_flops: float = 0.0  # see `training.learner.flops`


def compute_timing_fields(
    work: UpdateWork, seconds: Mapping[str, float], config: RunConfig
) -> dict[str, Any]:
    """Return the fields of a `TimingRecord` other than its seconds.

    With `grpo.prefetch`, the sampling speed is omitted. The model FLOP/s utilization (MFU) divides
    the FLOPs of loss and gradient by the FLOPs that the trainer's devices could compute at their
    peak during `seconds["update"]`, which includes packing and compilation.
    """
    fields: dict[str, Any] = {"generated_tokens": work.generated_tokens}
    if seconds.get("rollout") and not config.grpo.prefetch:
        fields["tokens_per_second"] = six_digits(work.generated_tokens / seconds["rollout"])
    device_tflops = peak_tflops(jax.devices()[0], config.model.dtype)
    if device_tflops is not None and seconds.get("update"):
        mesh = config.model.mesh
        peak_flops = device_tflops * 1e12 * mesh.fsdp * mesh.tensor * seconds["update"]
        fields["mfu"] = six_digits(work.model_flops / peak_flops)
    statistics = [device.memory_stats() or {} for device in jax.local_devices()]
    key = "peak_bytes_in_use"
    peak_bytes = [device[key] for device in statistics if key in device]
    if peak_bytes:
        fields["device_gib"] = six_digits(max(peak_bytes) / _GIB)
    peak_rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kibibytes = peak_rss // 1024 if sys.platform == "darwin" else peak_rss
    fields["host_gib"] = six_digits(kibibytes / 2**20)
    return fields


def peak_tflops(device: jax.Device, dtype: str) -> float | None:
    """Return a device's peak in TFLOP/s for a dtype, or None if it is unknown."""
    if dtype != "bfloat16":
        return None
    prefixes = [name for name in PEAK_TFLOPS if device.device_kind.startswith(name)]
    return PEAK_TFLOPS[max(prefixes, key=len)] if prefixes else None
