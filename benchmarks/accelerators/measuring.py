"""Run programs on the local device: times, kernels, and digests of the results."""

import hashlib
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.accelerators.programs import Program

NUM_CALLS = 9
"""Number of timed calls after the first one; the result is their median."""


def measure(program: Program, num_calls: int = NUM_CALLS) -> dict[str, Any]:
    """Compile a program for JAX's default device and time it there.

    Returns:
        `device`, its kind; `compile_seconds`, tracing included; the median `seconds` of the calls;
        `rate`, units per second; the fields of `profile_kernels`; and `answers`, the digests of the
        result.
    """
    device = jax.devices()[0]
    arguments = jax.block_until_ready(jax.device_put(program.arguments, device))
    start = time.perf_counter()
    executable = jax.jit(program.function).lower(*arguments).compile()
    compile_seconds = time.perf_counter() - start
    jax.block_until_ready(executable(*arguments))
    seconds = statistics.median(time_calls(lambda: executable(*arguments), num_calls))
    return {
        "device": device.device_kind,
        "compile_seconds": compile_seconds,
        "seconds": seconds,
        "rate": program.units / seconds,
        **profile_kernels(lambda: executable(*arguments)),
        "answers": compute_digests(executable(*arguments)),
    }


def time_calls(call: Callable[[], Any], num_calls: int) -> list[float]:
    """Return the seconds of each call."""
    seconds = []
    for _ in range(num_calls):
        start = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - start)
    return seconds


def compute_digests(result: Any) -> dict[str, str]:
    """Return the first 16 digits of each leaf's SHA-256, by its path."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): _digest_leaf(leaf)
        for path, leaf in jax.tree.leaves_with_path(result)
    }


def _digest_leaf(leaf: jax.Array) -> str:
    values = jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
    array = np.ascontiguousarray(values)
    text = f"{array.dtype} {array.shape}".encode()
    return hashlib.sha256(text + array.tobytes()).hexdigest()[:16]


def profile_kernels(call: Callable[[], Any]) -> dict[str, Any]:
    """Profile one call on a GPU.

    Returns:
        `kernels`, the number of kernels, and `kernel_seconds`, the time in which at least one ran.
        Empty if JAX's profiler sees no kernels, as on CPUs.
    """
    with TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(call())
        events = [
            event for path in Path(folder).rglob("*.xplane.pb") for event in _read_gpu_events(path)
        ]
    copies = ("memcpy", "memset")
    kernels = [(begin, end) for name, begin, end in events if not name.lower().startswith(copies)]
    return {"kernels": len(kernels), "kernel_seconds": covered_length(kernels)} if kernels else {}


def _read_gpu_events(path: Path) -> Iterator[tuple[str, float, float]]:
    """Yield (name, begin, end) of each event in a GPU stream, in seconds."""
    for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
        if not plane.name.startswith("/device:GPU"):
            continue
        for line in plane.lines:
            if line.name.startswith("Stream"):  # other lines repeat them by module or operation
                for event in line.events:
                    begin = event.start_ns * 1e-9
                    yield event.name, begin, begin + event.duration_ns * 1e-9


def covered_length(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of spans (begin, end)."""
    total, latest_end = 0.0, -np.inf
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, latest_end))
        latest_end = max(latest_end, end)
    return float(total)
