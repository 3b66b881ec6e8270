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
    joined: int | None = None  # devices that such links join; None: all
    network: float = 0.0  # bytes per second that a device sends to devices that they don't join

    def sent_per_second(self, devices: int) -> float:
        """Return what a device sends in a ring of so many: what its slowest link lets through."""
        return self.link if self.joined is None or devices <= self.joined else self.network


SPEEDS = {
    "h100": Speed(989e12, 0.70, 0.35, 350e9, 80e9, joined=8, network=45e9),
    "h200": Speed(989e12, 0.70, 0.35, 350e9, 141e9, joined=8, network=45e9),
    "v5e": Speed(197e12, 0.80, 0.40, 90e9, 16 * 2**30),
    "v5p": Speed(459e12, 0.80, 0.40, 300e9, 95 * 2**30),
    "v6e": Speed(918e12, 0.70, 0.30, 220e9, 32 * 2**30),
}
