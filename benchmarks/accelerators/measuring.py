"""Run programs on this machine's device: times to stand beside the forecasts, and answers."""

import hashlib
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.accelerators.programs import Program
from benchmarks.accelerators.targets import machine_of

CALLS = 9
"""Calls of which the median counts, after the first one."""

LONGEST_KERNELS = 12
"""Kernels of a call that are named, those that take the longest."""


def require_device(target: str) -> None:
    """Raise a ValueError unless JAX computes on the platform of a target such as `h100:1`."""
    needed, found = machine_of(target).platform, jax.default_backend()
    if found != needed:
        raise ValueError(f"--measure: got JAX on {found} here, {target} needs it on {needed}")


class OnDevice:
    """A program that is compiled for JAX's default device, with its arguments there."""

    def __init__(self, program: Program) -> None:
        """Compile the program and call it once."""
        self._program, self._device = program, jax.devices()[0]
        self._arguments = jax.block_until_ready(jax.device_put(program.arguments, self._device))
        began = time.perf_counter()
        self._compiled = jax.jit(program.function).lower(*self._arguments).compile()
        self._compile_seconds = time.perf_counter() - began
        began = time.perf_counter()
        self.result = jax.block_until_ready(self._compiled(*self._arguments))
        self._first_call_seconds = time.perf_counter() - began

    def measure(self, calls: int = CALLS) -> dict[str, Any]:
        """Call the program so often, and look at one more call with JAX's profiler.

        Returns:
            The device; `compile_seconds`, tracing included; `first_call_seconds`, in which a device
            may still load what was compiled; `call_seconds` of each of the `calls` after it, their
            median `seconds`, and the units per second that it makes, `rate`; what `kernels_of`
            gives; and the digests of what the program answered, `answers`.
        """
        seconds = call_seconds(self._compiled, self._arguments, calls)
        median = statistics.median(seconds)
        return {
            "device": self._device.device_kind,
            "compile_seconds": self._compile_seconds,
            "first_call_seconds": self._first_call_seconds,
            "call_seconds": seconds,
            "seconds": median,
            "rate": self._program.units / median,
            **kernels_of(lambda: self._compiled(*self._arguments)),
            "answers": digests(self.result),
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


def digests(result: Any) -> dict[str, str]:
    """Return the beginning of each leaf's SHA-256, by its path: equal if all its bytes are."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): _digest(leaf)
        for path, leaf in jax.tree.leaves_with_path(result)
    }


def _digest(leaf: jax.Array) -> str:
    values = jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
    array = np.ascontiguousarray(values)
    text = f"{array.dtype} {array.shape}".encode()
    return hashlib.sha256(text + array.tobytes()).hexdigest()[:16]


def kernels_of(call: Callable[[], Any]) -> dict[str, Any]:
    """Call something under JAX's profiler, and say what ran on the device.

    Returns:
        `kernels` that were run, the seconds in which any of them ran, `kernel_seconds`, the number
        of copies, `copies`, and of those kernels that took the longest the seconds and the number,
        `longest_kernels`. Nothing where the profiler sees no kernels, as on CPUs.
    """
    with TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(call())
        found = [event for path in Path(folder).rglob("*.xplane.pb") for event in _events(path)]
    ran = [event for event in found if not _is_copy(event[0])]
    if not ran:
        return {}
    by_name: dict[str, list[float]] = defaultdict(list)
    for name, _, seconds in ran:
        by_name[name].append(seconds)
    longest = sorted(by_name.items(), key=lambda one: -sum(one[1]))[:LONGEST_KERNELS]
    return {
        "kernels": len(ran),
        "kernel_seconds": _covered((began, began + seconds) for _, began, seconds in ran),
        "copies": len(found) - len(ran),
        "longest_kernels": {name: [sum(every), len(every)] for name, every in longest},
    }


def _events(path: Path) -> Iterator[tuple[str, float, float]]:
    """Yield (name, begin, seconds) of what streams of GPUs ran."""
    profile = jax.profiler.ProfileData.from_file(str(path))
    for plane in profile.planes:
        if not plane.name.startswith("/device:GPU"):
            continue
        for line in plane.lines:
            if line.name.startswith("Stream"):  # others say again what a module or an operation did
                for event in line.events:
                    yield event.name, event.start_ns * 1e-9, event.duration_ns * 1e-9


def _is_copy(name: str) -> bool:
    return name.lower().startswith(("memcpy", "memset"))


def _covered(spans: Iterator[tuple[float, float]]) -> float:
    """Return how long at least one of the spans goes on."""
    total, end = 0.0, -np.inf
    for began, ended in sorted(spans):
        total += max(0.0, ended - max(began, end))
        end = max(end, ended)
    return float(total)


def device_numbers() -> dict[str, Any]:
    """Measure what forecasts assume of JAX's default device: seconds, and bytes per second.

    `device` is its kind, `launch_seconds` what another kernel costs in the body of a loop,
    `decision_seconds` what a round of a loop costs beside the kernels of its body, where data
    decide whether it goes on, `copy_bytes_per_second` the bytes that a large copy reads and writes.
    """
    rounds, scatters = 1000, 16

    def loop(scatters: int) -> tuple[float, float]:
        """Return the seconds and the kernels of a round."""

        def body(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            number, values = carry
            for _ in range(scatters):  # XLA puts no two of them into one kernel
                values = values.at[values[0] & 1023].add(1)
            return number + 1, values

        def run(limit: jax.Array, values: jax.Array) -> Any:
            return jax.lax.while_loop(lambda c: c[0] < limit, body, (jnp.int32(0), values))

        arguments = (jnp.int32(rounds), jnp.arange(1024))
        compiled = jax.jit(run).lower(*arguments).compile()
        ran = kernels_of(lambda: compiled(*arguments)).get("kernels", scatters * rounds)
        return min(call_seconds(compiled, arguments, 5)) / rounds, ran / rounds

    (few, kernels), (many, more) = loop(1), loop(1 + scatters)
    launch = (many - few) / (more - kernels)
    large = jnp.ones(1 << 28, jnp.float32)  # 1 GiB, beyond all caches
    copy = jax.jit(lambda values: values + 1).lower(large).compile()
    return {
        "device": jax.devices()[0].device_kind,
        "launch_seconds": launch,
        "decision_seconds": few - kernels * launch,
        "copy_bytes_per_second": 2 * large.nbytes / min(call_seconds(copy, (large,), 5)),
    }
