"""Run programs on this machine's device and take their times, to stand beside the forecasts."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax

from benchmarks.accelerators.programs import Program
from benchmarks.accelerators.targets import machine_of

CALLS = 9
"""Calls of which the median counts, after the first one."""


def require_device(target: str) -> None:
    """Raise a ValueError unless JAX computes on the platform of a target such as `h100:1`."""
    needed, found = machine_of(target).platform, jax.default_backend()
    if found != needed:
        raise ValueError(f"--measure: got JAX on {found} here, {target} needs it on {needed}")


def measure(program: Program, calls: int = CALLS) -> dict[str, Any]:
    """Compile a program for JAX's default device, run it on its arguments, and take the time.

    Returns:
        The device; `compile_seconds`, tracing included; `first_call_seconds`, in which a device
        may still load what was compiled; `call_seconds` of each of the `calls` after it,
        their median `seconds`, and the units per second that it makes, `rate`.
    """
    device = jax.devices()[0]
    arguments = jax.block_until_ready(jax.device_put(program.arguments, device))
    began = time.perf_counter()
    compiled = jax.jit(program.function).lower(*arguments).compile()
    compile_seconds = time.perf_counter() - began
    first, *others = call_seconds(compiled, arguments, calls + 1)
    seconds = statistics.median(others)
    return {
        "device": device.device_kind,
        "compile_seconds": compile_seconds,
        "first_call_seconds": first,
        "call_seconds": others,
        "seconds": seconds,
        "rate": program.units / seconds,
    }


def call_seconds(
    compiled: Callable[..., Any], arguments: tuple[Any, ...], calls: int
) -> list[float]:
    """Call a compiled program so often, one call after the other; return the seconds of each."""
    seconds = []
    for _ in range(calls):
        began = time.perf_counter()
        jax.block_until_ready(compiled(*arguments))
        seconds.append(time.perf_counter() - began)
    return seconds
