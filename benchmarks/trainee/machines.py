"""What a forecast of the trainee assumes of one device, beside `benchmarks.accelerators.targets`.

Peaks are the vendors' for dense bfloat16. What is reached of them is an assumption: large products
reach what cuBLAS and XLA are known for, and attention on an H100 the 35% that FlashAttention-2 does
(Shah et al. 2024, arXiv 2407.08608), with every product counted that the kernels take. For TPUs the
share of attention is a guess.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Speed:
    """Numbers of one device."""

    peak: float  # bfloat16 operations per second
    reached: float  # share of the peak that large matrix products reach
    attention: float  # share of the peak that kernels for attention reach
    link: float  # bytes per second that a device sends in a ring of all, as reached
    memory: float  # bytes


SPEEDS = {
    "h100": Speed(989e12, 0.70, 0.35, 350e9, 80e9),
    "v5e": Speed(197e12, 0.80, 0.40, 90e9, 16 * 2**30),
    "v5p": Speed(459e12, 0.80, 0.40, 300e9, 95 * 2**30),
    "v6e": Speed(918e12, 0.70, 0.30, 220e9, 32 * 2**30),
}
