"""What a forecast of the trainee assumes of one device, beside `benchmarks.accelerators.targets`.

Peaks are the vendors' for dense bfloat16. What is reached of them is an assumption.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Speed:
    """Numbers of one device."""

    peak: float  # bfloat16 operations per second
    reached: float  # share of the peak that large matrix products reach
    link: float  # bytes per second that a device sends in a ring of all, as reached
    memory: float  # bytes


SPEEDS = {
    "h100": Speed(989e12, 0.70, 350e9, 80e9),
    "v5e": Speed(197e12, 0.80, 90e9, 16 * 2**30),
    "v5p": Speed(459e12, 0.80, 300e9, 95 * 2**30),
    "v6e": Speed(918e12, 0.70, 220e9, 32 * 2**30),
}
